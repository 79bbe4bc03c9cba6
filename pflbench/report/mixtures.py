"""Columns whose cells cannot be compared, since their runs saw different data or ran different versions of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pflbench.report.text import ranges
from pflbench.store import Stored
from pflbench.suite.cells import Cell, Expansion


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


def runs_used(
    cells: Mapping[tuple[str, str], Cell], titles: Mapping[str, str], stored: Mapping[str, Stored]
) -> list[Used]:
    """Every stored run once for each row and column of the suite that it stands in.

    `cells` by the ids of row and head; `titles` of the rows, by id; `stored` by id.
    """
    found = {
        (row, cell.column.id, run.id): Used(titles[row], cell.column.id, cell.column.setting, stored[run.id])
        for (row, _), cell in cells.items()
        for run in cell.needed
        if run.id in stored
    }
    return list(found.values())


def marked(title: str, used: Iterable[Used]) -> str:
    """A row's title, with a mark where one of its runs is of a method that was not held against the contract."""
    doubted = any(u.row == title and u.stored.provenance.get("unchecked") for u in used)
    return f"{title} (unchecked)" if doubted else title


_Shares = dict[str, dict[str, list[int]]]
"""Who has which version of something: by version and row the seeds."""


def mixtures(table: Expansion, used: Sequence[Used]) -> dict[str, str]:
    """For each column whose runs mix data, or versions of a method, dataset, partition or network: a line saying so.

    What a user's dataset or partition reads may depend on the seed, so its content may differ between seeds. Several
    contents within one seed are a mixture.
    """
    suite_ids = {run.id for cell in table.cells for run in cell.needed}
    lines: dict[str, str] = {}
    for column in table.columns:
        name = column.setting
        done = [u for u in used if u.column == column.id and u.stored.failure is None]
        data: _Shares = {}
        methods: dict[str, dict[str, None]] = {}
        for one in done:
            _note(data, one.data_hash, one)
            if one.stored.spec.id in suite_ids:  # extra rows carry their version in the title
                methods.setdefault(one.stored.spec.method.name, {})[one.stored.spec.method.version] = None
        parts = [f"MIXED DATA in {name}: {_listed(data)}"] if len(data) > 1 else []
        parts += [
            f"MIXED VERSIONS of {method} in {name}: {', '.join(several)}"
            for method, several in methods.items()
            if len(several) > 1
        ]
        parts += [f"MIXED VERSIONS of {what} in {name}: {_listed(shares)}" for what, shares in _own(done).items()]
        if parts:
            lines[column.id] = f"† {'. '.join(parts)}. These cells cannot be compared."
    return lines


def _own(done: Iterable[Used]) -> dict[str, _Shares]:
    """The datasets, partitions and networks of a user's of which these runs have several, and who has which."""
    code: dict[str, _Shares] = {}
    read: dict[str, _Shares] = {}
    for one in done:
        spec = one.stored.spec
        _note(code.setdefault(spec.model, {}), spec.model_version or "none", one)
        for named in (spec.dataset, spec.partition):
            _note(code.setdefault(named.name, {}), named.version or "none", one)
            _note(read.setdefault(f"what is read by {named.name}", {}), named.content or "nothing", one)
    mixed = {what: shares for what, shares in code.items() if len(shares) > 1}
    return mixed | {what: shares for what, shares in read.items() if _mixed(shares)}


def _mixed(shares: _Shares) -> bool:
    """Whether some seed has several contents, or seeds share some contents but not all."""
    seeds = [{seed for several in rows.values() for seed in several} for rows in shares.values()]
    return len(shares) > 1 and (any(len(several) > 1 for several in seeds) or len(set().union(*seeds)) < len(seeds))


def _note(shares: _Shares, version: str, one: Used) -> None:
    shares.setdefault(version, {}).setdefault(one.row, []).append(one.stored.spec.seed)


def _listed(shares: _Shares) -> str:
    return "; ".join(
        f"{version[:12]} in {', '.join(f'{row} (seeds {ranges(seeds)})' for row, seeds in rows.items())}"
        for version, rows in shares.items()
    )
