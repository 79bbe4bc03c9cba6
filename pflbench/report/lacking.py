"""Which runs of a table are missing and which failed, exactly, and the command that computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pflbench.commands import command
from pflbench.report.table import Grid
from pflbench.report.text import grouped, ranges
from pflbench.spec import RunSpec
from pflbench.suite.cells import Expansion


def lacking(table: Expansion, grid: Grid, results: Path, failed: Callable[[RunSpec], bool]) -> str:
    """Sentences on the suite's runs that are not there or failed, and the command that computes them; empty if none.

    `results`: the folder that the command names. `failed`: whether a run is there and failed, as one that diverged.
    """
    whole, absent, broken = _by_row(table, grid, failed)
    if not absent and not broken:
        return ""
    computes = command("run", table.part.options + " --redo failed" * bool(broken), results)
    if absent == whole:
        rows = " of the suite's rows" if any(value.there for value in grid.values()) else ""
        return f"No runs yet{rows}: `{computes}` makes them."
    said = [f"Missing: {_listed(absent, whole)}." if absent else ""]
    said += [f"Missing, as they failed: {_listed(broken, whole)}." if broken else ""]
    return f"{' '.join(filter(None, said))} `{computes}` computes them."


def _listed(some: _Seeds, whole: _Seeds) -> str:
    rows = {row: _said(some[row], whole[row]) for row in whole if row in some}
    alike = grouped((what, row) for row, what in rows.items())
    return "; ".join(f"{', '.join(titles)}: {what}" for what, titles in alike.items())


_Seeds = dict[str, dict[str, set[int]]]
"""Seeds by the titles of rows and columns."""


def _by_row(table: Expansion, grid: Grid, failed: Callable[[RunSpec], bool]) -> tuple[_Seeds, _Seeds, _Seeds]:
    """The seeds that are asked for; of those that are not done the ones without a failed run, and the ones with."""
    whole, absent, broken = _Seeds(), _Seeds(), _Seeds()
    for place, cell in table.places.items():
        done = grid[place].runs if place in grid else {}
        for runs in cell.by_seed:
            kinds = [whole]
            if runs[0].seed not in done:
                kinds.append(broken if any(map(failed, runs)) else absent)
            for kind in kinds:
                kind.setdefault(cell.row.title, {}).setdefault(cell.column.setting, set()).add(runs[0].seed)
    return whole, absent, broken


def _said(absent: Mapping[str, set[int]], whole: Mapping[str, set[int]]) -> str:
    """`all`, or `Shards, Dirichlet (seeds 1–4)`: the columns with the seeds, unless it is all of them.

    Of most columns it is said which they are not: `all but Shards, and Dirichlet (seeds 1–4)`.
    """
    if absent == whole:
        return "all"
    parts = grouped((ranges(sorted(seeds)), column) for column, seeds in absent.items() if seeds != whole[column])
    said = [f"{', '.join(columns)} (seed{'s' * (len(seeds) > 1)} {seeds})" for seeds, columns in parts.items()]
    entire = [column for column, seeds in absent.items() if seeds == whole[column]]
    if 2 * len(entire) > len(whole):
        others = f"all but {', '.join(column for column in whole if column not in entire)}"
        return ", and ".join([others, *([", ".join(said)] if said else [])])
    return ", ".join([*entire, *said])
