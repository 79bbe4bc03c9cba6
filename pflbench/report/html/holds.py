"""The page's first screen: for each paper its claims as they are decided, how much was run, and how cells compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pflbench.report.claim_list import SIGNS, differing, needs, summary, word_of
from pflbench.report.claims import NOT_IN_THE_PAPER, Judged
from pflbench.report.figures.places import spread_out
from pflbench.report.html.data import Sheet, paper_name
from pflbench.report.html.escape import discreet, web_link
from pflbench.report.html.grid import grid_cells
from pflbench.report.table import CellValue
from pflbench.report.text import ranges
from pflbench.report.verdict import COMPARED, GLYPHS
from pflbench.units import count

_REST = ("not run", NOT_IN_THE_PAPER)
FEWEST = 3
"""Rows with a number on both sides below which two tables are not drawn beside each other."""
GAP = 14.0
"""Least distance of two labels of a slope chart, in its own units."""


class ClaimLine(NamedTuple):
    """A claim as one line.

    It has a word with a sign, a text and its source, the word on equal terms, the runs that it needs, and those of its
    cells that differ from the paper's numbers.
    """

    sign: str
    word: str
    text: str
    source: str
    equal: str
    needs: str
    differing: str


class Square(NamedTuple):
    """A compared cell in a strip: its sign, its verdict as a class name, and where it stands."""

    sign: str
    verdict: str
    place: str


class Coverage(NamedTuple):
    """Cells of a paper's own tables: with all seeds, with some, and in all."""

    whole: int
    partly: int
    cells: int

    def share(self, cells: int) -> str:
        """Width of so many cells, in percent."""
        return f"{100 * cells / max(1, self.cells):.2f}"


class SlopeLine(NamedTuple):
    """A row of a slope chart: its ends on both sides, where its labels stand, and whether it is the paper's own."""

    title: str
    left: float
    right: float
    y: tuple[float, float]
    labels: tuple[float, float]
    own: bool


class Slope(NamedTuple):
    """Mean accuracies of the same rows and seeds under the paper's protocol and on equal terms, in one column."""

    title: str
    profile: str
    tables: tuple[tuple[str, str], ...]
    """Keys and titles of the two tables."""
    seeds: str
    height: float
    lines: tuple[SlopeLine, ...]


@dataclass(frozen=True)
class Card:
    """A paper.

    Attributes:
        title: Its short name.
        paper: Its name on arXiv; `link`: where it is.
        found: A sentence on its claims; empty without any.
        begun: Claims that stored runs decide or begin to decide, the decided ones first.
        rest: All others.
        coverage: Of its own tables, and of others that decide claims, under its whole protocol.
        covered: The same in a sentence; empty without cells.
        squares: Their compared cells.
        verdicts: How many cells have which verdict, in words.
        slopes: Its tables beside those on equal terms.
        tables: Keys and titles of its tables on the page.
    """

    title: str
    paper: str
    link: str | None
    found: str
    begun: tuple[ClaimLine, ...]
    rest: tuple[ClaimLine, ...]
    coverage: Coverage
    covered: str
    squares: tuple[Square, ...]
    verdicts: str
    slopes: tuple[Slope, ...]
    tables: tuple[tuple[str, str], ...]


def cards(sheets: Sequence[Sheet], judged: Mapping[str, Sequence[Judged]]) -> list[Card]:
    """A card for each paper that has a claim or a table of its own on the page; `judged`: claims by paper."""
    papers: dict[str, list[Sheet]] = {}
    for sheet in sheets:
        if sheet.paper != "none" and sheet.fills:
            papers.setdefault(sheet.paper, []).append(sheet)
    made = []
    for paper, some in papers.items():
        claims = judged.get(paper, ())
        deciding = {one.claim.suite for one in claims}
        own = [sheet for sheet in some if sheet.is_main or sheet.table.suite in deciding]
        main = [sheet for sheet in own if sheet.table.profile == "paper"]
        if claims or main:
            made.append(_card(paper, some, main, claims))
    return made


def _card(paper: str, sheets: Sequence[Sheet], main: Sequence[Sheet], claims: Sequence[Judged]) -> Card:
    coverage = _coverage(main)
    squares = tuple(square for sheet in main for square in _squares(sheet))
    words = Counter(square.verdict for square in squares)
    verdicts = ", ".join(f"{words[one]} {GLYPHS[one]} {one}" for one in COMPARED if words[one])
    order = list(SIGNS)
    listed = sorted(claims, key=lambda one: order.index(one.word))
    return Card(
        title=paper_name(sheets),
        paper=paper,
        link=web_link(paper),
        found=f"{summary(claims)}." if claims else "",
        begun=tuple(_line(one) for one in listed if one.word not in _REST),
        rest=tuple(_line(one) for one in listed if one.word in _REST),
        coverage=coverage,
        covered=_covered(coverage),
        squares=squares,
        verdicts=f"{count(len(squares), 'cell')} compared with the paper: {verdicts}" if squares else "",
        slopes=tuple(_slopes(sheets, paper_name(sheets))),
        tables=tuple((sheet.key, discreet(sheet.table.title)) for sheet in main),
    )


def _covered(coverage: Coverage) -> str:
    if not coverage.cells:
        return ""
    partly = f", {coverage.partly} some" if coverage.partly else ""
    return f"Of {coverage.cells} cells of its tables {coverage.whole} have all their seeds{partly}."


def _line(one: Judged) -> ClaimLine:
    equal = one.equal if one.equal and one.equal.word != "not run" else None
    return ClaimLine(
        SIGNS[one.word],
        word_of(one.paper, one.word),
        one.claim.text,
        one.claim.source,
        f"{SIGNS[equal.word]} {word_of(equal)}" if equal else "",
        needs(one.paper) if one.paper.open and not one.contrary else "",
        differing(one.paper),
    )


def _coverage(main: Iterable[Sheet]) -> Coverage:
    cells = [
        value
        for sheet in main
        for place, value in sheet.fills["last"].grid.items()
        if value.expected and place in sheet.fills["last"].table.places
    ]
    whole = sum(value.complete for value in cells)
    return Coverage(whole, sum(value.done > 0 and not value.complete for value in cells), len(cells))


def _squares(sheet: Sheet) -> Iterator[Square]:
    table = sheet.table
    rows = (*table.rows, *table.extra)
    for place in grid_cells(table):
        verdict = place.value.verdict
        if verdict and verdict.label in GLYPHS:
            where = f"{table.title}: {rows[place.row].title}, {table.columns[place.column].name}"
            yield Square(GLYPHS[verdict.label], verdict.label, discreet(f"{where}: {verdict.label}"))


def _slopes(sheets: Sequence[Sheet], name: str) -> Iterator[Slope]:
    """Each column in which a table and the one on equal terms share enough rows, over the seeds that both have.

    `name`: the paper's, with which the titles of its own methods begin.
    """
    for sheet in sheets:
        fair = next((s for s in sheets if s.beside == sheet.path and s.table.profile == sheet.table.profile), None)
        if sheet.path is None or fair is None:
            continue
        for column, head in enumerate(fair.table.columns):
            cells = {row.title: value for row in fair.table.rows if (value := row.cells[column]) is not None}
            both = {title: (one, one.beside) for title, one in cells.items() if one.beside and one.beside.seeds}
            if len(both) >= FEWEST:
                found = {
                    title: (_mean(beside.value, beside.seeds), _mean(one, beside.seeds))
                    for title, (one, beside) in both.items()
                }
                (seeds,) = {beside.seeds for _, beside in both.values()}
                yield Slope(
                    discreet(f"{sheet.name}, {head.name}"),
                    sheet.table.profile,
                    ((sheet.key, "the paper's protocol"), (fair.key, "equal terms")),
                    f"{ranges(seeds)} (n = {len(seeds)})",
                    *_drawn(found, name),
                )


def _mean(value: CellValue, seeds: Iterable[int]) -> float:
    return float(np.mean([value.seeds[seed] for seed in seeds]))


def _drawn(found: Mapping[str, tuple[float, float]], name: str) -> tuple[float, tuple[SlopeLine, ...]]:
    """Height of a slope chart, and its lines, by the rows' titles."""
    height = GAP * (1.5 * len(found) + 3)
    values = [value for pair in found.values() for value in pair]
    low, high = min(values), max(values)

    def y(value: float) -> float:
        return round(height - GAP - (value - low) / ((high - low) or 1) * (height - 3 * GAP), 1)

    left, right = (spread_out([y(pair[side]) for pair in found.values()], GAP, 0.0, height, height) for side in (0, 1))
    assert left is not None and right is not None  # the height has room for all
    return height, tuple(
        SlopeLine(
            discreet(title),
            here,
            there,
            (y(here), y(there)),
            (round(left[i], 1), round(right[i], 1)),
            title.startswith(name),
        )
        for i, (title, (here, there)) in enumerate(found.items())
    )
