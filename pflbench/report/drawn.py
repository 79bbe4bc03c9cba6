"""The one table whose stored runs a curve shows, whatever suite or selection asks for it. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pflbench.commands import command
from pflbench.errors import UsageError, unknown
from pflbench.names import is_reference, split_reference, without_folder
from pflbench.report.present import extra
from pflbench.report.tables import latest, none_there, with_results
from pflbench.report.unlisted import EXTRA
from pflbench.selection import Selection
from pflbench.store import Store
from pflbench.store.asked import askers
from pflbench.suite.cells import Cell, Expansion, TableRow
from pflbench.suite.own import Own


def one_table(part: Selection, store: Store, own: Own) -> Expansion:
    """The table that is asked for, with the rows that stored runs have of their own below the suite's.

    Where nothing is asked for, the one that was run last; of several profiles the first that has results.

    Raises:
        UsageError: Something is unknown, nothing that is asked for has results, or several tables have them.
    """
    if part in (Selection(), Selection(precision="fp32")) and (last := latest(store, own)) is not None:
        return _with_extra_rows(last, store, part.methods)
    found = [_with_extra_rows(one, store, part.methods) for one in with_results(part.but(methods=None), store, own)]
    _check_methods(found, part.methods)
    done = {run.spec.id for run in store.list() if run.failure is None}
    tables = [_of_methods(table, part.methods) for table in found]
    tables = [table for table in tables if not done.isdisjoint(_runs(table.cells))]
    if not tables:
        made = f"`{command('run', part.options, store.root)} --evaluate-every 10`"
        raise UsageError(str(none_there(part, store, own)).replace(f"`{command('run', results=store.root)}`", made))
    suites = dict.fromkeys(table.part.suites[0] for table in tables)
    if len(suites) > 1:
        raise UsageError(f"Several tables have such runs, name one with --suite: {', '.join(suites)}.")
    return tables[0]


def _check_methods(tables: Sequence[Expansion], methods: Iterable[str]) -> None:
    known = {name for table in tables for row in table.rows for name in _names(row)}
    for name in methods if tables else ():
        if without_folder(name) not in known:
            raise unknown("method", name, known)


def _with_extra_rows(table: Expansion, store: Store, methods: Sequence[str]) -> Expansion:
    stored = [run for run in store.list() if run.failure is None and not run.spec.validation]
    cells = extra(table, stored, askers(store), methods).cells
    rows = dict.fromkeys(cell.row for cell in cells)
    return replace(table, rows=(*table.rows, *rows), cells=(*table.cells, *cells))


def _of_methods(table: Expansion, methods: Iterable[str]) -> Expansion:
    """The rows of these methods or ids; a name that is a row's id is that row, and those that show its runs."""
    wanted = {without_folder(name) for name in methods}
    if not wanted:
        return table
    of_rows = wanted.intersection(row.id for row in table.rows)
    named = {row.id for row in table.rows if row.id in of_rows or _names(row) & (wanted - of_rows)}
    runs = _runs(cell for cell in table.cells if cell.row.id in named)
    cells = tuple(cell for cell in table.cells if cell.row.id in named or runs >= _runs([cell]))
    kept = named.union(cell.row.id for cell in cells)
    return replace(table, rows=tuple(row for row in table.rows if row.id in kept), cells=cells)


def _runs(cells: Iterable[Cell]) -> set[str]:
    return {run.id for cell in cells for run in cell.needed}


def _names(row: TableRow) -> set[str]:
    own = {split_reference(row.method)[1]} if is_reference(row.method) else set[str]()
    return {row.method, *own, *(() if row.id.startswith(EXTRA) else (row.id,))}
