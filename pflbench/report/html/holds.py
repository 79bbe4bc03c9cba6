"""The page's first screen: for each paper its claims as they are decided, how much was run, and how cells compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pflbench.report.claim_list import SIGNS, differing, needs, summary, word_of
from pflbench.report.claims import CONTRADICTED, Judged
from pflbench.report.html.data import Sheet, paper_name
from pflbench.report.html.escape import discreet, web_link
from pflbench.report.html.grid import grid_cells
from pflbench.report.verdict import COMPARED, GLYPHS
from pflbench.units import count

_REST = ("not run", CONTRADICTED)


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
