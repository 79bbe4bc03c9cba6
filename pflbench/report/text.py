"""Numbers, cells and comparisons as text, and which columns stand side by side, the same in all formats."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import NamedTuple, TypeVar

from pflbench.report.table import CellValue, Row, Table, Versus
from pflbench.report.verdict import COMPARED, RULE, SUSPECT, Verdict
from pflbench.units import consecutive

NONE = "–"
OUTSIDE = "not in the suite"
MARKS = {"guess": "ᵍ", "tuned": "ᵗ"}
"""What stands behind the number of a cell that rests on such values."""
_WIDEST = 16
"""Characters of a group in one line above its columns."""
_ASCII = dict(zip("–—·×†²ᵍᵗ┃│━─╇┼", "--*x*2gt||=-=+", strict=True))
_ASCII |= {"±": "+-", "√": "sqrt", "→": "->", "…": "..."}
K = TypeVar("K")
V = TypeVar("V")


class Appendix(NamedTuple):
    """A list of cells below a table, as text: one line each, which begins with its row and its column.

    `label`: what it is called in references; `words`: what stands before each further field in a sentence.
    """

    title: str
    label: str
    header: Sequence[str]
    words: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]

    def sentence(self, line: Sequence[str]) -> str:
        """A line without columns."""
        fields = (f"{word} {field}".strip() for word, field in zip(self.words, line[2:], strict=True) if field)
        return f"{line[0]}, {line[1]}: {'; '.join(fields)}"


LEFT = ("Row", "Column", "Verdict")
"""Headers of the columns that hold words."""


def number(mean: float, spread: float | None, decimals: int) -> str:
    """`45.10 ± 1.20`, or `45.10` without a spread."""
    text = f"{round(mean, decimals) + 0.0:.{decimals}f}"  # no minus in front of a zero
    return text if spread is None else f"{text} ± {spread:.{decimals}f}"


def marks(value: CellValue | None) -> str:
    """The marks of what a number rests on; none where there is no number."""
    if value is None or value.mean is None:
        return ""
    return "".join(mark for source, mark in MARKS.items() if source in value.rests_on.values())


def cell(value: CellValue | None, decimals: int, room: int = 0) -> str:
    """A cell as the paper prints it; missing and failed seeds are always visible.

    `room`: so many characters stand behind the number at least, marks or blanks, so that numbers align.
    """
    if value is None:
        return NONE + " " * room
    if value.told is not None:
        return value.told + " " * room
    if value.mean is None:
        lacking = f"failed ({value.failed}/{value.expected})" if value.failed else f"0/{value.expected}"
        return lacking + " " * room
    text = number(value.mean, value.spread, decimals) + marks(value).ljust(room)
    if not value.complete:
        failed = f", {value.failed} failed" if value.failed else ""
        text += f" ({value.done}/{value.expected}{failed})"
    return f"{text} †" if value.mixed else text


def ranges(numbers: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` → `"0–2, 5"`."""
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in consecutive(numbers))


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """What stands beside each first of these pairs: everything once, in order."""
    found: dict[K, dict[V, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in found.items()}


def appendices(table: Table, compare: bool) -> list[Appendix]:
    """What follows the table: its cells beside the paper's (`compare`), and against a rival's where one is named."""
    found = [_comparison(table)] if compare and table.compared else []
    return [one for one in found if one.lines] + ([_versus(table, table.versus)] if table.versus else [])


def _comparison(table: Table) -> Appendix:
    """A line per cell with a run, and the footnotes of the verdicts."""
    notes: dict[str, int] = {}
    lines = []
    for row, head, value in replace(table, extra=()).shown:
        paper, printed = NONE, value.reference
        if printed is not None:
            spread = "" if printed.spread is None else f" ± {printed.spread:.{table.decimals}f}"
            paper = (printed.text or number(printed.mean, None, table.decimals)) + spread
        difference = NONE if value.difference is None else apart(value.difference, value.verdict, table.decimals)
        verdict = _judged(value.verdict, notes) if value.verdict else NONE
        lines.append((row.title, head.name, cell(value, table.decimals), paper, difference, verdict))
    judged = any(value.verdict and value.verdict.label in COMPARED for *_, value in table.shown)
    said = [f"Verdicts: {RULE}."] if judged else []
    said += [f"[{mark}] {reason}" for reason, mark in notes.items()]
    header = ("Row", "Column", "Ours", "Paper", "Difference", "Verdict")
    return Appendix("Ours and the paper's", "paper", header, ("", "paper", "", ""), lines, said)


def apart(difference: float, verdict: Verdict | None, decimals: int) -> str:
    """`-0.14 (-0.50 to 0.22)`: a difference with its interval, as far as there is one."""
    shown = f"{difference:+.{decimals}f}"
    interval = verdict.interval if verdict else None
    return shown if interval is None else f"{shown} ({interval.low:+.{decimals}f} to {interval.high:+.{decimals}f})"


def _versus(table: Table, versus: Versus) -> Appendix:
    """A line per cell that was held against the rival's, and what they say."""
    lines, seeds = list[tuple[str, ...]](), set[int]()
    for row, head, _ in table.shown:
        one = versus.cells.get((row.id, head.id))
        if one is None:
            continue
        paired, decimals = one.paired, table.decimals
        seeds |= {one.seed} if one.seed is not None else set()
        shown = f"{paired.mean:+.{decimals}f}"
        if paired.interval is not None:
            shown += f" ({paired.interval.low:+.{decimals}f} to {paired.interval.high:+.{decimals}f})"
        over = f"{paired.n} seeds" if one.seed is None else f"{paired.n} clients"
        p = NONE if one.p is None else f"{one.p:.3f}"
        least = NONE if paired.detectable is None or one.seed is not None else f"{paired.detectable:.{decimals}f}"
        lines.append((row.title, head.name, shown, over, p, "*" if one.star else "", least))
    none = [f"No row has a seed in common with {versus.rival}."]
    notes = _of_versus(any(line[3].endswith("seeds") for line in lines), sorted(seeds)) if lines else none
    header = ("Row", "Column", "Difference", "Over", "p", "", "Detectable")
    words = ("", "over", "p", "", "detectable")
    return Appendix(f"Against {versus.rival}", "versus", header, words, lines, notes)


def _of_versus(several: bool, seeds: Sequence[int]) -> list[str]:
    """What the lines against a rival say; `several`: some are over seeds; `seeds`: those that stand alone."""
    said = []
    if several:
        said += [
            "Seed by seed: runs of one seed share federation, initial model, cohorts and minibatches. In parentheses "
            "Student's 95 % interval; p of the paired t-test, adjusted by Holm over the column.",
            "*: both the t-test and the exact sign-flip test find a difference at 5 % after Holm. With n seeds the "
            "latter's p is at least 2/2^n, so five seeds or fewer never have a star.",
            "Detectable: the smallest true difference that these seeds would show as significant in 80 of 100 tables.",
        ]
    if seeds:
        said.append(
            f"Client by client where one seed is shared ({ranges(seeds)}): conditional on this seed, without a test."
        )
    return said


def _judged(verdict: Verdict, notes: dict[str, int]) -> str:
    """`differs [1], reference suspect [2]`; `notes`: the numbers of the reasons so far."""
    said = f"{verdict.label} [{notes.setdefault(verdict.reason, len(notes) + 1)}]"
    for word, why in ((SUSPECT, verdict.suspect), ("nearer at our best round", verdict.at_best)):
        if why is not None:
            said += f", {word} [{notes.setdefault(why, len(notes) + 1)}]"
    return said


def fitting(text: str, encoding: str) -> str:
    """The text for an output of this encoding: ASCII stands in for characters that it does not have."""

    def instead(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return "".join(_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end

    codecs.register_error("pflbench.ascii", instead)
    return text.encode(encoding, "pflbench.ascii").decode(encoding)


class View(NamedTuple):
    """Columns that all rows are printed with: what stands above the rows' titles, and above each column in lines."""

    corner: str
    columns: dict[int, tuple[str, ...]]
    """By the column's number in the table."""
    extra: tuple[Row, ...]
    """Rows that the suite does not name, if they have something in these columns."""


def views(table: Table) -> list[View]:
    """One view with all columns or, for a table in blocks, one per group with the group in the corner."""
    groups: dict[str, dict[int, tuple[str, ...]]] = {}
    for i, head in enumerate(table.columns):
        c = head.column
        corner, above = (c.group, "") if table.blocks else ("", c.group)
        groups.setdefault(corner, {})[i] = tuple(line for line in (*wrap(above, _WIDEST), c.title, head.label) if line)
    return [
        View(corner, columns, tuple(row for row in table.extra if any(row.cells[i] for i in columns)))
        for corner, columns in groups.items()
    ]
