"""Numbers, cells and comparisons as text, and which columns stand side by side, the same in all formats."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple, TypeVar

from pflbench.output import one_line, plain
from pflbench.report.statistics import Interval
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.verdict import GLYPHS, Verdict
from pflbench.units import consecutive

NONE = "–"
OUTSIDE = "not in the suite"
MARKS = {"guess": "ᵍ", "tuned": "ᵗ"}
"""Mark behind the number of a cell that rests on values of this source."""
_WIDEST = 16
"""Characters of a group in one line above its columns."""
_ASCII = dict(zip("–—·×†²ᵍᵗ┃│━─╇┼", "--*x*2gt||=-=+", strict=True))
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute."""
_TAG, _ENTITY, _LINK = re.compile("<(?=[A-Za-z/!?])"), re.compile(r"&(?=#?\w+;)"), re.compile(r"\]\(")
_ASCII |= {"✓": "=", "≈": "~", "✗": "x", "±": "+-", "√": "sqrt", "→": "->", "…": "..."}
K = TypeVar("K")
V = TypeVar("V")


def number(mean: float, spread: float | None, decimals: int, sign: str = "") -> str:
    """`45.10 ± 1.20`, or `45.10` without a spread; with the sign "+" `+45.10`."""
    text = f"{round(mean, decimals) + 0.0:{sign}.{decimals}f}"  # no minus in front of a zero
    return text if spread is None else f"{text} ± {spread:.{decimals}f}"


def limits(interval: Interval, decimals: int, sign: str = "+") -> str:
    """`-0.50 to +0.22`."""
    return " to ".join(number(limit, None, decimals, sign) for limit in interval)


def between(interval: Interval | None, decimals: int, sign: str = "+") -> str:
    """` (-0.50 to +0.22)`, to stand behind a number; empty without an interval."""
    return "" if interval is None else f" ({limits(interval, decimals, sign)})"


def marks(value: CellValue | None) -> str:
    """Marks for the sources that a number rests on; empty where there is no number."""
    if value is None or value.mean is None:
        return ""
    return "".join(mark for source, mark in MARKS.items() if source in value.rests_on.values())


def glyph(value: CellValue | None) -> str:
    """Glyph of a cell's verdict; empty where it, or this round of it, was not held against the paper."""
    return "" if value is None or value.verdict is None or value.peak else GLYPHS.get(value.verdict.label, "")


def glyph_meanings(table: Table) -> list[str]:
    """`Beside the paper's number: ✓ agrees, ✗ differs.`: a sentence on the glyphs in a table; empty without any."""
    there = {value.verdict.label for *_, value in table.shown if value.verdict and table.compared}
    meanings = [f"{sign} {label}" for label, sign in GLYPHS.items() if label in there]
    return [f"Beside the paper's number: {', '.join(meanings)}."] if meanings else []


def paper_number(value: CellValue, decimals: int, *, spread: bool = False) -> str:
    """The paper's number as it prints it, with its ± for `spread`; empty without one."""
    if (theirs := value.reference) is None:
        return ""
    behind = f" ± {theirs.spread:.{decimals}f}" if spread and theirs.spread is not None else ""
    return (theirs.text or number(theirs.mean, None, decimals)) + behind


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


def in_markdown(words: str) -> str:
    """The words in one line, none of which Markdown takes for HTML, a link or a picture."""
    return _LINK.sub(r"]\\(", _TAG.sub("&lt;", _ENTITY.sub("&amp;", one_line(words))))


def in_pipes(words: str) -> str:
    """The words as a field of a table in Markdown."""
    return in_markdown(words).replace("|", "\\|")


def field(value: object) -> object:
    """The value as a field of CSV: a text that a spreadsheet would take for a formula has a `'` in front."""
    if not isinstance(value, str):
        return value
    value = plain(value)
    return f"'{value}" if value.startswith(_FORMULA) else value


def in_csv(fields: Sequence[object]) -> str:
    """Fields as CSV, without a line's end."""
    file = io.StringIO()
    if fields:
        csv.writer(file, lineterminator="").writerow(map(field, fields))
    return file.getvalue()


def ranges(numbers: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` → `"0–2, 5"`."""
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in consecutive(numbers))


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Second parts of these pairs by their first: each once, in order."""
    found: dict[K, dict[V, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in found.items()}


def difference_text(difference: float, verdict: Verdict | None, decimals: int) -> str:
    """`-0.14 (-0.50 to +0.22)`: a difference with its interval, as far as there is one.

    It has as many digits as it takes for the limits to say what the verdict says.
    """
    if verdict is None:
        return number(difference, None, decimals, "+")
    digits = verdict.digits(decimals)
    return number(difference, None, digits, "+") + between(verdict.interval, digits)


def fitting(text: str, encoding: str) -> str:
    """The text for an output of this encoding: ASCII stands in for characters that it does not have."""

    def instead(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return "".join(_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end

    codecs.register_error("pflbench.ascii", instead)
    return text.encode(encoding, "pflbench.ascii").decode(encoding)


def in_ascii(text: str) -> str:
    """The text with ASCII in the place of signs of a table; other characters stay."""
    return "".join(_ASCII.get(c, c) for c in text)


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
