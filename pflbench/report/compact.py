"""Parts of a finished table: a short form for the terminal, and some of its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pflbench.errors import unknown
from pflbench.names import without_folder
from pflbench.report import text
from pflbench.report.table import Row, Table
from pflbench.report.text import grouped, number
from pflbench.report.unlisted import EXTRA


def compact(table: Table, compare: bool = True) -> Table:
    """The table's short form: rows and columns with results, the warnings, and two lines that sum up the footer.

    `compare`: whether a line counts the cells by how near they are to the paper's numbers.
    """
    heads = {head.id for _, head, _ in table.shown}
    columns = [i for i, head in enumerate(table.columns) if head.id in heads]
    rows, extra = _with_results(table.rows, columns), _with_results(table.extra, columns)
    compared = _against(table) if compare else []
    more = ", differences from the paper" if table.compared else ""
    last = f"{_scored((*rows, *extra))} {table.summary} --full shows all rows and columns{more}, and what it rests on."
    return replace(
        table,
        columns=tuple(table.columns[i] for i in columns),
        rows=rows,
        extra=extra,
        footer=(*table.warnings, *compared, *_marks(table), *([table.lacking] if table.lacking else []), last),
        comparable=False,
    )


def only(tables: Iterable[Table], methods: Collection[str]) -> list[Table]:
    """The tables with the rows of these methods alone, those that have any. No methods: the tables as they are.

    `methods`: ids of rows, or names of methods, of one's own as `file.py:Class`. A name that is a row's id is that row,
    with those that show its runs at other stages, even where it is a method of more rows. Raises `UsageError` where no
    row of any of the tables is called so.
    """
    tables, wanted = list(tables), {without_folder(name) for name in methods}
    known = {name for table in tables for row in (*table.rows, *table.extra) for name in _names(row)}
    for name in wanted - known:
        raise unknown("method", name, {other for other in known if not other.startswith(EXTRA)})
    left = [rows_of(table, methods) for table in tables]
    return [table for table in left if table.rows or table.extra]


def rows_of(table: Table, methods: Collection[str]) -> Table:
    """The table with the rows of these methods alone, as `only` takes them; perhaps without any."""
    wanted = {without_folder(name) for name in methods}
    if not wanted:
        return table
    ids = {row.id for row in table.rows}

    def kept(row: Row) -> bool:
        return row.id in wanted or any(name in wanted and name not in ids for name in _names(row))

    shown = {id for row in (*table.rows, *table.extra) if kept(row) for id in _runs(row)}
    rows, extra = (
        [r for r in some if kept(r) or (_runs(r) and _runs(r) <= shown)] for some in (table.rows, table.extra)
    )
    return replace(table, rows=tuple(rows), extra=tuple(extra))


def _runs(row: Row) -> set[str]:
    """The ids of the runs that the row shows."""
    return {id for value in row.cells if value is not None for ids in value.runs.values() for id in ids}


def _names(row: Row) -> set[str]:
    return {row.id, *(value.method for value in row.cells if value is not None)}


def _with_results(rows: Sequence[Row], columns: Sequence[int]) -> tuple[Row, ...]:
    left = (replace(row, cells=tuple(row.cells[i] for i in columns)) for row in rows)
    return tuple(row for row in left if any(value and value.there for value in row.cells))


def _scored(rows: Sequence[Row]) -> str:
    """The unit, and which model each row is scored with if that is not the same for all or does not head a column."""
    by_row = grouped((row.title, value.stage) for row in rows for value in row.cells if value is not None)
    stages = [stage for several in by_row.values() for stage in sorted(several)]
    if not stages or any(len(several) > 1 for several in by_row.values()):  # which then head the columns
        return "Accuracy in %."
    most = max(stages, key=stages.count)
    others = grouped((stage, title) for title, several in by_row.items() for stage in several if stage != most)
    told = [f"{', '.join(titles)} at stage {stage}, " for stage, titles in others.items()]
    return f"Accuracy in %: {''.join(told)}{'all others' if told else 'all'} at stage {most}."


def _against(table: Table) -> list[str]:
    """How many cells have which verdict, and the differences of the first that differ."""
    told: dict[str, list[str]] = {}
    for row, head, value in table.shown if table.compared else ():
        if value.verdict is not None:
            where = told.setdefault(value.verdict.word, [])
            where.append(f"{row.title}, {head.name}: {number(value.difference or 0.0, None, table.decimals, '+')}")
    far = told.get("differs", ())
    first = f" ({'; '.join(far[:3])}{f', and {len(far) - 3} more' if len(far) > 3 else ''})"
    counts = (f"{word} {len(cells)}{first if word == 'differs' else ''}" for word, cells in told.items())
    return [f"Against the paper, cells: {'; '.join(counts)}."] if told else []


def _marks(table: Table) -> list[str]:
    there = {source for *_, value in table.shown if value.mean is not None for source in value.rests_on.values()}
    meanings = {"guess": "a guess", "tuned": "values that we tuned"}
    told = [f"{text.MARKS[source]} on {meaning}" for source, meaning in meanings.items() if source in there]
    lines = [f"Rests {', '.join(told)}."] if told else []
    swings = any(value.swings for *_, value in table.shown)
    return [*lines, *([f"{text.SWINGS}: the last ten scored rounds vary more than the seeds."] if swings else [])]
