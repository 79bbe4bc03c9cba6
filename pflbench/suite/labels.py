"""The names of a table's runs in progress lines, plans and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pflbench.data.root import data_root
from pflbench.selection import Selection
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load, required
from pflbench.suite.own import Own


class Part(NamedTuple):
    """The selected part of a suite. `labels`: by run id, the run's name beside its column and seed."""

    table: Expansion
    labels: Mapping[str, str]


def loaded(suites: Sequence[str], data_dir: str | Path | None) -> list[Suite]:
    """The suites by these names; data of the user's own are looked for below the data root. Raises `UsageError`."""
    return [load(name, Own(data_root(data_dir))) for name in required(suites)]


def parts(suites: Iterable[Suite], part: Selection) -> list[Part]:
    """The selected part of each suite that has runs, as suites of statistics do not. Raises `UsageError`."""
    return [labelled(suite, expand(suite, part)) for suite in suites if suite.document().statistics is None]


def labelled(suite: Suite, table: Expansion) -> Part:
    """A table of a suite with the names of its runs. A run of several rows has the first one's."""
    rows, labels = row_labels(suite, table.profile), dict[str, str]()
    for cell in table.cells:
        for spec in cell.needed:
            labels.setdefault(spec.id, rows.get(cell.row.id, cell.row.method))
    return Part(table, labels)


def row_labels(suite: Suite, profile: str) -> dict[str, str]:
    """The name of the runs of each row of a suite, by the row's id, whatever part of the suite is selected.

    It is their method, or the row's id where another row has other runs of the same method.
    """
    table = expand(suite, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    runs: dict[str, set[str]] = {}
    for cell in table.cells:
        runs.setdefault(cell.row.id, set()).update(spec.id for spec in cell.needed)
    several = {a.method for a in table.rows for b in table.rows if a.method == b.method and runs[a.id] != runs[b.id]}
    return {row.id: row.id if row.method in several else row.method for row in table.rows}


def with_columns(parts: Iterable[Part]) -> dict[str, str]:
    """By run id, the run's column and its name there; of several columns, the first."""
    found: dict[str, str] = {}
    for table, labels in parts:
        for cell in table.cells:
            for spec in cell.needed:
                found.setdefault(spec.id, f"{cell.column.called} · {labels[spec.id]}")
    return found
