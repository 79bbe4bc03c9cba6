"""Extra rows: stored runs that a suite asked for and does not name.

They are of a user's method, of another version of a built-in one, or of one with other hyperparameters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from pflbench.catalog import shipped_method
from pflbench.names import is_reference, split_reference
from pflbench.report.text import grouped
from pflbench.spec import RunSpec
from pflbench.stages import PREFERRED, Shown, canonical, of_run
from pflbench.store import Stored
from pflbench.store.requests import Requests, requested
from pflbench.suite.cells import Cell, ColumnHead, Expansion, Reading, TableRow
from pflbench.suite.schema import SETTINGS
from pflbench.units import count

EXTRA = "extra:"
"""Beginning of the ids of extra rows, and of no suite's row; behind it a digest of the row's variants."""


class Variant(NamedTuple):
    """Identity of the runs of one row in a column: everything but the seed."""

    name: str
    version: str
    options: tuple[tuple[str, str], ...]
    """Hyperparameters, fine-tuning rate, and what is trained before: sorted, each value as JSON."""


_Runs = Mapping[Variant, Mapping[str, list[RunSpec]]]
"""The runs of extra rows, by the id of the column that they stand in."""


def extra_rows(
    table: Expansion, stored: Iterable[RunSpec], asked: Requests, likes: Mapping[str, str] = {}
) -> tuple[list[Cell], list[RunSpec]]:
    """The cells of extra rows among the `stored` runs, sorted by the rows' titles, and the runs that have no row.

    An extra row has the table's seeds, like the suite's own rows, so that all rows are compared on the same. Without a
    row are runs of other seeds, and those at stages that the table does not show. A point of a row's grid with other
    settings than the row's is no row: it says something only beside the other points. `asked`: who asked for them.
    `likes`: by run id, the row whose hyperparameters a run took (`--like`).
    """
    ids = dict.fromkeys(cell.column.id for cell in table.cells)
    columns = {id: _Column([cell for cell in table.cells if cell.column.id == id]) for id in ids}
    own = {run.id for cell in table.cells for run in cell.needed}
    found: dict[Variant, dict[str, list[RunSpec]]] = {}
    spare: list[RunSpec] = []
    for run, admitting in _admitted(stored, columns):
        if run.id in own:
            continue
        mine = variant(run)
        for id, column in admitting:
            named = mine in column.named
            if not belongs(run, table, asked, named):
                continue
            if named or run.seed not in column.seeds:
                spare.append(run)
            else:
                found.setdefault(mine, {}).setdefault(id, []).append(run)
    cells = [cell for group in _groups(found) for cell in _row(table, group, found, columns, likes)]
    return sorted(cells, key=lambda cell: cell.row.title), spare


def _admitted(
    stored: Iterable[RunSpec], columns: Mapping[str, _Column]
) -> Iterator[tuple[RunSpec, list[tuple[str, _Column]]]]:
    """The runs that can stand in a column by their settings, each with all such columns."""
    known: dict[tuple[str, str], list[tuple[str, _Column]]] = {}
    for run in stored:
        kind = run.setting(), run.method.name
        if kind not in known:
            known[kind] = [(id, column) for id, column in columns.items() if column.admits(*kind)]
        if admitting := [(id, column) for id, column in known[kind] if not column.has_as_point(run)]:
            yield run, admitting


def belongs(run: RunSpec, table: Expansion, asked: Requests, named: bool) -> bool:
    """True if the table's suite asked for a run.

    Of older runs nobody knows who did. Then it belongs here if the method is a user's, or if the suite has a row with
    these hyperparameters (`named`).
    """
    if run.id in asked:
        return requested(asked[run.id], table.suite, table.profile, table.path)
    return named or is_reference(run.method.name)


def variant(spec: RunSpec) -> Variant:
    """Variant of a run, the same for all runs of its row."""
    return Variant(spec.method.name, spec.method.version, _options(spec))


@lru_cache(maxsize=2**16)  # several tables ask it of the same runs
def _options(spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """`Variant.options` of a run."""
    options: dict[str, Any] = dict(spec.method.hyper)
    if spec.scoring.finetune is not None:
        options["finetune lr"] = spec.scoring.finetune.lr
    return tuple((key, json.dumps(options[key], sort_keys=True)) for key in sorted(options))


class _Column:
    """Column of the suite: its cells, their variants, and the settings of their runs."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, rounds = cells, cells[0].column.rounds
        self.stages = {cell.stage for cell in cells}
        runs = [run for cell in cells for run in ([p.run for g in cell.choices for p in g] or cell.runs)]
        self.named: dict[Variant, None] = dict.fromkeys(variant(run) for run in runs)
        self.seeds = sorted({run.seed for run in runs})
        self._points = {
            (choice.run.method.name, key, _at(choice.run, key))
            for cell in cells
            for points in cell.choices
            for key in [_varied([choice.run for choice in points])]
            for choice in points
        }
        # A row that trains for other rounds than its column admits only its own method, e.g. another version of it.
        self._settings = {(run.setting(), "" if run.rounds == rounds else run.method.name) for run in runs}

    def has_as_point(self, run: RunSpec) -> bool:
        """True for a run that is a point of a row's grid, with other settings than the row's."""
        there = any(run.method.name == name and _at(run, keys) == at for name, keys, at in self._points)
        return there and variant(run) not in self.named

    def admits(self, setting: str, method: str) -> bool:
        return (setting, "") in self._settings or (setting, method) in self._settings


def _varied(runs: Sequence[RunSpec]) -> tuple[str, ...]:
    """The hyperparameters in which these runs of a method differ."""
    keys = sorted({key for run in runs for key in run.method.hyper})
    return tuple(key for key in keys if len({repr(run.method.hyper.get(key)) for run in runs}) > 1)


def _at(run: RunSpec, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(run.method.hyper.get(key)) for key in keys)


def _groups(found: _Runs) -> list[list[Variant]]:
    """Variants of a method that never meet in a column share a row: suites tune hyperparameters per column."""
    groups: list[list[Variant]] = []
    for variants in grouped(((one.name, one.version), one) for one in found).values():
        columns = [column for one in variants for column in found[one]]
        groups += [variants] if len(columns) == len(set(columns)) else [[one] for one in variants]
    return groups


def _row(
    table: Expansion, group: list[Variant], found: _Runs, columns: Mapping[str, _Column], likes: Mapping[str, str]
) -> list[Cell]:
    """The cells of a row with these variants: none where the table shows no stage of its runs.

    The global models of a user-supplied method, where its runs are scored there, too, are a second row.
    """
    id, title = EXTRA + hashlib.sha256(repr(group).encode()).hexdigest()[:12], _title(group, found, columns)
    rows = TableRow(id, title, group[0].name, ()), TableRow(f"{id}:global", f"{title} (global)", group[0].name, ())
    cells = []
    for head in table.heads:
        for one in group:
            runs = found[one].get(head.column.id)
            if not runs:
                continue
            column = columns[head.column.id]
            for row, reading in zip(rows, _readings(head, column, runs), strict=False):
                of_seeds = _of_seeds((run for run in runs if reading.stage in _stages(run)), column.seeds)
                sources = _sources(column, reading.stage, of_seeds[0], likes.get(of_seeds[0].id))
                cells.append(Cell(row, head.column, reading, of_seeds, sources=sources))
    return cells


def _sources(column: _Column, stage: Shown, run: RunSpec, like: str | None) -> dict[str, str]:
    """Sources of the values of an extra row's run.

    Settings are the column's, whoever trains in it. A hyperparameter has a source where a row of the same method, or
    the row `like`, has the same value; any other value is its user's own, who knows where it comes from.
    """
    found: dict[str, str] = {}
    for cell in column.cells:
        for key, source in cell.sources.items():
            if _same(run, cell.needed[0], key, cell.row.id == like) and (
                stage == "finetuned" or not key.startswith("finetune.")
            ):
                found.setdefault(key, source)
    return found


def _same(run: RunSpec, other: RunSpec, key: str, alike: bool) -> bool:
    """True if two runs of a column have this value in common, and from the same source. `alike`: see `likes`."""
    hyper = key.partition(".")[0] not in (*SETTINGS, "finetune")  # one at its default is in no run's `hyper`
    if hyper or key in other.method.hyper or key in run.method.hyper:
        one_method = run.method.name == other.method.name or (alike and key in run.method.hyper)
        return one_method and run.method.hyper.get(key) == other.method.hyper.get(key)
    if key.startswith("finetune."):
        rules, name = (run.scoring.finetune, other.scoring.finetune), key.removeprefix("finetune.")
        return None not in rules and getattr(rules[0], name) == getattr(rules[1], name)
    if key == "batch" and (method := shipped_method(run.method.name)):
        return method.minibatches
    return key != "rounds" or run.rounds == other.rounds


def _readings(head: ColumnHead, column: _Column, runs: Sequence[RunSpec]) -> list[Reading]:
    """Readings of the runs in a row and, of a user-supplied method's global models, in a second one.

    As of the suite's rows at that stage, if there are such.
    """
    there = [s for s in PREFERRED if any(s in _stages(run) for run in runs)]
    shown = [s for s in there if (s in column.stages if head.stage is None else s == head.stage)][:1]
    if shown and head.stage is None and "global" in there and is_reference(runs[0].method.name):
        shown = list(dict.fromkeys((*shown, "global")))
    alike = {cell.stage: cell.reading for cell in reversed(column.cells)}
    first = column.cells[0].reading
    return [alike.get(stage) or replace(first, stage=stage, steps=None) for stage in shown]


def _stages(run: RunSpec) -> set[str]:
    """The stages that a run has scores of: a built-in method's old runs may be scored at some that it does not have."""
    scored: set[str] = set(run.scoring.stages)
    if (method := shipped_method(run.method.name)) is None:
        return scored
    return {stage for stage in of_run(run, method.stages) if set(canonical([stage])) <= scored}


def _of_seeds(runs: Iterable[RunSpec], seeds: Sequence[int]) -> tuple[RunSpec, ...]:
    """A run for each of these seeds; of those that only differ in where they are scored, the fullest.

    For a seed without a stored run it is the one that is missing.
    """
    by_seed = {run.seed: run for run in sorted(runs, key=lambda run: (len(run.scoring.stages), run.id))}
    first = next(iter(by_seed.values()))
    return tuple(by_seed.get(seed) or first.model_copy(update={"seed": seed}) for seed in seeds)


def _title(group: list[Variant], found: _Runs, columns: Mapping[str, _Column]) -> str:
    """Title of the row of these variants: its method, and the options that set it apart."""
    name, version, _ = group[0]
    everyone = {*found, *(one for column in columns.values() for one in column.named)}
    short = short_name(name)
    title = name if any(one.name != name and short_name(one.name) == short for one in everyone) else short
    if any(one.name == name and one.version != version for one in everyone):
        title += f"@{version}"
    values = grouped(
        pair for one in group for rival in _rivals(one, group, found, columns) for pair in _differing(one, rival)
    )
    differing = ", ".join(f"{key}={'|'.join(texts)}" for key, texts in values.items())
    return f"{title} ({differing})" if differing else title


def _rivals(one: Variant, group: list[Variant], found: _Runs, columns: Mapping[str, _Column]) -> list[Variant]:
    """Variants of its method from which its options set it apart: the suite's in its columns, else other rows'."""
    in_suite = [rival for column in found[one] for rival in columns[column].named if rival[:2] == one[:2]]
    return in_suite or [rival for rival in found if rival[:2] == one[:2] and rival not in group]


def _differing(one: Variant, rival: Variant) -> list[tuple[str, str]]:
    """The first one's values of the options in which the two differ, as JSON."""
    own, other = dict(one.options), dict(rival.options)
    keys = sorted(own.keys() | other)
    return [(key, own.get(key, "null")) for key in keys if own.get(key, "null") != other.get(key, "null")]


def short_name(name: str) -> str:
    """A method's name without the file or module that it stands in."""
    return split_reference(name)[1] if ":" in name else name


class Extra(NamedTuple):
    """The cells of extra rows, the runs that have no row, and by method a note on the version that is shown."""

    cells: list[Cell]
    spare: list[RunSpec]
    notes: Mapping[str, str]


def extra(table: Expansion, stored: Iterable[Stored], asked: Requests) -> Extra:
    """The extra rows of a table: of each user-supplied method the version that finished last.

    Where the suite has a row of the method, that row's version is shown alone.
    """
    stored, own = list(stored), {run.id for cell in table.cells for run in cell.needed}
    hidden, notes = set[str](), dict[str, str]()
    for name, runs in _by(lambda run: run.spec.method.name, (r for r in stored if _is_here(r, table, asked))).items():
        newest = max(runs, key=lambda run: (run.spec.id in own, run.failure is None, run.finished, run.spec.id))
        version = newest.spec.method.version
        older = [run for run in runs if run.spec.method.version != version and run.spec.id not in own]
        hidden |= {run.spec.id for run in older}
        if finished := [run for run in older if run.failure is None]:
            notes[name] = f"{name} is shown in its newest version ({version}). Not shown: {_dated(finished)}."
    cells, spare = extra_rows(table, (run.spec for run in stored if run.spec.id not in hidden), asked, _likes(stored))
    return Extra(cells, spare, notes)


def _by(key: Callable[[Stored], str], runs: Iterable[Stored]) -> dict[str, list[Stored]]:
    """The runs by a property."""
    found: dict[str, list[Stored]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


def _likes(stored: Iterable[Stored]) -> dict[str, str]:
    """By run id, the row whose hyperparameters a run took (`--like`)."""
    requests = {run.spec.id: run.provenance.get("asked") for run in stored}
    return {id_: str(one["like"]) for id_, one in requests.items() if isinstance(one, dict) and "like" in one}


def _is_here(run: Stored, table: Expansion, asked: Requests) -> bool:
    """True for a run of a user-supplied method that can stand in the table."""
    spec = run.spec
    users = is_reference(spec.method.name) and not spec.validation
    return users and spec.setting() in table.settings and belongs(spec, table, asked, named=True)


def _dated(runs: Iterable[Stored]) -> str:
    """`2 runs of version ab12 (2026-11-20), 1 run of version cd34 (2026-11-21 to 2026-11-24)`."""
    texts = []
    for version, several in _by(lambda run: run.spec.method.version, runs).items():
        days = sorted({run.finished[:10] or "undated" for run in several})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        texts.append(f"{count(len(several), 'run')} of version {version} ({when})")
    return ", ".join(texts)
