"""Columns whose cells cannot be compared: their runs saw different data or are of different versions of a method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pflbench.report.table import TableInput
from pflbench.report.text import ranges
from pflbench.store import Stored


class Used(NamedTuple):
    """A stored run and the place where the table shows it: row by title, the suite's column by id and by title."""

    row: str
    column: str
    setting: str
    stored: Stored

    @property
    def data_hash(self) -> str:
        """What identifies the data it was computed on."""
        return str(self.stored.provenance.get("data_hash") or "unknown")


def marked(title: str, used: Iterable[Used]) -> str:
    """A row's title, with a mark where one of its runs is of a method that was not held against the contract."""
    doubted = any(u.row == title and u.stored.provenance.get("unchecked") for u in used)
    return f"{title} (unchecked)" if doubted else title


def mixtures(table: TableInput, used: Sequence[Used]) -> dict[str, str]:
    """For each column whose runs saw different data, or whose suite rows mix versions of a method: a line saying so."""
    suite_ids = {run.id for cell in table.cells.values() for run in cell.asked}
    lines: dict[str, str] = {}
    for column, name in table.settings.items():
        done = [u for u in used if u.column == column and u.stored.failure is None]
        data: dict[str, dict[str, list[int]]] = {}
        versions: dict[str, dict[str, None]] = {}
        for one in done:
            data.setdefault(one.data_hash, {}).setdefault(one.row, []).append(one.stored.spec.seed)
            if one.stored.spec.id in suite_ids:  # extra rows carry their version in the title
                versions.setdefault(one.stored.spec.method.name, {})[one.stored.spec.method.version] = None
        parts = []
        if len(data) > 1:
            shares = "; ".join(
                f"{hash[:12]} in {', '.join(f'{row} (seeds {ranges(seeds)})' for row, seeds in rows.items())}"
                for hash, rows in data.items()
            )
            parts.append(f"MIXED DATA in {name}: {shares}")
        for method, several in versions.items():
            if len(several) > 1:
                parts.append(f"MIXED VERSIONS of {method} in {name}: {', '.join(several)}")
        if parts:
            lines[column] = f"† {'. '.join(parts)}. These cells cannot be compared."
    return lines
