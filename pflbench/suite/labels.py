"""What the runs of a table are called where they are listed: in progress lines, plans and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pflbench.data.root import data_root
from pflbench.selection import Selection
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.own import Own


class Part(NamedTuple):
    """What is asked for of a suite. `labels`: what a run is called beside its column and seed, by its id."""

    table: Expansion
    labels: Mapping[str, str]


def loaded(suites: Iterable[str], data_dir: Path | None) -> list[Suite]:
    """The suites by these names, with the data of their users' datasets below the data root. Raises `UsageError`."""
    return [load(name, Own(data_root(data_dir))) for name in suites]


def parts(suites: Iterable[Suite], part: Selection) -> list[Part]:
    """The asked-for part of each suite that is not statistics, which have no runs. Raises `UsageError`."""
    return [labelled(suite, expand(suite, part)) for suite in suites if suite.document().statistics is None]


def labelled(suite: Suite, table: Expansion) -> Part:
    """A table of a suite with what its runs are called. A run of several rows goes by the first of them."""
    rows, labels = row_labels(suite, table.profile), dict[str, str]()
    for cell in table.cells:
        for spec in cell.needed:
            labels.setdefault(spec.id, rows.get(cell.row.id, cell.row.method))
    return Part(table, labels)


def row_labels(suite: Suite, profile: str) -> dict[str, str]:
    """What the runs of each row of a suite are called, by the row's id; those of other rows go by their method.

    It is their method, but the row's id where another row has other runs of the same method. All verbs that show runs
    call them so, whatever part of the suite they were asked for.
    """
    table = expand(suite, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    runs: dict[str, set[str]] = {}
    for cell in table.cells:
        runs.setdefault(cell.row.id, set()).update(spec.id for spec in cell.needed)
    several = {a.method for a in table.rows for b in table.rows if a.method == b.method and runs[a.id] != runs[b.id]}
    return {row.id: row.id if row.method in several else row.method for row in table.rows}


def with_columns(parts: Iterable[Part]) -> dict[str, str]:
    """Run id → the column it belongs to and what it is called there; of several, the first."""
    found: dict[str, str] = {}
    for table, labels in parts:
        for cell in table.cells:
            for spec in cell.needed:
                found.setdefault(spec.id, f"{cell.column.called} · {labels[spec.id]}")
    return found
