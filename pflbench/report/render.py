"""A finished table as text: for a terminal, as Markdown, as LaTeX, or as CSV in long form."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Literal, NamedTuple

from pflbench.output import plain
from pflbench.report import appendix, text
from pflbench.report.rivals import side_by_side
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.terminal import terminal
from pflbench.report.text import View, in_csv, views
from pflbench.suite.cells import ColumnHead

Format = Literal["terminal", "markdown", "latex", "csv"]

CSV_COLUMNS = (
    *("suite", "profile", "row", "method", "column", "dataset", "partition", "clients", "stage"),
    *("mean", "std", "sem", "n", "reference_mean", "reference_spread"),
    *("rounds", "expected", "failed", "difference", "verdict", "mixed", "runs", "seeds", "rests_on"),
    *("difference_low", "difference_high", "suspect"),
)
BESIDE_COLUMNS = ("beside_mean", "beside_std", "beside_n", "beside_rank", "rank")
"""Behind the others: the other suite's mean, spread and seeds, and the row's ranks there and here."""

PEAK_COLUMNS = ("best_mean", "best_std", "lead_mean", "lead_std", "scored_rounds", "best_round")
"""Behind these: the best round, its lead over the last one, the number of scored rounds, and the median best one."""

VERSUS_COLUMNS = ("versus", "versus_difference", "versus_low", "versus_high", "versus_n", "versus_p")
"""Columns of the CSV about a rival."""

OVER_CLIENTS_COLUMNS = (
    *("clients_scored", "client_mean", "worst_tenth", "worst_tenth_std", "client_std", "client_std_std"),
    *("smallest_tenth", "training_mean", "held_out_mean"),
)
"""Columns of the CSV about the spread over clients."""


def render(
    table: Table,
    format: Format,
    *,
    width: int | None = None,
    color: bool | None = None,
) -> str:
    """The table as text that ends with a newline.

    Args:
        table: What to show.
        format: `csv` is the long form, one line per cell that has a run, done or failed; with a column `read` where
            the table is not read in the rounds that its suite names, with `BESIDE_COLUMNS` where another suite's
            numbers stand beside its own, and with `PEAK_COLUMNS` where the paper's numbers are best rounds.
        width: Characters per line in a terminal; default: the terminal's.
        color: Whether to write ANSI styles; default: if standard output is a terminal. `NO_COLOR` leaves no color.
    """
    if format == "csv":
        return long_form([table])
    table = side_by_side(table)
    if format == "markdown":
        return _markdown(table)
    if format == "latex":
        from pflbench.report.latex import latex

        return latex(table)
    return terminal(table, width, color=sys.stdout.isatty() if color is None else color)


def _markdown(table: Table) -> str:
    parts = [
        f"### {text.in_markdown(table.title)}",
        *(_grid(table, view, "pipe", text.in_pipes, Styles("**{}**", "**_{}_**", "*{}*")) for view in views(table)),
        "\n".join(f"- {text.in_markdown(line)}" for line in table.footer),
    ]
    parts += [part for one in appendix.appendices(table) for part in markdown_appendix(one)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_appendix(of: appendix.Appendix) -> list[str]:
    """Appendix of a table as Markdown: parts with an empty line between them."""
    fields = [list(map(text.in_pipes, line)) for line in of.lines]
    shown = _tabulated(of.header, fields, "pipe") if fields else ""
    parts = [f"#### {text.in_pipes(of.title)}", shown, "\n".join(f"- {text.in_markdown(note)}" for note in of.notes)]
    return [part for part in parts if part]


def html(table: Table) -> str:
    """The table with its title and footer, as a fragment of HTML without styles of its own, for notebooks."""
    table = side_by_side(table)
    parts = [f"<h4>{_escaped(table.title)}</h4>"]
    parts += [
        _grid(table, view, "unsafehtml", _escaped, Styles("<b>{}</b>", "<b><i>{}</i></b>", "<i>{}</i>"))
        for view in views(table)
    ]
    parts += ["<ul>", *(f"<li>{_escaped(line)}</li>" for line in table.footer), "</ul>"] if table.footer else []
    return "\n".join(parts) + "\n"


def _escaped(words: str) -> str:
    return escape(plain(words))


class Styles(NamedTuple):
    """Patterns of a format: for the best cell of a column, for one that leads it with seeds missing, and for words."""

    best: str
    leads: str
    italic: str


def _grid(table: Table, view: View, format: str, escaped: Callable[[str], str], styles: Styles) -> str:
    """The columns of a view with all rows."""

    def row_texts(row: Row) -> list[str]:
        return [escaped(row.title), *(cell_text(row.cells[i]) for i in view.columns)]

    def cell_text(value: CellValue | None) -> str:
        shown = escaped(text.cell(value, table.decimals))
        if value and value.best:
            return (styles.leads if value.leads else styles.best).format(shown)
        return shown

    body = [row_texts(row) for row in table.rows]
    if view.extra:
        body.append([styles.italic.format(f"{text.OUTSIDE}:")] + [""] * len(view.columns))
        body += [row_texts(row) for row in view.extra]
    return _tabulated([view.corner, *(" ".join(above) for above in view.columns.values())], body, format)


def _tabulated(header: Sequence[str], body: Sequence[Sequence[str]], format: str) -> str:
    from tabulate import tabulate  # only Markdown and notebooks need it

    sides = ["right" if i and name not in appendix.LEFT else "left" for i, name in enumerate(header)]
    escaped = _escaped if format == "unsafehtml" else text.in_pipes
    headers = [escaped(name) for name in header]
    return tabulate(body, headers=headers, tablefmt=format, colalign=sides, disable_numparse=True)


def long_form(tables: Sequence[Table]) -> str:
    """The tables as one CSV, whose columns are those that any of them needs."""
    return "".join(f"{in_csv((*line.cell, *line.versus, *line.more))}\n" for line in records(tables))


class Record(NamedTuple):
    """Values of a cell in the long form, in the order of its columns: its own, a rival's, and optional ones."""

    cell: Sequence[object]
    versus: Sequence[object] = ()
    more: Sequence[object] = ()


def records(tables: Sequence[Table]) -> Iterator[Record]:
    """Records of all cells; the first one has the names of the columns. A part is empty where no table needs it."""
    held = any(table.versus for table in tables)
    besides = any(table.beside for table in tables)
    peaks = any(value.peak for table in tables for *_, value in table.shown)
    read = any(table.read_as != "last" for table in tables)
    over = any(table.fairness is not None for table in tables)
    names = (*(["read"] * read), *(BESIDE_COLUMNS * besides), *(PEAK_COLUMNS * peaks), *(OVER_CLIENTS_COLUMNS * over))
    yield Record(CSV_COLUMNS, VERSUS_COLUMNS * held, names)
    for table in tables:
        for row, head, value in table.shown:
            more: Sequence[object] = (*([table.read_as] * read), *(_besides(value) if besides else ()))
            more = (*more, *(_peak(value) if peaks else ()))
            more = (*more, *(_over_clients(table, row, head) if over else ()))
            yield Record(_record(table, row, head, value), versus_values(table, row, head) if held else (), more)


def _besides(value: CellValue) -> Sequence[object]:
    if value.beside is None:
        return (None,) * len(BESIDE_COLUMNS)
    other = value.beside
    return _short(other.value.mean), _short(other.value.std), other.value.done, other.there, other.here


def _peak(value: CellValue) -> Sequence[object]:
    """Values of `PEAK_COLUMNS`."""
    if value.peak is None:
        return (None,) * len(PEAK_COLUMNS)
    best, lead, (few, most), at = value.peak
    leads = (_short(lead.mean), _short(lead.std)) if lead else (None, None)
    return _short(best.mean), _short(best.std), *leads, f"{few}-{most}" if few < most else few, at


def _over_clients(table: Table, row: Row, head: ColumnHead) -> Sequence[object]:
    """Values of `OVER_CLIENTS_COLUMNS`."""
    one = (table.fairness or {}).get((row.id, head.id))
    if one is None:
        return (None,) * len(OVER_CLIENTS_COLUMNS)
    few, most = one.clients
    numbers = one.mean, one.worst, one.worst_std, one.spread, one.spread_std, one.smallest, one.training, one.held_out
    return (f"{few}-{most}" if few < most else few, *map(_short, numbers))


def _record(table: Table, row: Row, head: ColumnHead, value: CellValue) -> Sequence[object]:
    reference, verdict, setting = value.reference, value.verdict, head.column
    low, high = verdict.interval if verdict and verdict.interval else (None, None)
    return (
        *(table.suite, table.profile, row.title, value.method, setting.id, setting.dataset, setting.partition),
        *(setting.clients or None, value.stage, _short(value.mean), _short(value.std), _short(value.sem), value.done),
        *((reference.mean, reference.spread) if reference else (None, None)),
        *(value.rounds, value.expected, value.failed, _short(value.difference)),
        *(verdict.label if verdict else None, value.mixed, " ".join(run for ids in value.runs.values() for run in ids)),
        *(" ".join(map(str, value.seeds)), " ".join(f"{key}={source}" for key, source in value.rests_on.items())),
        *(_short(low), _short(high), verdict.suspect if verdict else None),
    )


def versus_values(table: Table, row: Row, head: ColumnHead) -> Sequence[object]:
    """Values of `VERSUS_COLUMNS`."""
    if table.versus is None:
        return (None,) * len(VERSUS_COLUMNS)
    one = table.versus.cells.get((row.id, head.id))
    if one is None:
        return table.versus.rival, *[None] * (len(VERSUS_COLUMNS) - 1)
    low, high = one.paired.interval or (None, None)
    return table.versus.rival, _short(one.paired.mean), _short(low), _short(high), one.paired.n, _short(one.p)


def _short(value: float | None) -> float | None:
    # Drops what binary arithmetic leaves behind (90.66000000000001), nothing that was measured.
    return None if value is None else round(value, 10)
