"""A finished table as text: for a terminal, as Markdown, or as CSV in long form."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text
from tabulate import tabulate

from pflbench.report import text
from pflbench.report.table import CellValue, ColumnHead, Row, Table

Format = Literal["terminal", "markdown", "csv"]

OUTSIDE = "not in the suite"
CSV_COLUMNS = (
    *("suite", "profile", "row", "method", "column", "dataset", "partition", "clients", "stage"),
    *("mean", "std", "sem", "n", "reference_mean", "reference_spread"),
    *("rounds", "expected", "failed", "difference", "verdict", "mixed", "runs"),
)
_PADDING = 3  # a space on either side of a column and the line between two


def render(
    table: Table, format: Format, compare: bool = True, *, width: int | None = None, color: bool | None = None
) -> str:
    """The table as text that ends with a newline.

    Args:
        table: What to show.
        format: `csv` is the long form, one line per cell that has a run, done or failed.
        compare: Whether the paper's numbers, differences and verdicts follow the table (always in the CSV).
        width: Characters per line in a terminal; default: the terminal's.
        color: Whether to write ANSI styles; default: if standard output is a terminal. `NO_COLOR` leaves only bold.
    """
    if format == "csv":
        return _csv(table)
    if format == "markdown":
        return _markdown(table, compare)
    return _terminal(table, compare, width, sys.stdout.isatty() if color is None else color)


def _terminal(table: Table, compare: bool, width: int | None, color: bool) -> str:
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
    for columns in _blocks(table, width):
        console.print(_grid(table, columns))
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


def _grid(table: Table, columns: Sequence[int]) -> Grid:
    grid = Grid(show_edge=False, pad_edge=False)
    grid.add_column("", overflow="fold")
    for index in columns:
        grid.add_column(Text(_header(table.columns[index])), justify="right", no_wrap=True)
    sections = [(table.rows, "")] + ([(table.extra, f"({OUTSIDE})")] if table.extra else [])
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


def _header(column: ColumnHead) -> str:
    return f"{column.group}\n{column.title}" if column.group else column.title


def _styled(value: CellValue | None, decimals: int) -> Text:
    style = "bold" if value and value.best else "red" if value and value.mean is None and value.failed else ""
    return Text(text.cell(value, decimals), style)


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Columns that fit side by side: a number broken over two lines cannot be read, a second table can."""
    rows = (*table.rows, *table.extra)
    head = max((cell_len(row.title) for row in rows), default=0)
    head = min(max(head, len(OUTSIDE) + 2 if table.extra else 0), width // 3)
    block: list[int] = []
    used = head
    for index, column in enumerate(table.columns):
        texts = [*_header(column).split("\n"), *(text.cell(row.cells[index], table.decimals) for row in rows)]
        need = max(map(cell_len, texts)) + _PADDING
        if block and used + need > width:
            yield block
            block, used = [], head
        block.append(index)
        used += need
    yield block


def _markdown(table: Table, compare: bool) -> str:
    def row_texts(row: Row) -> list[str]:
        texts = [row.title]
        for value in row.cells:
            shown = text.cell(value, table.decimals)
            texts.append(f"**{shown}**" if value and value.best else shown)
        return texts

    body = [row_texts(row) for row in table.rows]
    if table.extra:
        body.append([f"*{OUTSIDE}:*"] + [""] * len(table.columns))
        body += [row_texts(row) for row in table.extra]
    parts = [
        f"### {table.title}",
        _pipes(["", *(column.name for column in table.columns)], body),
        "\n".join(f"- {line}" for line in table.footer),
    ]
    lines, notes = text.comparison(table) if compare else ([], [])
    if lines:
        parts += ["#### Ours and the paper's", _pipes(text.COMPARISON, lines), "\n".join(f"- {n}" for n in notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _pipes(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [[field.replace("|", "\\|") for field in row] for row in body]
    sides = ["left" if name in text.LEFT else "right" for name in header]
    return tabulate(rows, headers=list(header), tablefmt="pipe", colalign=sides, disable_numparse=True)


def _csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in (*table.rows, *table.extra):
        for column, value in zip(table.columns, row.cells, strict=True):
            if value is not None and (value.done or value.failed):
                writer.writerow(_record(table, row, column, value))
    return file.getvalue()


def _record(table: Table, row: Row, column: ColumnHead, value: CellValue) -> Sequence[object]:
    reference, verdict = value.reference, value.verdict
    return (
        *(table.suite, table.profile, row.title, value.method, column.id, column.dataset, column.partition),
        *(column.clients, value.stage, _short(value.mean), _short(value.std), _short(value.sem), value.done),
        *((reference.mean, reference.spread) if reference else (None, None)),
        *(value.rounds, value.expected, value.failed, _short(value.difference)),
        *(verdict.label if verdict else None, value.mixed, " ".join(value.runs)),
    )


def _short(value: float | None) -> float | None:
    # Drops what binary arithmetic leaves behind (90.66000000000001), nothing that was measured.
    return None if value is None else round(value, 10)
