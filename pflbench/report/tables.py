"""The suites' tables that have stored runs, with their numbers, and the error where none has. Never imports torch."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, get_args

from pflbench.commands import command
from pflbench.errors import UsageError, unknown
from pflbench.names import is_reference, split_reference, without_folder
from pflbench.report.compact import check_known, names_of, rows_of
from pflbench.report.dataset_table import lay_out_counts
from pflbench.report.extra_rows import EXTRA, extra, extra_rows
from pflbench.report.layout import Filled, fill, finished
from pflbench.report.provenance import instead, outdated
from pflbench.report.reading import Shelf
from pflbench.report.rivals import rival_rows
from pflbench.report.table import Table
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.requests import Request, Requests, requested, requests_of
from pflbench.suite.cells import Cell, Expansion, ReadAs, TableRow
from pflbench.suite.document import ColumnKey, Suite, column_key
from pflbench.suite.expand import expand
from pflbench.suite.load import available, figures, find, load, read, read_toml, requested_table
from pflbench.suite.user_supplied import UserSupplied


class _Stored(NamedTuple):
    """The stored runs, who asked for them, and the columns where they can stand."""

    specs: Mapping[str, RunSpec]
    asked: Requests
    column_keys: frozenset[ColumnKey]

    def requests(self, ids: Iterable[str]) -> frozenset[Request]:
        """All requests of runs with these ids."""
        return frozenset[Request]().union(*(self.asked.get(id, ()) for id in ids))


class Reported(NamedTuple):
    """The finished tables that are asked for. `has_more`: True if other tables have results."""

    tables: list[Table]
    has_more: bool


def reported(
    part: Selection,
    store: Store,
    own: UserSupplied,
    *,
    few: bool = False,
    read_as: ReadAs = "last",
    versus: str | None = None,
    over_clients: bool = False,
) -> Reported:
    """Tables of a report; the methods asked for choose among the rows.

    Args:
        part: Selection of suites, profile, rows and columns.
        store: Where the runs are.
        own: Where user-supplied code and data are looked for.
        few: Only one profile of each suite, unless one is selected; without a selection only the table run last.
        read_as: In which of the scored rounds tables are read.
        versus: The row that all others are held against.
        over_clients: Whether each table says how its cells are spread over clients.

    Raises:
        UsageError: Something is unknown, or nothing that is asked for has results.
    """
    found = asked_for(part, store, own, few=few, read_as=read_as)
    shelf, asked = Shelf(store), requests_of(store)
    filled = [fill(one, shelf, asked, read_as) for one in found.shown]
    check_known(part.methods, names_of_rows(found.counted.values(), filled))
    tables = [counted_rows(one, part.methods) for one in found.counted.values()]
    rivals = rival_rows((one.table for one in filled), versus) if versus else [None] * len(filled)
    tables += [
        finished(one, rival, over_clients=over_clients, methods=part.methods)
        for one, rival in zip(filled, rivals, strict=True)
    ]
    return Reported([table for table in tables if table.rows or table.extra], found.has_more)


def names_of_rows(counted: Iterable[Table], filled: Iterable[Filled]) -> set[str]:
    """Names that select rows of these tables."""
    return set[str]().union(*(names_of(row) for table in counted for row in table.rows), *(one.names for one in filled))


def counted_rows(table: Table, methods: Sequence[str]) -> Table:
    """A table of statistics with these rows alone; no methods: as it is."""
    return replace(table, rows=rows_of(table.rows, (), methods)[0])


class AskedFor(NamedTuple):
    """Content of a report: tables of statistics, and suites whose tables are shown.

    `has_more`: True if other tables have results.
    """

    counted: dict[str, Table]
    shown: list[Expansion]
    has_more: bool


def asked_for(
    part: Selection,
    store: Store,
    own: UserSupplied,
    *,
    few: bool = False,
    read_as: ReadAs = "last",
) -> AskedFor:
    """Content of `reported`, before it is laid out. Raises as it does."""
    if read_as not in get_args(ReadAs):
        raise unknown("reading", read_as, get_args(ReadAs))
    counted = counted_tables(part, store, own)
    trained = part.but(suites=[name for name in part.suites if name not in counted], methods=None, like=None)
    if few and selects_nothing(part):
        return AskedFor(counted, *_first_look(trained, store, own))
    with_runs = with_results(trained, store, own) if trained.suites or not counted else []
    first = {one.path.resolve(): one for one in reversed(with_runs)}
    is_one = few and part.profile is None
    shown = [one for one in with_runs if not is_one or first[one.path.resolve()] is one]
    if not shown and not counted:
        raise none_there(trained, store, own)
    files = {(one.suite, one.path.resolve()) for one in with_runs}
    return AskedFor(counted, _by_path(shown, files), len(shown) < len(with_runs))


def _by_path(tables: Sequence[Expansion], files: Iterable[tuple[str, Path]]) -> list[Expansion]:
    """Tables, each with its file in the title where another file's suite has the same name."""
    shared = [name for name, times in Counter(name for name, _ in files).items() if times > 1]
    return [replace(one, title=f"{one.title} ({one.path})") if one.suite in shared else one for one in tables]


def _first_look(part: Selection, store: Store, own: UserSupplied) -> tuple[list[Expansion], bool]:
    """The table that the user ran last, else the first that has results; and True if runs were made for others.

    Only these few tables are expanded.
    """
    stored = _stored(store)
    requests = stored.requests(stored.specs)
    table = latest(store, own) or _first_of_a_paper(part, store, own, stored)
    if not (table := table or next(iter(with_results(part, store, own)), None)):
        raise none_there(part, store, own)
    files = {(table.suite, table.path.resolve()), *((one.suite, Path(one.file)) for one in requests if one.file)}
    names = {(table.suite, table.profile), *((one.suite, one.profile) for one in requests)}
    return _by_path([table], files), len(files) > 1 or len(names) > 1


def _first_of_a_paper(part: Selection, store: Store, own: UserSupplied, stored: _Stored) -> Expansion | None:
    """The first of the papers' tables with results, if all runs came with pflbench."""
    drawn = figures()
    if all(run.shipped for run in store.list()):
        for suite in (read(name, own) for name in available() if name not in drawn):
            head = suite.document().suite
            tables = _of_any(suite, part, stored) if head.paper != "none" and head.extends is None else []
            if tables:
                return tables[0]
    return None


def selects_nothing(part: Selection) -> bool:
    """True for a selection that leaves every choice open."""
    return part in (Selection(), Selection(precision="fp32"))


def counted_tables(part: Selection, store: Store, own: UserSupplied) -> dict[str, Table]:
    """The tables of those of the suites asked for that are statistics, by what the suite is called."""
    found = {}
    for name in part.suites:
        if "statistics" in read_toml(find(name)):
            table = expand(load(name, own), part.but(rows=None, methods=None, overrides=None, like=None))
            found[name] = lay_out_counts(table, store)
    return found


def with_results(part: Selection, store: Store, own: UserSupplied) -> list[Expansion]:
    """The suites and profiles that are asked for and have a stored run.

    Without suites, all that come with pflbench and have tables, and the user's own that stored runs were made for, as
    far as their files are there; but one that builds on another paper's suite only if it asked for a run itself. A
    single suite that is asked for under a profile need have none. Columns are left out of suites that do not have them,
    unless a suite is named. Without suites, tables with a run of the user come first.

    Raises:
        UsageError: Something is unknown, or a suite that is asked for has no table of runs.
    """
    stored = _stored(store)
    if part.suites:
        suites = [_with_table(read(name, own)) for name in part.suites]
        return [table for suite in suites for table in _of_suite(suite, part, stored)]
    drawn = figures()
    shipped = (read(name, own) for name in available() if name not in drawn)
    found = [t for suite in shipped if suite.document().row for t in _of_any(suite, part, stored)]
    for suite in _own_suites(store, own):
        with contextlib.suppress(UsageError):  # a file that is being written: asked for by name, it says what is wrong
            found += _of_any(suite, part, stored)
    return _users_first(found, store, stored)


def _users_first(found: Iterable[Expansion], store: Store, stored: _Stored) -> list[Expansion]:
    """Tables in order, those with a run of the user first.

    One that builds on another paper's suite is left out unless it requested a run itself.
    """
    trained = {run.spec.id for run in store.list() if not run.shipped}
    asked, of_trained = stored.requests(stored.specs), stored.requests(trained)

    def is_shown(table: Expansion) -> bool:
        other = table.extends is not None and _paper_folder(table.extends) != _paper_folder(table.path)
        return not other or requested(asked, table.suite, table.profile, table.path)

    def is_shipped(table: Expansion) -> bool:
        other = trained.isdisjoint(run.id for run in table.runs)
        return other and not requested(of_trained, table.suite, table.profile, table.path)

    return sorted(filter(is_shown, found), key=is_shipped)


def _paper_folder(suite: Path) -> Path:
    """Folder of a paper's suites, which holds its variants in a folder of their own."""
    folder = suite.resolve().parent
    return folder.parent if folder.name == "variants" else folder


def latest(store: Store, own: UserSupplied) -> Expansion | None:
    """The table that the user's run stands in which was finished last, as it was asked for.

    A run is left out if it does not tell who asked for it, or its suite is gone or has become another one. None if no
    run is left. Trials of a search stand in no table.
    """
    done = (run for run in store.list() if run.failure is None and not run.shipped)
    stored, seen = None, list[object]()
    for run in sorted(done, key=attrgetter("finished"), reverse=True):
        asked = run.provenance.get("asked")
        if not asked or asked in seen:
            continue
        seen.append(asked)
        with contextlib.suppress(UsageError):
            table = requested_table(asked, own)
            stored = stored or _stored(store)
            if table.suite == asked["suite"] and _has_results(table, stored):
                return table
    return None


def _stored(store: Store) -> _Stored:
    specs = {run.spec.id: run.spec for run in store.list()}
    return _Stored(specs, requests_of(store), frozenset(map(column_key, specs.values())))


def every_profile(part: Selection, store: Store, own: UserSupplied) -> list[Expansion]:
    """The tables of the suites asked for by name under each of their profiles, with or without a stored run."""
    return [
        table
        for name in part.suites
        for profile in read(name, own).profiles
        for table in with_results(part.but(suites=[name], profile=profile), store, own)
    ]


def none_there(part: Selection, store: Store, own: UserSupplied) -> UsageError:
    """The error for a selection without results; it names what has results instead."""
    tables = every_profile(part, store, own)
    named = " and ".join(part.suites) or "any suite"
    what = f"{named} under profile {part.profile}" if part.profile else named
    made = instead((run for table in tables for run in table.runs), _finished(store))
    run = command("run", part.options + " --fresh" * store.fresh, store.root)
    other = elsewhere(tables, store, named=bool(part.suites)) or f"`{run}` makes them."
    why = f" for the code and data as they are now; {made}." if made else f". {other}"
    return UsageError(f"No results of {what} in {str(store.root)!r}{why}")


def elsewhere(tables: Sequence[Expansion], store: Store, named: bool = False) -> str:
    """A sentence on the stored runs that stand in none of these tables; empty if there are none.

    `named`: whether the tables are those of suites that were asked for.
    """
    settings = frozenset().union(*(table.settings for table in tables))
    if older := outdated((run for table in tables for run in table.runs), _finished(store)):
        return " ".join(older)
    mine = (run for run in store.list() if not run.shipped)
    others = sum(not run.spec.validation and run.spec.setting() not in settings for run in mine)
    there = "1 run there has" if others == 1 else f"{others} runs there have"
    how = "they are of another suite" if named else "name them with --suite FILE"
    return f"{there} other settings: {how}, --rounds, or --precision." if others else ""


def _finished(store: Store) -> list[RunSpec]:
    return [run.spec for run in store.list() if run.failure is None]


def _own_suites(store: Store, own: UserSupplied) -> Iterator[Suite]:
    """The user's own suites that stored runs were made for, as far as their files are there and can be read."""
    asked = [run.provenance.get("asked") for run in store.list()]
    named = {(file, one["suite"]) for one in asked if one and (file := one.get("file"))}
    later = {one for several in requests_of(store).values() for one in several if one.file}
    named |= {(_from_here(one.file), one.suite) for one in later}
    found: dict[Path, Suite] = {}
    for file, name in sorted(named, key=lambda one: (len(one[0]), one)):
        with contextlib.suppress(UsageError):
            suite = _with_table(read(file, own))
            if suite.name == name:  # else it is another file, now or in this folder
                found.setdefault(suite.path.resolve(), suite)
    yield from found.values()


def _from_here(file: str) -> str:
    """A path relative to the current folder if it lies below; else as it is."""
    return str(Path(file).relative_to(Path.cwd())) if Path(file).is_relative_to(Path.cwd()) else file


def _with_table(suite: Suite) -> Suite:
    if suite.document().statistics is not None:
        raise UsageError(f"{suite.name} has no runs: `pflbench run` counts its datasets, `pflbench report` prints it.")
    if not suite.document().row:
        raise UsageError(
            f"{suite.name} has no table: `pflbench plot {suite.called} -o {suite.name}.png` draws it without runs."
        )
    return suite


def _of_any(suite: Suite, part: Selection, stored: _Stored) -> list[Expansion]:
    """The tables of a suite that is not asked for by name, as far as it has the columns that are asked for."""
    columns = [column.id for column in suite.document().column if column.id in part.columns]
    if part.columns and not columns:
        return []
    try:
        return _of_suite(suite, part.but(columns=columns), stored)
    except UsageError:
        if part.datasets or part.partitions or part.clients:  # which other suites may have
            return []
        raise


def _of_suite(suite: Suite, part: Selection, stored: _Stored) -> list[Expansion]:
    """The tables of one suite that have a stored run."""
    if part.suites and part.profile:
        return [expand(suite, part, profile=part.profile)]
    profiles = (part.profile,) if part.profile else suite.profiles
    # Expanding takes longer than looking where runs could stand.
    there = [one for one in profiles if suite.document(one).column_keys(part.rounds) & stored.column_keys]
    if part.suites and not there:
        there = [profiles[0]]  # expanding it says what is unknown
    tables = [expand(suite, part, profile=one) for one in there]
    return [table for table in tables if _has_results(table, stored)]


def _has_results(table: Expansion, stored: _Stored) -> bool:
    """True if a run of it is stored, or one of an extra row, or one of its rows with another seed."""
    return any(run.id in stored.specs for run in table.runs) or any(
        extra_rows(table, stored.specs.values(), stored.asked)
    )


def one_table(part: Selection, store: Store, own: UserSupplied) -> Expansion:
    """The table that is asked for, with the rows that stored runs have of their own below the suite's.

    Where nothing is asked for, the one that was run last; of several profiles the first that has results.

    Raises:
        UsageError: Something is unknown, nothing that is asked for has results, or several tables have them.
    """
    if selects_nothing(part) and (last := latest(store, own)) is not None:
        return _with_extra_rows(last, store)
    found = [_with_extra_rows(one, store) for one in with_results(part.but(methods=None, like=None), store, own)]
    _check_methods(found, part.methods)
    done = {run.spec.id for run in store.list() if run.failure is None}
    tables = [_of_methods(table, part.methods) for table in found]
    tables = [table for table in tables if not done.isdisjoint(_runs(table.cells))]
    if not tables:
        made = f"`{command('run', part.options, store.root)} --evaluate-every 10`"
        raise UsageError(
            str(none_there(part, store, own)).replace(f"`{command('run', part.options, store.root)}`", made)
        )
    suites = dict.fromkeys(table.part.suites[0] for table in tables)
    if len(suites) > 1:
        raise UsageError(f"Several tables have such runs, name one with --suite: {', '.join(suites)}.")
    return tables[0]


def _check_methods(tables: Sequence[Expansion], methods: Iterable[str]) -> None:
    known = {name for table in tables for row in table.rows for name in _names(row)}
    for name in methods if tables else ():
        if without_folder(name) not in known:
            raise unknown("method", name, known)


def _with_extra_rows(table: Expansion, store: Store) -> Expansion:
    stored = [run for run in store.list() if run.failure is None and not run.spec.validation]
    cells = extra(table, stored, requests_of(store)).cells
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
