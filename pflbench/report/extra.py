"""Rows for stored runs that belong into a table's columns though the suite does not name them.

They are a user's method, another version of a built-in one, or one with other hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pflbench.names import is_reference, split_reference
from pflbench.report.table import CellInput, TableInput
from pflbench.spec import RunSpec

_PREFERRED = ("finetuned", "global")


class Variant(NamedTuple):
    """What makes two runs of a column the same row: everything but the seed."""

    name: str
    version: str
    options: str
    """Hyperparameters and fine-tuning rate as JSON with sorted keys."""


@dataclass(frozen=True)
class Extra:
    """An extra row: its title, and for each column it has runs for its cell and the number of seeds expected."""

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
    """The extra rows, sorted by title, and the runs left over: a suite's row with a seed it does not ask for."""
    named: dict[str, dict[Variant, None]] = {cell.column: {} for cell in table.cells.values()}
    settings: dict[str, dict[str, None]] = {}
    own: set[str] = set()
    for cell in table.cells.values():
        for run in cell.runs:
            own.add(run.id)
            named[cell.column][variant(run)] = None
            settings.setdefault(run.setting(), {})[cell.column] = None
    found: dict[Variant, dict[str, list[RunSpec]]] = {}
    spare: list[RunSpec] = []
    for run in stored:
        if run.id in own:
            continue
        for column in settings.get(run.setting(), ()):
            if variant(run) in named[column]:
                spare.append(run)
            else:
                found.setdefault(variant(run), {}).setdefault(column, []).append(run)
    return sorted((_row(table, group, found, named) for group in _groups(found)), key=lambda e: e.title), spare


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
    table: TableInput,
    group: list[Variant],
    found: Mapping[Variant, Mapping[str, list[RunSpec]]],
    named: Mapping[str, Iterable[Variant]],
) -> Extra:
    id = f"extra:{json.dumps(group)}"  # never the id of a suite's row
    cells: dict[str, CellInput] = {}
    expected: dict[str, int] = {}
    for one in group:
        for column, runs in found[one].items():
            beside = [cell for cell in table.cells.values() if cell.column == column]
            stage = next((s for s in _PREFERRED if s in runs[0].scoring.stages), "global")
            steps = next((cell.steps for cell in beside if cell.stage == stage), None)
            runs = sorted(runs, key=lambda run: run.seed)
            cells[column] = CellInput(id, column, stage, steps, tuple(runs))
            expected[column] = len({run.seed for run in runs} | {run.seed for cell in beside for run in cell.runs})
    return Extra(id, _title(group, found, named), cells, expected)


def _title(
    group: list[Variant],
    found: Mapping[Variant, Mapping[str, object]],
    named: Mapping[str, Iterable[Variant]],
) -> str:
    name, version, _ = group[0]
    everyone = {*found, *(one for variants in named.values() for one in variants)}
    short = _short(name)
    namesakes = {one.name for one in everyone if _short(one.name) == short}
    title = short if len(namesakes) == 1 else name
    if len({one.version for one in everyone if one.name == name}) > 1:
        title += f"@{version}"
    values: dict[str, dict[str, None]] = {}
    for one in group:
        options = json.loads(one.options)
        in_suite = [v for column in found[one] for v in named[column] if v[:2] == one[:2]]
        rivals = in_suite or [v for v in found if v[:2] == one[:2] and v not in group]
        for other in (json.loads(rival.options) for rival in rivals):
            for key in sorted(options.keys() | other.keys()):
                if options.get(key) != other.get(key):
                    values.setdefault(key, {})[json.dumps(options.get(key))] = None
    differing = ", ".join(f"{key}={'|'.join(texts)}" for key, texts in values.items())
    return f"{title} ({differing})" if differing else title


def _short(name: str) -> str:
    return split_reference(name)[1] if is_reference(name) else name
