"""A finished table as text: for a terminal, as Markdown, as LaTeX, or as CSV in long form."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Callable, Sequence
from html import escape
from typing import Literal

from pflbench.report import text
from pflbench.report.latex import latex
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.terminal import terminal
from pflbench.report.text import View, views
from pflbench.suite.cells import ColumnHead

Format = Literal["terminal", "markdown", "latex", "csv"]

CSV_COLUMNS = (
    *("suite", "profile", "row", "method", "column", "dataset", "partition", "clients", "stage"),
    *("mean", "std", "sem", "n", "reference_mean", "reference_spread"),
    *("rounds", "expected", "failed", "difference", "verdict", "mixed", "runs", "seeds", "rests_on", "spreads"),
)


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
    if format == "latex":
        return latex(table, compare)
    return terminal(table, compare, width, sys.stdout.isatty() if color is None else color)


def _markdown(table: Table, compare: bool) -> str:
    parts = [
        f"### {table.title}",
        *(_grid(table, view, "pipe", _in_pipes, "**{}**", "*{}*") for view in views(table)),
        "\n".join(f"- {line}" for line in table.footer),
    ]
    lines, notes = text.comparison(table) if compare else ([], [])
    if lines:
        fields = [list(map(_in_pipes, line)) for line in lines]
        compared = _tabulated(text.COMPARISON, fields, "pipe")
        parts += ["#### Ours and the paper's", compared, "\n".join(f"- {n}" for n in notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_pipes(words: str) -> str:
    return words.replace("|", "\\|")


def html(table: Table) -> str:
    """The table with its title and footer, as a fragment of HTML without styles of its own, for notebooks."""
    parts = [f"<h4>{escape(table.title)}</h4>"]
    parts += [_grid(table, view, "unsafehtml", escape, "<b>{}</b>", "<i>{}</i>") for view in views(table)]
    parts += ["<ul>", *(f"<li>{escape(line)}</li>" for line in table.footer), "</ul>"] if table.footer else []
    return "\n".join(parts) + "\n"


def _grid(table: Table, view: View, format: str, escaped: Callable[[str], str], bold: str, italic: str) -> str:
    """The columns of a view with all rows; `bold` and `italic` are patterns of the format."""

    def row_texts(row: Row) -> list[str]:
        shown = [(value, escaped(text.cell(value, table.decimals))) for value in (row.cells[i] for i in view.columns)]
        return [escaped(row.title), *(bold.format(cell) if value and value.best else cell for value, cell in shown)]

    body = [row_texts(row) for row in table.rows]
    if view.extra:
        body.append([italic.format(f"{text.OUTSIDE}:")] + [""] * len(view.columns))
        body += [row_texts(row) for row in view.extra]
    return _tabulated([view.corner, *(" ".join(above) for above in view.columns.values())], body, format)


def _tabulated(header: Sequence[str], body: Sequence[Sequence[str]], format: str) -> str:
    from tabulate import tabulate  # only Markdown and notebooks need it

    sides = ["right" if i and name not in text.LEFT else "left" for i, name in enumerate(header)]
    escaped = escape if format == "unsafehtml" else _in_pipes
    headers = [escaped(name) for name in header]
    return tabulate(body, headers=headers, tablefmt=format, colalign=sides, disable_numparse=True)


def _csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(_record(table, *one) for one in table.shown)
    return file.getvalue()


def _record(table: Table, row: Row, head: ColumnHead, value: CellValue) -> Sequence[object]:
    reference, verdict, setting = value.reference, value.verdict, head.column
    ratio = verdict.ratio if verdict and verdict.ratio is not None and math.isfinite(verdict.ratio) else None
    return (
        *(table.suite, table.profile, row.title, value.method, setting.id, setting.dataset, setting.partition),
        *(setting.clients or None, value.stage, _short(value.mean), _short(value.std), _short(value.sem), value.done),
        *((reference.mean, reference.spread) if reference else (None, None)),
        *(value.rounds, value.expected, value.failed, _short(value.difference)),
        *(verdict.word if verdict else None, value.mixed, " ".join(run for ids in value.runs.values() for run in ids)),
        *(" ".join(map(str, value.seeds)), " ".join(f"{key}={source}" for key, source in value.rests_on.items())),
        _short(ratio),
    )


def _short(value: float | None) -> float | None:
    # Drops what binary arithmetic leaves behind (90.66000000000001), nothing that was measured.
    return None if value is None else round(value, 10)
