"""A finished table for a terminal: whole, or in a short form that fits a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table as Grid
from rich.text import Text

from pflbench.output import wrapped
from pflbench.report import appendix, text
from pflbench.report.facts import Fact
from pflbench.report.screen import Screen, listed
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.text import View, views
from pflbench.units import count

LINES = 28
"""Lines of a short form; two more stand below a report."""
COLORS = {"✓": "green", "≈": "cyan", "?": "yellow", "✗": "red"}
"""Styles of the verdicts' glyphs."""
_PADDING = 3  # a space on either side of a column and the line between two
_FULL = "--full shows all rows and columns, and what they rest on."


def terminal(table: Table, width: int | None, *, color: bool) -> str:
    """The table as text that ends with a newline. The short form has at most `LINES` lines, and the lists asked for.

    Args:
        table: What to show; `brief` asks for the short form.
        width: Characters per line; default: the terminal's.
        color: Whether to write ANSI styles.
    """
    screen = Screen(width, color=color)
    screen.say(table.title, "bold")
    if table.brief:
        _brief(table, screen)
    else:
        _numbers(table, screen)
        for fact in table.facts:
            screen.say(fact.text, _fact_style(fact))
    for one in appendix.appendices(table):
        screen.say("")
        screen.say(one.title, "bold")
        _list(one, screen)
    return screen.text


def _brief(table: Table, screen: Screen) -> None:
    """Numbers and facts of a short form. Until it fits: less of facts, of columns, and rows of the suite last."""
    said = len(screen.text.splitlines())
    for shown, hidden, most in _smaller(table):
        facts = [(fact, _cut(fact, table, screen.width, most)) for fact in table.facts]
        last = wrapped(" ".join([*(["Not shown: " + ", ".join(hidden) + "."] if hidden else []), _FULL]), screen.width)
        lines = _height(shown, screen) + sum(len(lines) for _, lines in facts) + len(last.splitlines())
        if said + lines <= LINES:
            break
    _numbers(shown, screen)
    for fact, texts in facts:
        for line in texts:
            screen.say(line, _fact_style(fact))
    if table.has_results:
        screen.say(last)


def _fact_style(fact: Fact) -> str:
    return "yellow" if fact.kind in ("mixed", "failed") else ""


def _cut(fact: Fact, table: Table, width: int, most: int) -> list[str]:
    """At most so many lines of a fact, or one more of several on verdicts or progress.

    Of a long one on missing runs the command is left.
    """
    lines = wrapped(fact.text, width).splitlines()
    most += most > 1 and fact.kind in ("verdict", "progress")
    if len(lines) <= most or (fact.kind == "missing" and not (table.fills and table.has_results)):
        return lines
    if fact.kind == "missing":
        return wrapped(f"`{table.fills}` computes the missing runs.", width).splitlines()
    *lines, last = lines[:most]
    return [*lines, f"{last[: width - 2].rsplit(' ', 1)[0] if len(last) > width - 2 else last} …"]


def _smaller(table: Table) -> Iterator[tuple[Table, list[str], int]]:
    """The table and ever smaller parts of it, each with what is left out, and the lines of each fact."""
    yield table, [], 2
    hidden: list[str] = []
    for left in range(len(table.extra) - 1, -1 if table.rows else 0, -1):
        hidden = [f"{count(len(table.extra) - left, 'row')} outside the suite"]
        yield replace(table, extra=table.extra[:left]), hidden, 2
    table = replace(table, extra=table.extra[: 0 if table.rows else 1])
    yield table, hidden, 1
    if any(value and value.spread is not None for row in table.rows for value in row.cells):
        table = replace(table, rows=tuple(_without_spread(row) for row in table.rows))
        hidden = [*hidden, "±"]
        yield table, hidden, 1
    shown, cut = table, hidden
    for left in range(len(table.columns) - 1, 0, -1):
        rows, extra = (
            tuple(replace(row, cells=row.cells[:left]) for row in some) for some in (table.rows, table.extra)
        )
        shown = replace(table, columns=table.columns[:left], rows=rows, extra=extra)
        cut = [*hidden, count(len(table.columns) - left, "column")]
        yield shown, cut, 1
    for left in range(len(shown.rows) - 1, 0, -1):
        yield replace(shown, rows=shown.rows[:left]), [*cut, count(len(shown.rows) - left, "row")], 1


def _without_spread(row: Row) -> Row:
    return replace(row, cells=tuple(value and replace(value, spread=None) for value in row.cells))


def _height(table: Table, screen: Screen) -> int:
    """Lines of the numbers."""
    lines = 0
    for i, view in enumerate(views(table)):
        body = len(table.rows) + (2 + len(view.extra) if view.extra else 0)
        for columns in _blocks(table, view, screen):
            lines += max(len(view.columns[index]) for index in columns) + 1 + body
        lines += bool(i)
    return lines


def _numbers(table: Table, screen: Screen) -> None:
    for i, view in enumerate(views(table)):
        if i:
            screen.say("")
        for columns in _blocks(table, view, screen):
            screen.show(_block(table, view, columns, screen))


class _Column(NamedTuple):
    """Texts of a column, with rows outside of the suite last.

    Attributes:
        above: Lines above it.
        cells: Numbers.
        glyphs: Glyphs of the verdicts; empty texts where a cell has none.
        papers: The paper's numbers in the short form; empty texts where a cell has none.
        styles: Styles of the numbers.
    """

    above: tuple[str, ...]
    cells: tuple[str, ...]
    glyphs: tuple[str, ...]
    papers: tuple[str, ...]
    styles: tuple[str, ...]

    @property
    def widths(self) -> tuple[int, int, int]:
        """Characters of the widest number, of a glyph and of the widest number of the paper, with a blank before."""
        papers = max(map(cell_len, self.papers))
        return max(map(cell_len, self.cells)), 2 * any(self.glyphs), papers and papers + 1

    @property
    def width(self) -> int:
        return max(sum(self.widths), *map(cell_len, self.above))

    def head(self, line: str) -> Text:
        """A line above the column, at its right end."""
        return Text(" " * (self.width - cell_len(line)) + line)

    def cell(self, place: int) -> Text:
        """A cell at the column's right end. Blanks behind a number stay: rich's own justifying drops them."""
        number, glyph, paper = self.widths
        shown = Text(" " * (self.width - number - glyph - paper + number - cell_len(self.cells[place])))
        shown.append(self.cells[place], self.styles[place])
        sign = self.glyphs[place]
        shown.append(f" {sign}".rjust(glyph) if glyph else "", COLORS.get(sign, ""))
        return shown.append(self.papers[place].rjust(paper) if paper else "", "dim")


def _column(table: Table, view: View, index: int, color: bool) -> _Column:
    values = [row.cells[index] for row in (*table.rows, *view.extra)]
    room = max((len(text.marks(value)) for value in values), default=0)
    cells = [text.cell(value, table.decimals, room) for value in values]
    if not color:
        cells = _underlined(values, cells)
    glyphs = tuple(text.glyph(value) if table.compared else "" for value in values)
    beside = table.brief and table.compared
    papers = tuple(
        text.paper_number(value, table.decimals) if beside and value and _held(value) else "" for value in values
    )
    return _Column(view.columns[index], tuple(cells), glyphs, papers, tuple(map(_style, values)))


def _held(value: CellValue) -> bool:
    """True for a number of ours, or a failure, that the paper's stands beside."""
    return value.peak is None and (value.there or value.mean is not None)


def _underlined(values: Sequence[CellValue | None], cells: Sequence[str]) -> list[str]:
    """The cells with `_` around each that leads its column, and blanks around the others; as they are if none does."""
    leads = [value is not None and value.leads for value in values]
    marks = ["_" if one else " " for one in leads] if any(leads) else [""] * len(leads)
    return [f"{mark}{cell}{mark}" for mark, cell in zip(marks, cells, strict=True)]


def _block(table: Table, view: View, columns: Sequence[int], screen: Screen) -> Grid:
    grid = Grid(show_edge=False, pad_edge=False)
    if table.brief:
        grid.add_column(Text(view.corner), no_wrap=True, overflow="ellipsis", max_width=screen.width // 3)
    else:
        grid.add_column(Text(view.corner), overflow="fold")
    shown = {index: _column(table, view, index, screen.color) for index in columns}
    for column in shown.values():
        grid.add_column(Text("\n").join(map(column.head, column.above)), no_wrap=True)
    for place, row in enumerate((*table.rows, *view.extra)):
        if place == len(table.rows):
            grid.add_section()
            grid.add_row(Text(f"({text.OUTSIDE})", "italic"))
        grid.add_row(Text(row.title), *(column.cell(place) for column in shown.values()))
    return grid


def _style(value: CellValue | None) -> str:
    if value and value.best:
        return "bold italic" if value.leads else "bold"
    return "red" if value and value.mean is None and value.failed else ""


def _blocks(table: Table, view: View, screen: Screen) -> Iterator[list[int]]:
    """Blocks of columns that fit into the width: a second block can be read, a number broken over two lines cannot."""
    rows = (*table.rows, *view.extra)
    head = max(cell_len(view.corner), *(cell_len(row.title) for row in rows))
    head = min(max(head, len(text.OUTSIDE) + 2 if view.extra else 0), screen.width // 3)
    block: list[int] = []
    used = head
    for index in view.columns:
        need = _column(table, view, index, screen.color).width + _PADDING
        if block and used + need > screen.width:
            yield block
            block, used = [], head
        block.append(index)
        used += need
    yield block


def _list(of: appendix.Appendix, screen: Screen) -> None:
    """An appendix: its lines in columns, or as sentences where the columns are too wide; then its notes."""
    widths = [max(map(cell_len, fields)) for fields in zip(of.header, *of.lines, strict=True)]
    if of.lines and sum(widths) + 2 * (len(widths) - 1) <= screen.width:
        again = [line[0] if line[0] != before else "" for line, before in zip(of.lines, _firsts(of), strict=False)]
        lines = [(first, *line[1:]) for first, line in zip(again, of.lines, strict=True)]
        screen.show(listed(of.header, lines, appendix.LEFT, of.header))
    else:
        for line in of.lines:
            screen.say(of.sentence(line))
    for note in of.notes:
        screen.say(note)


def _firsts(of: appendix.Appendix) -> list[str]:
    """First fields of the lines, each where the next line stands."""
    return ["", *(line[0] for line in of.lines)]
