"""Rows for stored runs that belong into a table's columns though the suite does not name them.

They are a user's method, another version of a built-in one, or one with other hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from pflbench.names import BUILT_IN, is_reference, split_reference
from pflbench.report.table import CellInput, ColumnHead, Reading, TableInput
from pflbench.spec import RunSpec
from pflbench.stages import canonical, of_reference, of_run

_PREFERRED = ("finetuned", "personalized", "global", "stored", "sampled", "local")
"""Which of the stages that a column reads a row shows there, if the table does not show all."""

_Found = dict[str, list[RunSpec]]
"""A variant's runs by the suite's column."""


class Variant(NamedTuple):
    """What makes two runs of a column the same row: everything but the seed."""

    name: str
    version: str
    options: str
    """Hyperparameters and fine-tuning rate as JSON with sorted keys."""


@dataclass(frozen=True)
class Extra:
    """An extra row: its title, and by `ColumnHead` its cells and the numbers of seeds expected in them."""

    id: str
    title: str
    cells: Mapping[str, CellInput]
    expected: Mapping[str, int]


def variant(spec: RunSpec) -> Variant:
    """The variant a run belongs to."""
    options: dict[str, Any] = dict(spec.method.hyper)
    if spec.scoring.finetune is not None:
        options["finetune lr"] = spec.scoring.finetune.lr
    return Variant(spec.method.name, spec.method.version, json.dumps(options, sort_keys=True))


def extra_rows(table: TableInput, stored: Iterable[RunSpec]) -> tuple[list[Extra], list[RunSpec]]:
    """The extra rows, sorted by title, and the runs left over: with seeds or at stages that the table does not have.

    An extra row has the table's seeds like the suite's own, so that all rows are compared on the same. A method that is
    scored at no stage that the table shows, or is done for none of its seeds, has no row.
    """
    columns = _columns(table)
    own = table.elsewhere | {run.id for cell in table.cells.values() for run in cell.asked}
    found: dict[Variant, _Found] = {}
    spare: list[RunSpec] = []
    for run in stored:
        if run.id in own:
            continue
        mine, setting = variant(run), run.setting()
        for id, column in columns.items():
            if not column.admits(setting, run.method.name):
                continue
            if mine in column.named or run.seed not in column.seeds:
                spare.append(run)
            else:
                found.setdefault(mine, {}).setdefault(id, []).append(run)
    rows = [_row(table, group, found, columns) for group in _groups(found)]
    return sorted((row for row in rows if row.cells), key=lambda row: row.title), spare


class _Column:
    """What a column of the suite holds: its cells, their variants, and the settings of their runs."""

    def __init__(self, rounds: int, cells: Sequence[CellInput]) -> None:
        self.cells = cells
        self.stages = {cell.reading.stage for cell in cells}
        runs = [run for cell in cells for run in ([p.run for g in cell.choices for p in g] or cell.runs)]
        self.named: dict[Variant, None] = dict.fromkeys(map(variant, runs))
        self.seeds = {run.seed for run in runs}
        # A row that trains for other rounds than its column admits only its own method, e.g. another version of it.
        self._settings = {(run.setting(), "" if run.rounds == rounds else run.method.name) for run in runs}

    def admits(self, setting: str, method: str) -> bool:
        return (setting, "") in self._settings or (setting, method) in self._settings


def _columns(table: TableInput) -> dict[str, _Column]:
    heads = {head.id: head for head in table.columns}
    cells: dict[str, list[CellInput]] = {}
    for cell in table.cells.values():
        cells.setdefault(heads[cell.column].column, []).append(cell)
    rounds = {head.column: head.rounds for head in table.columns}
    return {column: _Column(rounds[column], several) for column, several in cells.items()}


def _groups(found: Mapping[Variant, Mapping[str, object]]) -> list[list[Variant]]:
    """Variants of a method that never meet in a column share a row: suites tune hyperparameters per column."""
    by_version: dict[tuple[str, str], list[Variant]] = {}
    for one in found:
        by_version.setdefault((one.name, one.version), []).append(one)
    groups: list[list[Variant]] = []
    for variants in by_version.values():
        columns = [column for one in variants for column in found[one]]
        groups += [variants] if len(columns) == len(set(columns)) else [[one] for one in variants]
    return groups


def _row(
    table: TableInput, group: list[Variant], found: Mapping[Variant, _Found], columns: Mapping[str, _Column]
) -> Extra:
    id = f"extra:{json.dumps(group)}"  # never the id of a suite's row
    cells: dict[str, CellInput] = {}
    expected: dict[str, int] = {}
    for head in table.columns:
        for one in group:
            runs, column = found[one].get(head.column, []), columns.get(head.column)
            reading = column and _reading(head, column, runs)
            if column and reading:
                at_stage = _one_per_seed(run for run in runs if reading.stage in _stages(run))
                cells[head.id] = CellInput(id, head.id, reading, at_stage)
                expected[head.id] = len(column.seeds)
    return Extra(id, _title(group, found, columns), cells, expected)


def _reading(head: ColumnHead, column: _Column, runs: Sequence[RunSpec]) -> Reading | None:
    """How the runs are read there: as the suite's rows at that stage, if there are such."""
    stages = [s for s in _PREFERRED if any(s in _stages(run) for run in runs)]
    stages = [s for s in stages if (s in column.stages if head.stage is None else s == head.stage)]
    if not stages:
        return None
    alike = next((cell.reading for cell in column.cells if cell.reading.stage == stages[0]), None)
    return alike or replace(column.cells[0].reading, stage=stages[0], steps=None)


def _stages(run: RunSpec) -> set[str]:
    """The stages that a run has scores of: a built-in method's old runs may be scored at some that it does not have."""
    scored: set[str] = set(run.scoring.stages)
    reference = BUILT_IN["methods"].get(run.method.name)
    if reference is None:
        return scored
    return {stage for stage in of_run(run, _of_built_in(reference)) if set(canonical([stage])) <= scored}


_of_built_in = cache(of_reference)


def _one_per_seed(runs: Iterable[RunSpec]) -> tuple[RunSpec, ...]:
    """The runs in the order of their seeds; of those that only differ in where they are scored, the fullest."""
    by_seed = {run.seed: run for run in sorted(runs, key=lambda run: (len(run.scoring.stages), run.id))}
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def _title(group: list[Variant], found: Mapping[Variant, _Found], columns: Mapping[str, _Column]) -> str:
    name, version, _ = group[0]
    everyone = {*found, *(one for column in columns.values() for one in column.named)}
    short = short_name(name)
    namesakes = {one.name for one in everyone if short_name(one.name) == short}
    title = short if len(namesakes) == 1 else name
    if len({one.version for one in everyone if one.name == name}) > 1:
        title += f"@{version}"
    values: dict[str, dict[str, None]] = {}
    for one in group:
        options = json.loads(one.options)
        in_suite = [v for column in found[one] for v in columns[column].named if v[:2] == one[:2]]
        rivals = in_suite or [v for v in found if v[:2] == one[:2] and v not in group]
        for other in (json.loads(rival.options) for rival in rivals):
            for key in sorted(options.keys() | other.keys()):
                if options.get(key) != other.get(key):
                    values.setdefault(key, {})[json.dumps(options.get(key))] = None
    differing = ", ".join(f"{key}={'|'.join(texts)}" for key, texts in values.items())
    return f"{title} ({differing})" if differing else title


def short_name(name: str) -> str:
    """A method's name without the file or module that it stands in."""
    return split_reference(name)[1] if is_reference(name) else name
