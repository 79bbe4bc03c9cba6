"""A finished table for a terminal."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pflbench.report import text
from pflbench.report.table import CellValue, Table
from pflbench.report.views import View, views

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


def _grid(table: Table, view: View, columns: Sequence[int]) -> Grid:
    grid = Grid(show_edge=False, pad_edge=False)
    grid.add_column(Text(view.corner), overflow="fold")
    for index in columns:
        grid.add_column(Text("\n".join(view.columns[index])), justify="right", no_wrap=True)
    sections = [(table.rows, "")] + ([(view.extra, f"({text.OUTSIDE})")] if view.extra else [])
    for rows, title in sections:
        if title:
            grid.add_section()
            grid.add_row(Text(title, "italic"))
        for row in rows:
            grid.add_row(Text(row.title), *(_styled(row.cells[index], table.decimals) for index in columns))
    return grid


def _comparison(lines: Sequence[text.Line]) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in text.COMPARISON:
        grid.add_column(Text(name), justify="left" if name in text.LEFT else "right", no_wrap=True)
    before = ""
    for line in lines:
        grid.add_row(Text("" if line.row == before else line.row), *map(Text, line[1:]))
        before = line.row
    return grid


def _styled(value: CellValue | None, decimals: int) -> Text:
    style = "bold" if value and value.best else "red" if value and value.mean is None and value.failed else ""
    return Text(text.cell(value, decimals), style)


def _beside(table: Table, view: View, width: int) -> Iterator[list[int]]:
    """Columns that fit side by side: a number broken over two lines cannot be read, a second table can."""
    rows = (*table.rows, *view.extra)
    head = max(cell_len(view.corner), *(cell_len(row.title) for row in rows))
    head = min(max(head, len(text.OUTSIDE) + 2 if view.extra else 0), width // 3)
    block: list[int] = []
    used = head
    for index, above in view.columns.items():
        texts = [*above, *(text.cell(row.cells[index], table.decimals) for row in rows)]
        need = max(map(cell_len, texts)) + _PADDING
        if block and used + need > width:
            yield block
            block, used = [], head
        block.append(index)
        used += need
    yield block
