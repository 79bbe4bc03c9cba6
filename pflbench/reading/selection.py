"""Which stored runs are asked for, and where in the suites' tables they stand. Never imports torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pflbench.errors import UsageError, unknown
from pflbench.names import is_reference, known, split_reference
from pflbench.report.extra import extra_rows
from pflbench.report.inputs import readable, table_input
from pflbench.report.table import CellInput, TableInput
from pflbench.spec import Precision, RunSpec
from pflbench.store import Store, Stored
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.family import named_by_family
from pflbench.suite.load import available, load
from pflbench.suite.own import Own


@dataclass(frozen=True)
class Wanted:
    """Stored runs to look for. What is empty or None asks for all; the names are those of `pflbench run`.

    With suites, the runs that stand in their tables: under every profile unless one is named, with the suites' seeds
    and rounds unless others are, in fp32 unless another precision is. Without, `methods` are those in the runs' specs.

    `trials`: True for runs that hold a validation share out, as `pflbench tune` makes them, alone; False for none of
    them. `failed`: only runs that failed, or only those that are done.
    """

    suites: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    profile: str | None = None
    rounds: int | None = None
    precision: Precision | None = None
    trials: bool | None = None
    failed: bool | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Wanted()


class Place(NamedTuple):
    """A cell of a suite's table under a profile. `row` is the row's id, or the title of one that the suite lacks.

    `shown`: whether the table reads the run there, as opposed to a trial of its hyperparameters, or another seed.
    `asked`: whether the row is one that is asked for; the run stands in another one that is.
    """

    suite: str
    profile: str
    row: str
    column: str
    cell: CellInput
    shown: bool
    asked: bool = True


class Found(NamedTuple):
    """A stored run and its places: in the order of the suites asked for, and within them of their tables."""

    run: Stored
    places: tuple[Place, ...]


def select(store: Store, wanted: Wanted) -> list[Found]:
    """The runs asked for, sorted by id. Without suites their places are empty, see `placed`.

    Raises:
        UsageError: A name is unknown, or a column or profile is asked for without a suite.
    """
    stored = store.list()
    if wanted.suites:
        return _of_suites(stored, wanted, readable(store))
    if wanted.columns or wanted.profile:
        raise UsageError("A column and a profile are of a suite: name it with --suite.")
    _check_names(stored, wanted)
    return [Found(run, ()) for run in stored if _fits(run, wanted) and _has_names(run.spec, wanted)]


def named(store: Store, beginnings: Iterable[str]) -> list[Stored]:
    """The runs whose ids, of now or of before, begin so, each once. Raises `UsageError` where not exactly one does."""
    stored = store.list()
    found: dict[str, Stored] = {}
    for beginning in beginnings:
        matching = {run.spec.id: run for run in stored if any(id.startswith(beginning) for id in run.ids)}
        if len(matching) != 1:
            many = f"{len(matching)} runs start" if matching else "No run starts"
            which = f" ({', '.join(list(matching)[:8])})" if matching else ""
            listed = "; `pflbench ls runs` lists what is there"
            raise UsageError(f"{many} with {beginning!r} in {str(store.root)!r}{which}{listed}.")
        found |= matching
    return list(found.values())


def placed(found: Sequence[Found]) -> list[Found]:
    """The same runs, each with its places in one suite and profile: the first that asks for it, if there is one.

    A suite that others extend goes before these, a table before a figure, and a suite's own rows before those that runs
    have of their own. Seeds count as asked for.
    """
    tables = [
        (table, suite.document(profile).suite.seeds)
        for precision in sorted({one.run.spec.precision for one in found})
        for suite in _in_order()
        for profile in suite.profiles
        for table in [_table(suite, profile, Wanted(precision=precision), suite.document(profile).suite.seeds[:1])]
    ]
    places: dict[str, tuple[Place, ...]] = {}
    for places_of in (_named, _beside):
        for table, seeds in tables:
            left = [one.run.spec for one in found if one.run.spec.id not in places]
            alike = {spec: spec.model_copy(update={"seed": seeds[0]}) for spec in left}
            there = places_of(table, list(dict.fromkeys(alike.values())))
            for spec, first in alike.items():
                if first in there:
                    shown = spec.seed in seeds
                    places[spec.id] = tuple(p._replace(shown=p.shown and shown) for p in there[first])
    return [one._replace(places=places.get(one.run.spec.id, ())) for one in found]


def other_seeds(store: Store, wanted: Wanted) -> tuple[int, ...]:
    """Seeds of runs that would be asked for too, if the suites asked for their seeds. Empty where seeds are named."""
    if wanted.seeds or not wanted.suites:
        return ()
    stored = store.list()
    every = replace(wanted, seeds=tuple(sorted({run.spec.seed for run in stored})))
    own = {one.run.spec.id for one in select(store, wanted)}
    return tuple(sorted({one.run.spec.seed for one in select(store, every) if one.run.spec.id not in own}))


def has_name(spec: RunSpec, names: Iterable[str]) -> bool:
    """Whether a method is called so: by its id, or as `file.py:Class` with or without folders in front."""
    own = spec.method.name
    return any(own in (name, f"{where.rpartition('/')[2]}:{what}") for name in names for where, what in [_parts(name)])


def _parts(name: str) -> tuple[str, str]:
    return split_reference(name) if is_reference(name) else ("", name)


def _fits(run: Stored, wanted: Wanted) -> bool:
    """Whether a run is one of those that are asked for by what it is, not by its place or names."""
    trial = run.spec.validation > 0
    return (wanted.trials is None or wanted.trials == trial) and (
        wanted.failed is None or wanted.failed == (run.failure is not None)
    )


def _has_names(spec: RunSpec, wanted: Wanted) -> bool:
    return (
        (not wanted.methods or has_name(spec, wanted.methods))
        and (not wanted.datasets or spec.dataset.name in wanted.datasets)
        and (not wanted.partitions or spec.partition.name in wanted.partitions)
        and (not wanted.clients or spec.clients in wanted.clients)
        and (not wanted.seeds or spec.seed in wanted.seeds)
        and wanted.rounds in (None, spec.rounds)
        and wanted.precision in (None, spec.precision)
    )


def _check_names(stored: Sequence[Stored], wanted: Wanted) -> None:
    """Raise `UsageError` for names that neither pflbench nor the store has."""
    for name in wanted.methods:
        if name not in known("methods") and not any(has_name(run.spec, [name]) for run in stored):
            raise unknown("method", name, {*known("methods"), *(run.spec.method.name for run in stored)})
    for name in wanted.datasets:
        there = {*known("datasets"), *(run.spec.dataset.name for run in stored)}
        if name not in there:
            raise unknown("dataset", name, there)
    for name in wanted.partitions:
        there = {*known("partitions"), *(run.spec.partition.name for run in stored)}
        if name not in there:
            raise unknown("partition", name, there)


def _of_suites(stored: Sequence[Stored], wanted: Wanted, own: Own) -> list[Found]:
    runs: dict[str, Stored] = {}
    places: dict[str, list[Place]] = {}
    for name in dict.fromkeys(wanted.suites):
        suite = load(name, own)
        if suite.document().statistics is not None or not suite.document().row:
            raise UsageError(f"{suite.name} has no runs: its numbers come from the datasets alone.")
        mine: dict[str, tuple[Place, ...]] = {}
        for profile in [wanted.profile] if wanted.profile else suite.profiles:
            for one in _in_table(suite, profile, stored, wanted):
                mine.setdefault(one.run.spec.id, one.places)  # profiles may share runs, which count once
                runs[one.run.spec.id] = one.run
        for id, where in mine.items():
            places.setdefault(id, []).extend(where)
    return [Found(runs[id], tuple(places[id])) for id in sorted(runs) if _fits(runs[id], wanted)]


def _in_table(suite: Suite, profile: str, stored: Sequence[Stored], wanted: Wanted) -> list[Found]:
    """Those of the stored runs that stand in a suite's table, with their places there."""
    asked = _table(suite, profile, wanted, wanted.seeds or suite.document(profile).suite.seeds)
    specs = [run.spec for run in stored]
    places = _named(asked, specs)
    places |= _beside(asked, [spec for spec in specs if spec not in places])
    if wanted.methods:
        _check_rows(asked, specs, wanted.methods)
        ids = {row.id for row in asked.rows}
        several = [name for name in wanted.methods if name not in ids]
        asks = {
            spec: [p._replace(asked=p.row in wanted.methods or has_name(spec, several)) for p in where]
            for spec, where in places.items()
        }
        places = {spec: where for spec, where in asks.items() if any(place.asked for place in where)}
    return [Found(run, tuple(places[run.spec])) for run in stored if run.spec in places]


def _table(suite: Suite, profile: str, wanted: Wanted, seeds: Sequence[int]) -> TableInput:
    table = expand(
        suite,
        profile=profile,
        columns=wanted.columns or None,
        datasets=wanted.datasets or None,
        partitions=wanted.partitions or None,
        clients=wanted.clients or None,
        seeds=seeds,
        rounds=wanted.rounds,
        precision=wanted.precision or "fp32",
    )
    # Another suite's runs are not beside this one's rows; where all suites are looked through, they have their places.
    elsewhere = named_by_family(table, suite.own) if wanted.suites else frozenset[str]()
    return table_input(table, elsewhere=elsewhere)


def _check_rows(table: TableInput, stored: Sequence[RunSpec], methods: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is no row of the table, no method of one, and none of a stored run."""
    specs = [*stored, *(run for cell in table.cells.values() for run in cell.asked)]
    for name in methods:
        if name not in {row.id for row in table.rows} and not any(has_name(spec, [name]) for spec in specs):
            own = {cell.asked[0].method.name for cell in table.cells.values()}
            raise unknown("method", name, own | {row.id for row in table.rows})


def _named(table: TableInput, stored: Sequence[RunSpec]) -> dict[RunSpec, list[Place]]:
    """Where those of the stored runs stand that the suite itself names."""
    return _cells(table, table.cells.values(), set(stored), {})


def _beside(table: TableInput, stored: Sequence[RunSpec]) -> dict[RunSpec, list[Place]]:
    """Where the others stand: in rows of their own, or as trials of `pflbench tune` for a row's hyperparameters."""
    extra, _ = extra_rows(table, stored)
    cells = [cell for row in extra for cell in row.cells.values()]
    found = _cells(table, cells, set(stored), {row.id: row.title for row in extra})
    rows: dict[tuple[str, str], list[CellInput]] = {}  # of each method in each setting
    for cell in table.cells.values():
        rows.setdefault((cell.asked[0].method.name, cell.asked[0].setting()), []).append(cell)
    for trial in stored:
        if trial.validation and trial not in found:
            whole = trial.model_copy(update={"validation": 0.0})
            tried = rows.get((trial.method.name, whole.setting()), [])
            if tried:
                found[trial] = [_place(table, cell, {}, shown=False) for cell in tried]
    return found


def _cells(
    table: TableInput, cells: Iterable[CellInput], stored: Collection[RunSpec], titles: Mapping[str, str]
) -> dict[RunSpec, list[Place]]:
    found: dict[RunSpec, list[Place]] = {}
    for cell in cells:
        for run in dict.fromkeys(cell.asked):
            if run in stored:
                found.setdefault(run, []).append(_place(table, cell, titles, shown=not run.validation))
    return found


def _place(table: TableInput, cell: CellInput, titles: Mapping[str, str], *, shown: bool) -> Place:
    (head,) = (head for head in table.columns if head.id == cell.column)
    return Place(table.suite, table.profile, titles.get(cell.row, cell.row), head.column, cell, shown)


def _in_order() -> list[Suite]:
    """Every suite that has runs: first those that extend no other, and tables before figures."""
    suites = [suite for suite in map(load, available()) if suite.document().row]
    suites = [suite for suite in suites if suite.document().statistics is None]
    return sorted(suites, key=lambda s: (s.document().suite.extends is not None, s.document().figure is not None))
