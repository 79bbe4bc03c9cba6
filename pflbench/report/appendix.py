"""The lists below a table: its cells beside the paper's, against a rival's, and how they are spread over clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pflbench.report.rivals import BEST, LAST
from pflbench.report.table import Against, CellValue, Fairness, Row, Table, Versus
from pflbench.report.text import NONE, between, cell, difference_text, glyph, number, paper_number
from pflbench.report.verdict import COMPARED, RULE, SUSPECT, Verdict
from pflbench.suite.cells import ColumnHead
from pflbench.units import count


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


def appendices(table: Table) -> list[Appendix]:
    """Appendices of a table: cells beside the paper's (the short form has them), a rival's, and over their clients."""
    found = [_comparison(table)] if table.compared and not table.brief else []
    found = [one for one in found if one.lines]
    found += [_versus(table, table.versus)] if table.versus else []
    return [*found, *([_over_clients(table, table.fairness)] if table.fairness is not None else [])]


def _comparison(table: Table) -> Appendix:
    """A line per cell with a run, and the footnotes of the verdicts."""
    notes: dict[str, int] = {}
    lines = []
    for row, head, value in replace(table, extra=()).shown:
        paper = paper_number(value, table.decimals, spread=True) or NONE
        difference = (
            NONE if value.difference is None else difference_text(value.difference, value.verdict, table.decimals)
        )
        verdict = _judged(value, value.verdict, notes) if value.verdict else NONE
        name = f"{head.name.removesuffix(f', {LAST}').removesuffix(f' {LAST}')} {BEST}" if value.peak else head.name
        lines.append((row.title, name, cell(value.compared, table.decimals), paper, difference, verdict))
    judged = any(value.verdict and value.verdict.label in COMPARED for *_, value in table.shown)
    said = [f"Verdicts: {RULE}."] if judged else []
    said += [f"[{mark}] {reason}" for reason, mark in notes.items()]
    header = ("Row", "Column", "pflbench", "Paper", "Difference", "Verdict")
    return Appendix("pflbench's and the paper's", "paper", header, ("", "paper", "", ""), lines, said)


def _versus(table: Table, versus: Versus) -> Appendix:
    """A line per cell that was held against the rival's, and what they say."""
    lines = list[tuple[str, ...]]()
    for row, head, one in _held(table, versus):
        paired, decimals = one.paired, table.decimals
        shown = number(paired.mean, None, decimals, "+") + between(paired.interval, decimals)
        p = NONE if one.p is None else f"{one.p:.3f}"
        lines.append((row.title, head.name, shown, count(paired.n, "seed"), p))
    header = ("Row", "Column", "Difference", "Over", "p")
    words = ("", "over", "p")
    return Appendix(f"Against {versus.rival}", "versus", header, words, lines, versus_notes(table, versus))


def _held(table: Table, versus: Versus) -> Iterator[tuple[Row, ColumnHead, Against]]:
    """The cells that were held against the rival's."""
    for row, head, _ in table.shown:
        if (one := versus.cells.get((row.id, head.id))) is not None:
            yield row, head, one


def versus_notes(table: Table, versus: Versus) -> list[str]:
    """Notes on the lines against a rival."""
    there = [one.paired.n for *_, one in _held(table, versus)]
    said = [] if there else [f"No row has a seed in common with {versus.rival}."]
    said += _other_stages(table, versus)
    if any(n > 1 for n in there):
        said += [
            "Seed by seed: runs of one seed share federation, initial model, cohorts and minibatches. In parentheses "
            "Student's 95 % interval; p of the paired t-test, adjusted by Holm over the column.",
        ]
    if 1 in there:
        said.append("A difference of one shared seed has no interval and no test.")
    return said


def _other_stages(table: Table, versus: Versus) -> list[str]:
    """A note on rows whose models are of another stage than the rival's."""
    rivals = {head.id: value.stage for row, head, value in table.shown if row.title == versus.rival}
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row, head, value in table.shown:
        if (row.id, head.id) in versus.cells and value.stage != rivals.get(head.id, value.stage):
            found.setdefault((value.stage, rivals[head.id]), {})[row.title] = None
    return [
        f"Not alike: {', '.join(titles)} at stage {stage}, {versus.rival} at stage {other}."
        for (stage, other), titles in found.items()
    ]


def _judged(value: CellValue, verdict: Verdict, notes: dict[str, int]) -> str:
    """`✗ differs [1], reference suspect [2]`. `notes`: the numbers of the reasons so far."""

    def footnote(reason: str) -> str:
        return f" [{notes.setdefault(reason, len(notes) + 1)}]"

    said = f"{glyph(value)} {verdict.label}{footnote(verdict.reason)}".lstrip()
    for word, why in ((SUSPECT, verdict.suspect), ("nearer at our best round", verdict.at_best)):
        if why is not None:
            said += f", {word}{footnote(why)}"
    return said


def _over_clients(table: Table, found: Mapping[tuple[str, str], Fairness]) -> Appendix:
    """A line per cell whose clients were scored one by one."""
    lines = [
        (row.title, head.name, *_of_clients(one, table.decimals))
        for row, head, _ in table.shown
        if (one := found.get((row.id, head.id))) is not None
    ]
    header = ("Row", "Column", "Clients", "Mean", "Worst 10 %", "Deviation", "Smallest 10 %", "Training", "Held-out")
    words = ("clients", "mean", "worst 10 %", "deviation", "smallest 10 %", "training", "held-out")
    notes = [
        "Each number is the mean over seeds of what one seed's clients say, each client counting the same. Worst 10 %: "
        "the mean of the tenth of the clients with the lowest accuracy. Deviation: the standard deviation over "
        "clients. Smallest 10 %: the tenth with the fewest support images, where the runs say how many a client has. "
        "Training and held-out clients: where both are scored."
    ]
    if any(one.worst_std is not None for one in found.values()):
        notes.append("±: the standard deviation over seeds (ddof = 1), no interval.")
    none = ["No cell's clients were scored one by one."]
    kept = [i for i in range(len(header)) if i < 2 or any(line[i] != NONE for line in lines)]
    return Appendix(
        "Over clients",
        "clients",
        [header[i] for i in kept],
        [words[i - 2] for i in kept[2:]],
        [tuple(line[i] for i in kept) for line in lines],
        notes if lines else none,
    )


def _of_clients(one: Fairness, decimals: int) -> tuple[str, ...]:
    """The fields of a line behind its row and column."""

    def text(value: float | None, std: float | None = None) -> str:
        return NONE if value is None else number(value, std, decimals)

    few, most = one.clients
    return (
        f"{few}–{most}" if few < most else f"{few}",
        text(one.mean),
        text(one.worst, one.worst_std),
        text(one.spread, one.spread_std),
        *(text(value) for value in (one.smallest, one.training, one.held_out)),
    )
