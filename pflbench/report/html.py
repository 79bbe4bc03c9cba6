"""A finished table as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pflbench.report import text
from pflbench.report.table import Row, Table
from pflbench.report.text import View, views


def html(table: Table) -> str:
    """The table with its title and footer, as a fragment of HTML without styles of its own."""
    parts = [f"<h4>{escape(table.title)}</h4>", *(_grid(table, view) for view in views(table))]
    if table.footer:
        parts += ["<ul>", *(f"<li>{escape(line)}</li>" for line in table.footer), "</ul>"]
    return "\n".join(parts) + "\n"


def _grid(table: Table, view: View) -> str:
    head = _line("th", [escape(view.corner), *("<br>".join(map(escape, above)) for above in view.columns.values())])
    body = [_line("td", _cells(row, table, view)) for row in table.rows]
    if view.extra:
        body.append(_line("td", [f"<i>{text.OUTSIDE}:</i>", *[""] * len(view.columns)]))
        body += [_line("td", _cells(row, table, view)) for row in view.extra]
    return "\n".join(["<table>", "<thead>", head, "</thead>", "<tbody>", *body, "</tbody>", "</table>"])


def _cells(row: Row, table: Table, view: View) -> Iterable[str]:
    yield escape(row.title)
    for value in (row.cells[index] for index in view.columns):
        shown = escape(text.cell(value, table.decimals))
        yield f"<b>{shown}</b>" if value and value.best else shown


def _line(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
