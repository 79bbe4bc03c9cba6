"""Select stored runs, and find the cells of the suites' tables that show them. Never imports torch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import UsageError, unknown
from pflbench.names import code, is_reference, known, split_reference, without_folder
from pflbench.report.extra_rows import extra_rows
from pflbench.report.reading import readable
from pflbench.selection import Selection, Wanted
from pflbench.spec import RunSpec
from pflbench.store import Store, Stored
from pflbench.store.requests import Requests, requests_of
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.document import Suite, column_key
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
from pflbench.suite.strict import all_known
from pflbench.suite.user_supplied import UserSupplied


class Location(NamedTuple):
    """A cell of a suite's table under a profile. `row` is the row's id, or the title of one that the suite lacks.

    `shown`: whether the table reads the run there, as opposed to a trial of its hyperparameters, or another seed.
    `asked`: whether the row is one that is asked for; the run stands in another one that is.
    """

    suite: str
    profile: str
    row: str
    column: str
    cell: Cell
    shown: bool
    asked: bool = True


class LocatedRun(NamedTuple):
    """A stored run and its places: in the order of the suites asked for, and within them of their tables."""

    run: Stored
    places: tuple[Location, ...]


def to_remove(store: Store, beginnings: Sequence[str], wanted: Wanted) -> list[Stored]:
    """The runs that are named by the beginnings of their ids, or by what they are; at least one.

    Raises:
        UsageError: Nothing or both is asked for, something is unknown, or there is no such run.
    """
    if beginnings and not wanted.everything:
        raise UsageError("Name runs by their ids or by options, not both.")
    if not beginnings and wanted.everything:
        raise UsageError("Which runs? Name them by their ids or by options; for all of them, remove the folder.")
    found = named(store, beginnings) if beginnings else [one.run for one in select_runs(store, wanted)]
    if not found:
        raise UsageError(f"No run in {str(store.root)!r} matches. `pflbench ls runs` lists the stored runs.")
    return found


def select_runs(store: Store, wanted: Wanted) -> list[LocatedRun]:
    """The runs asked for, sorted by id. Without suites their places are empty, see `placed`.

    Raises:
        UsageError: A name is unknown, or a column or profile is asked for without a suite.
    """
    stored = store.list()
    if wanted.suites:
        return _of_suites(stored, wanted, readable(store), requests_of(store))
    if wanted.columns or wanted.profile:
        raise UsageError("A column and a profile are of a suite: name it with --suite.")
    for name in wanted.methods:
        if name not in known("methods") and not any(_is_called(run.spec, _versioned(name)[0], "") for run in stored):
            raise unknown("method", name, {*known("methods"), *(run.spec.method.name for run in stored)})
    all_known("dataset", wanted.datasets, {*known("datasets"), *(run.spec.dataset.name for run in stored)})
    all_known("partition", wanted.partitions, {*known("partitions"), *(run.spec.partition.name for run in stored)})
    ids = {run.spec.id for run in stored}
    return [LocatedRun(run, ()) for run in stored if _has_names(run.spec, wanted) and _fits(run, wanted, ids)]


def named(store: Store, beginnings: Iterable[str]) -> list[Stored]:
    """The runs whose ids begin so, each once. Raises `UsageError` where not exactly one does."""
    stored = store.list()
    found: dict[str, Stored] = {}
    for beginning in beginnings:
        matching = {run.spec.id: run for run in stored if run.spec.id.startswith(beginning)}
        if len(matching) != 1:
            came = sum(run.shipped for run in matching.values())
            there = len(matching) - came
            many = (
                f"{there} run{'' if there == 1 else 's'} start{'s' if there == 1 else ''}" if there else "No run starts"
            )
            along = f" and {came} among the runs that came with pflbench" if came else ""
            which = f" ({', '.join(list(matching)[:8])})" if matching else ""
            listed = "; `pflbench ls runs` lists what is there"
            raise UsageError(f"{many} with {beginning!r} in {str(store.root)!r}{along}{which}{listed}.")
        found |= matching
    return list(found.values())


def placed(found: Sequence[LocatedRun], store: Store) -> list[LocatedRun]:
    """The same runs, each with its places in one suite and profile: the first that asks for it, if there is one.

    A suite that others extend goes before these, a table before a figure, and a suite's own rows before those that runs
    have of their own. Seeds count as asked for.
    """
    left = [one.run.spec for one in found]
    tables = list(_in_first_seed(left))
    asked = requests_of(store)
    places: dict[str, tuple[Location, ...]] = {}
    for named, (table, seeds) in product((True, False), tables):
        alike = {run: run.model_copy(update={"seed": table.seeds[0]}) for run in left}
        of_first = {first.id: asked[run.id] for run, first in alike.items() if run.id in asked}
        there = _places(table, list(dict.fromkeys(alike.values())), None if named else of_first)
        for run, first in alike.items():
            if first in there:
                mine = there[first]
                places[run.id] = tuple(one._replace(shown=one.shown and run.seed in seeds[one.column]) for one in mine)
        left = [run for run in left if run.id not in places]
    return [one._replace(places=places.get(one.run.spec.id, ())) for one in found]


def _in_first_seed(runs: Sequence[RunSpec]) -> Iterator[tuple[Expansion, Mapping[str, Sequence[int]]]]:
    """Every table that may show these runs, with its first seed alone, which stands for the others.

    With each column's seeds; a table for each precision.
    """
    keys = set(map(column_key, runs))
    suites = [suite for suite in map(load, available()) if suite.document().row]
    suites.sort(key=lambda suite: (bool(suite.document().suite.extends), suite.document().figure is not None))
    for precision, suite in product(sorted({run.precision for run in runs}), suites):
        for profile in suite.profiles:
            document = suite.document(profile)
            if document.column_keys() & keys:
                seeds = {column.id: column.seeds or () for column in document.column}
                yield _table(suite, profile, Wanted(precision=precision), document.suite.seeds[:1]), seeds


def seeds_beyond(store: Store, wanted: Wanted) -> tuple[int, ...]:
    """Seeds of runs that would be asked for too, if the suites asked for their seeds. Empty where seeds are named."""
    if wanted.seeds or not wanted.suites:
        return ()
    stored = store.list()
    every = replace(wanted, seeds=tuple(sorted({run.spec.seed for run in stored})))
    own = {one.run.spec.id for one in select_runs(store, wanted)}
    return tuple(sorted({one.run.spec.seed for one in select_runs(store, every) if one.run.spec.id not in own}))


def _has_name(spec: RunSpec, names: Iterable[str]) -> bool:
    """True if a run's method has one of these names, see `Wanted`. Raises `UsageError` for a path without a file."""
    return any(_is_called(spec, *_versioned(name)) for name in names)


def is_trial(spec: RunSpec, ids: Collection[str]) -> bool:
    """True for a trial of `pflbench tune`; `ids`: of all stored runs.

    Runs that hold a validation share out are also made where a row's clients choose their hyperparameters on it. Then
    the run that is trained on all is stored as well.
    """
    return spec.validation > 0 and spec.model_copy(update={"validation": 0.0}).id not in ids


def _versioned(name: str) -> tuple[str, str]:
    """Split `Name@VERSION`; for a path with a folder, the version is that of the file as it is now."""
    called, _, version = name.partition("@")
    if not version and is_reference(called):
        where, _ = split_reference(called)
        if where.endswith(".py") and Path(where).name != where:
            version = code(called).version
    return without_folder(called), version


def _is_called(spec: RunSpec, name: str, version: str) -> bool:
    own = spec.method.name
    same = name == own or (is_reference(own) and name == split_reference(own)[1])
    return same and spec.method.version.startswith(version)


def _fits(run: Stored, wanted: Wanted, ids: Collection[str]) -> bool:
    """True for a run that is selected by its kind, whatever its place and names; `ids`: of all runs."""
    return (wanted.trials is None or wanted.trials == is_trial(run.spec, ids)) and (
        wanted.failed is None or wanted.failed == (run.failure is not None)
    )


def _has_names(spec: RunSpec, wanted: Wanted) -> bool:
    plain: tuple[tuple[Sequence[object], object], ...] = (
        (wanted.datasets, spec.dataset.name),
        (wanted.partitions, spec.partition.name),
        (wanted.clients, spec.clients),
        (wanted.seeds, spec.seed),
    )
    return (
        all(not several or own in several for several, own in plain)
        and wanted.rounds in (None, spec.rounds)
        and wanted.precision in (None, spec.precision)
        and (not wanted.methods or _has_name(spec, wanted.methods))
    )


def _of_suites(stored: Sequence[Stored], wanted: Wanted, own: UserSupplied, asked: Requests) -> list[LocatedRun]:
    runs: dict[str, Stored] = {}
    places: dict[str, list[Location]] = {}
    for name in dict.fromkeys(wanted.suites):
        suite = load(name, own)
        if not suite.document().row:
            raise UsageError(f"{suite.name} has no runs: its numbers come from the datasets alone.")
        mine: dict[str, tuple[Location, ...]] = {}
        for profile in [wanted.profile] if wanted.profile else suite.profiles:
            for one in _in_table(suite, profile, stored, wanted, asked):
                mine.setdefault(one.run.spec.id, one.places)  # profiles may share runs, which count once
                runs[one.run.spec.id] = one.run
        for id, where in mine.items():
            places.setdefault(id, []).extend(where)
    ids = {run.spec.id for run in stored}
    return [LocatedRun(runs[id], tuple(places[id])) for id in sorted(runs) if _fits(runs[id], wanted, ids)]


def _in_table(
    suite: Suite, profile: str, stored: Sequence[Stored], wanted: Wanted, asked: Requests
) -> list[LocatedRun]:
    """Stored runs that stand in a suite's table, with their places there."""
    table = _table(suite, profile, wanted, wanted.seeds)
    specs = [run.spec for run in stored]
    places = _places(table, specs, None)
    places |= _places(table, [spec for spec in specs if spec not in places], asked)
    if wanted.methods:
        _check_rows(table, specs, wanted.methods)
        rows = {row.id for row in table.rows}.intersection(wanted.methods)
        for spec, where in places.items():
            method = _has_name(spec, set(wanted.methods) - rows)
            places[spec] = [one._replace(asked=method or one.row in rows) for one in where]
    found = (LocatedRun(run, tuple(places[run.spec])) for run in stored if run.spec in places)
    return [one for one in found if any(place.asked for place in one.places)]


def _table(suite: Suite, profile: str, wanted: Wanted, seeds: Sequence[int]) -> Expansion:
    part = Selection(**{field.name: getattr(wanted, field.name) for field in fields(Selection)})
    return expand(suite, part, methods=None, like=None, seeds=seeds, profile=profile)


def _check_rows(table: Expansion, stored: Sequence[RunSpec], methods: Iterable[str]) -> None:
    """Raise `UsageError` for a name that is no row of the table, no method of one, and none of a stored run."""
    rows, runs = {row.id for row in table.rows}, [run for cell in table.cells for run in cell.needed]
    for name in methods:
        if name not in rows and not any(_has_name(spec, [name]) for spec in (*stored, *runs)):
            raise unknown("method", name, rows | {run.method.name for run in runs})


def _places(table: Expansion, stored: Sequence[RunSpec], asked: Requests | None) -> dict[RunSpec, list[Location]]:
    """The places of stored runs that the suite names or, where it is known who asked for runs, of all others.

    These stand in extra rows, or are trials of `pflbench tune` for a row's hyperparameters.
    """
    there, found = set(stored), dict[RunSpec, list[Location]]()
    for cell in table.cells if asked is None else extra_rows(table, stored, asked)[0]:
        for run in dict.fromkeys(cell.needed):
            if run in there:
                found.setdefault(run, []).append(_place(table, cell, shown=not run.validation))
    if asked is None:
        return found
    rows: dict[tuple[str, str], list[Cell]] = {}  # of each method in each setting
    for cell in table.cells:
        rows.setdefault((cell.needed[0].method.name, cell.needed[0].setting()), []).append(cell)
    for trial in stored:
        if trial.validation and trial not in found:
            whole = trial.model_copy(update={"validation": 0.0})
            if tried := rows.get((trial.method.name, whole.setting())):
                found[trial] = [_place(table, cell, shown=False) for cell in tried]
    return found


def _place(table: Expansion, cell: Cell, *, shown: bool) -> Location:
    row = cell.row.id if cell.row in table.rows else cell.row.title
    return Location(table.suite, table.profile, row, cell.column.id, cell, shown)


class Listed(NamedTuple):
    """A stored run in plain values. `validation`: the held-out share of the training rows that it is scored on.

    `why`: "trial" of `pflbench tune`, or "choice" where clients choose hyperparameters on what is held out; else empty.
    `hyper`: all hyperparameters. `differs`: what sets it apart from those that are listed with it and look alike.
    `finished`: when it ended, in UTC; empty for runs that did not record it. `file` is relative to the results folder.
    From `dataset_version` to `model_version`: the hashes of a user's own code and of what it reads; empty for what
    comes with pflbench. `unchecked`: "yes" where the method was not held against the contract, else empty.
    """

    run: str
    status: str
    method: str
    version: str
    dataset: str
    partition: str
    model: str
    clients: int
    rounds: int
    seed: int
    validation: float
    precision: str
    finished: str
    commit: str
    file: str
    failure: str
    dataset_version: str
    dataset_content: str
    partition_version: str
    partition_content: str
    model_version: str
    unchecked: str
    hyper: str
    why: str = ""
    differs: str = ""


_ALIKE = ("method", "dataset", "partition", "clients", "rounds", "validation")
"""Columns of a list of runs, but for the seed."""


def list_runs(runs: Sequence[Stored], store: Store) -> list[Listed]:
    """Runs of this store as a list: by method, dataset, partition, number of clients, rounds and seed."""
    ids = {run.spec.id for run in store.list()} if any(run.spec.validation for run in runs) else set[str]()
    alike: dict[tuple[object, ...], list[tuple[Listed, dict[str, str]]]] = {}
    for run in runs:
        line = _listed(run, store)
        if run.spec.validation:
            line = line._replace(why="trial" if is_trial(run.spec, ids) else "choice")
        alike.setdefault(tuple(getattr(line, key) for key in _ALIKE), []).append((line, _parts(run.spec)))
    found = []
    for group in alike.values():
        keys = dict.fromkeys(key for _, parts in group for key in parts)
        differing = [key for key in keys if len({parts.get(key) for _, parts in group}) > 1]
        for line, parts in group:
            found.append(line._replace(differs=_differs(parts, differing)))
    return sorted(found, key=attrgetter(*_ALIKE, "seed", "run"))


def _differs(parts: Mapping[str, str], differing: Sequence[str]) -> str:
    """Values that set a run apart (`differing`)."""
    return ", ".join(f"{key}={parts.get(key, 'none')}" for key in differing)


_CODE = {"version", "content"}
_TOLD: dict[str, object] = {"seed": True, "model_version": True, "dataset": _CODE, "partition": _CODE}
"""Parts of a spec that have columns of their own in a list, where runs have them."""


def _parts(spec: RunSpec) -> dict[str, str]:
    """Other parts of a run's identity, by name: `lr` of the method, `scoring.finetune.lr`, `cohort`."""
    told = spec.model_dump(mode="json", exclude=_TOLD)  # type: ignore[arg-type]
    found = dict(_flat(told, ""))
    short = {key: key.removeprefix("method.hyper.") for key in found}
    short = {key: key.replace(".hyper.", ".") if name in found and name != key else name for key, name in short.items()}
    return {short[key]: value for key, value in found.items()}


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _listed(stored: Stored, store: Store) -> Listed:
    spec, told = stored.spec, stored.provenance
    plain = {key: getattr(spec, key) for key in ("model", "clients", "rounds", "seed", "validation", "precision")}
    kinds = {"dataset": spec.dataset, "partition": spec.partition}
    for kind, named in kinds.items():
        plain |= {kind: named.name, f"{kind}_version": named.version or "", f"{kind}_content": named.content or ""}
    return Listed(
        **plain,
        run=spec.id,
        status="done" if stored.failure is None else "failed",
        method=spec.method.name,
        version=spec.method.version,
        finished=str(told.get("finished") or ""),
        commit=commit(stored),
        file=stored.path.relative_to(store.root).as_posix(),
        failure=stored.failure or "",
        model_version=spec.model_version or "",
        hyper=", ".join(f"{key}={value}" for key, value in spec.method.hyper.items()),
        unchecked="yes" if told.get("unchecked") else "",
    )


def commit(stored: Stored) -> str:
    """The commit that a run was computed at, with a plus where the code was changed; empty if it is not recorded."""
    return str(stored.provenance.get("commit") or "") + ("+" if stored.provenance.get("dirty") else "")
