"""Hold the cells of two results folders against each other. Never imports torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import UsageError, unknown
from pflbench.names import without_folder
from pflbench.report.cells import read
from pflbench.report.commits import opened
from pflbench.report.comparison import Comparison, Found, Name, Pair, Side, pair
from pflbench.report.reading import Shelf, readable
from pflbench.report.runs import commit
from pflbench.report.tables import with_results
from pflbench.report.unlisted import EXTRA, extra_rows, variant
from pflbench.selection import Selection
from pflbench.store import Store
from pflbench.store.asked import askers
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import read as read_suite
from pflbench.suite.own import Own

_Place = tuple[str, str]
"""The ids of a row and of a column head."""
_Key = tuple[Path, str]
"""A suite's file, and a profile."""


class _Read(NamedTuple):
    """A results folder, what it was called, its tables with results, and where users' files are looked for."""

    called: str
    store: Store
    shelf: Shelf
    tables: Mapping[_Key, Expansion]
    own: Own


def compare(a: str, b: str, part: Selection, data_dir: str | Path | None = None) -> Comparison:
    """The cells that either of two places of results has a number for, paired by seed and client.

    Args:
        a: A results folder, `git:COMMIT`, or `packaged`.
        b: Another one.
        part: Which suites, profiles, rows and columns.
        data_dir: Where the datasets are, if not in the data root.

    Raises:
        UsageError: A place cannot be read, something is unknown, or neither has a cell of what is asked for.
    """
    with opened(a) as store_a, opened(b) as store_b:
        sides = [_read(*one, part.but(methods=None), data_dir) for one in ((a, store_a), (b, store_b))]
        keys = dict.fromkeys(key for side in sides for key in side.tables)
        pairs = [one for key in keys for one in _of_table(key, *sides)]
        pairs = _only(pairs, part.methods, sides)
        if not pairs:
            named = " and ".join(part.suites) or "any suite"
            raise UsageError(f"Neither {a!r} nor {b!r} has results of {named} that are asked for.")
        return Comparison(
            _side(sides[0], (p.runs_a for p in pairs)), _side(sides[1], (p.runs_b for p in pairs)), tuple(pairs)
        )


def _read(called: str, store: Store, part: Selection, data_dir: str | Path | None) -> _Read:
    own = readable(store, data_dir)
    tables = with_results(part, store, own)
    return _Read(called, store, Shelf(store), {(one.path.resolve(), one.profile): one for one in tables}, own)


def _of_table(key: _Key, a: _Read, b: _Read) -> list[Pair]:
    """The cells of a table, rows and columns in its order.

    A cell has the seeds that its table has, and all others that both folders have: these are described, whatever the
    suite declares.
    """
    table_a, table_b = a.tables.get(key) or b.tables[key], b.tables.get(key) or a.tables[key]
    cells_a, cells_b = _cells(table_a, a), _cells(table_b, b)
    more = set() if table_b.part.seeds else _common(table_a, a, b) - set(table_a.seeds) - set(table_b.seeds)
    if more:
        cells_a, cells_b = _with_seeds(cells_a, cells_b, _further(table_a, a, more), _further(table_b, b, more))
    renamed = _others(cells_a, cells_b)
    found = []
    for place in dict.fromkeys([*cells_a, *cells_b]):
        if place in renamed.values():
            continue
        mine, other = cells_a.get(place), cells_b.get(renamed.get(place, place))
        one = other or mine
        assert one is not None
        versions = [variant(side.cell.needed[0]).version for side in (mine, other) if side]
        note = f"version {versions[0]} in A, {versions[1]} in B" if len(set(versions)) > 1 else ""
        head = table_b.head(one.cell) if other else table_a.head(one.cell)
        name = Name(
            table_b.suite, table_b.profile, one.cell.row.id, head.id, one.cell.row.title, head.name, one.cell.stage
        )
        found.append(pair(name, mine, other, note))
    return found


def _common(table: Expansion, *sides: _Read) -> set[int]:
    """The seeds that every one of these folders has finished runs of the table's settings with."""
    runs = ([run.spec for run in side.shelf.stored.values() if run.failure is None] for side in sides)
    seeds = ({run.seed for run in done if not run.validation and run.setting() in table.settings} for done in runs)
    return set.intersection(*seeds)


def _further(table: Expansion, side: _Read, seeds: Collection[int]) -> dict[_Place, Found]:
    """The table's cells there over these seeds alone."""
    return _cells(expand(read_suite(table.part.suites[0], side.own), table.part, seeds=sorted(seeds)), side)


def _with_seeds(
    a: Mapping[_Place, Found], b: Mapping[_Place, Found], more_a: Mapping[_Place, Found], more_b: Mapping[_Place, Found]
) -> tuple[dict[_Place, Found], dict[_Place, Found]]:
    """The cells of both with the further seeds that both have of a cell."""
    both = {place: more_a[place].reads.keys() & more_b[place].reads.keys() for place in more_a.keys() & more_b.keys()}

    def joined(cells: Mapping[_Place, Found], more: Mapping[_Place, Found]) -> dict[_Place, Found]:
        found = dict(cells)
        for place, seeds in both.items():
            if seeds:
                reads = {**(found[place].reads if place in found else {}), **{s: more[place].reads[s] for s in seeds}}
                found[place] = Found(more[place].cell, dict(sorted(reads.items())))
        return found

    return joined(a, more_a), joined(b, more_b)


def _cells(table: Expansion, side: _Read) -> dict[_Place, Found]:
    """The table's cells that have a number there, with those of extra rows."""
    extra, _ = extra_rows(table, side.shelf.specs, askers(side.store))
    table = replace(table, cells=tuple(cell for cell in table.cells if cell.has_scores))
    found = {}
    for place, cell in (table.places | {table.place(cell): cell for cell in extra}).items():
        if reads := {one.result.spec.seed: one for one in read(cell, side.shelf)}:
            found[place] = Found(cell, reads)
    return found


def _others(a: Mapping[_Place, Found], b: Mapping[_Place, Found]) -> dict[_Place, _Place]:
    """For cells of A that B lacks, the one of B that has another version of the same method, if there is just one."""

    def lone(mine: Mapping[_Place, Found], other: Collection[_Place]) -> dict[object, list[_Place]]:
        found: dict[object, list[_Place]] = {}
        for place, one in mine.items():
            if place not in other:
                own = variant(one.cell.needed[0])
                found.setdefault((place[1], one.cell.stage, own.name, own.options), []).append(place)
        return found

    left, right = lone(a, b), lone(b, a)
    return {left[key][0]: right[key][0] for key in left if len(left[key]) == len(right.get(key, ())) == 1}


def _only(pairs: Sequence[Pair], methods: Collection[str], sides: Sequence[_Read]) -> list[Pair]:
    """The cells of these rows or methods. Raises `UsageError` for one that no cell is of."""
    if not methods:
        return list(pairs)
    specs = {id: stored.spec for side in sides for id, stored in side.shelf.stored.items()}
    names = [{one.name.row, *(specs[id].method.name for id in (*one.runs_a, *one.runs_b))} for one in pairs]
    wanted, known = {without_folder(name) for name in methods}, set[str]().union(*names)
    for name in wanted - known:
        raise unknown("method", name, {other for other in known if not other.startswith(EXTRA)})
    return [one for one, own in zip(pairs, names, strict=True) if own & wanted]


def _side(side: _Read, runs: object) -> Side:
    stored = [side.shelf.stored[id] for id in dict.fromkeys(id for ids in runs for id in ids)]  # type: ignore[attr-defined]
    commits = sorted({commit(one) or "unknown" for one in stored})
    devices = sorted({str(one.provenance.get("device") or "unknown") for one in stored})
    return Side(side.called, len(stored), tuple(commits), tuple(devices))
