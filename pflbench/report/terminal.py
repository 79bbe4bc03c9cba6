"""A finished table for a terminal."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pflbench.report import text
from pflbench.report.table import CellValue, Table
from pflbench.report.text import View, views

_PADDING = 3  # a space on either side of a column and the line between two


def terminal(table: Table, compare: bool, width: int | None, color: bool) -> str:
    """The table as text for so many characters per line (None: the terminal's), with or without ANSI styles."""
    width = width or shutil.get_terminal_size((100, 24)).columns
    # An empty NO_COLOR does not count as set (no-color.org); rich would take it as such.
    no_color = bool(os.environ.get("NO_COLOR"))
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        no_color=no_color,
        color_system=("standard" if color else None),
        force_jupyter=False,
        legacy_windows=False,
        _environ={},  # the result must depend on the arguments alone
    )

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style), soft_wrap=False)

    say(table.title, "bold")
    for i, view in enumerate(views(table)):
        if i:
            say("")
        for columns in _beside(table, view, width):
            console.print(_grid(table, view, columns))
    for entry in table.footer:
        say(entry, "yellow" if entry.startswith(("†", "Failed")) else "")
    lines, notes = text.comparison(table) if compare else ([], [])
    if lines:
        say("")
        say("Ours and the paper's", "bold")
        widths = [max(map(cell_len, fields)) for fields in zip(text.COMPARISON, *lines, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) <= width:
            console.print(_comparison(lines))
        else:
            for line in lines:
                say(f"{line.row}, {line.column}: {line.ours}; paper {line.paper}; {line.difference}; {line.verdict}")
        for note in notes:
            say(note)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


class _Column(NamedTuple):
    """What stands above a column in lines, and in each of its rows, the ones outside of the suite last."""

    above: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(map(cell_len, (*self.above, *self.cells)))

    def right(self, content: str, style: str = "") -> Text:
        """The content at the column's right end. Blanks behind a number stay: rich's own justifying drops them."""
        return Text(" " * (self.width - cell_len(content))).append(content, style)


def _column(table: Table, view: View, index: int) -> _Column:
    values = [row.cells[index] for row in (*table.rows, *view.extra)]
    room = max((len(text.marks(value)) for value in values), default=0)
    return _Column(view.columns[index], tuple(text.cell(value, table.decimals, room) for value in values))


def _grid(table: Table, view: View, columns: Sequence[int]) -> Grid:
    grid = Grid(show_edge=False, pad_edge=False)
    grid.add_column(Text(view.corner), overflow="fold")
    shown = {index: _column(table, view, index) for index in columns}
    for column in shown.values():
        grid.add_column(Text("\n").join(map(column.right, column.above)), no_wrap=True)
    for place, row in enumerate((*table.rows, *view.extra)):
        if place == len(table.rows):
            grid.add_section()
            grid.add_row(Text(f"({text.OUTSIDE})", "italic"))
        cells = (column.right(column.cells[place], _style(row.cells[index])) for index, column in shown.items())
        grid.add_row(Text(row.title), *cells)
    return grid


def _comparison(lines: Sequence[text.Compared]) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in text.COMPARISON:
        grid.add_column(Text(name), justify="left" if name in text.LEFT else "right", no_wrap=True)
    before = ""
    for line in lines:
        grid.add_row(Text("" if line.row == before else line.row), *map(Text, line[1:]))
        before = line.row
    return grid


def _style(value: CellValue | None) -> str:
    return "bold" if value and value.best else "red" if value and value.mean is None and value.failed else ""


def _beside(table: Table, view: View, width: int) -> Iterator[list[int]]:
    """Blocks of columns that fit into the width: a second block can be read, a number broken over two lines cannot."""
    rows = (*table.rows, *view.extra)
    head = max(cell_len(view.corner), *(cell_len(row.title) for row in rows))
    head = min(max(head, len(text.OUTSIDE) + 2 if view.extra else 0), width // 3)
    block: list[int] = []
    used = head
    for index in view.columns:
        need = _column(table, view, index).width + _PADDING
        if block and used + need > width:
            yield block
            block, used = [], head
        block.append(index)
        used += need
    yield block
