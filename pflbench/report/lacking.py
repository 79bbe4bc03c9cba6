"""Which runs of a table are missing, exactly, and the command that computes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pflbench.commands import command
from pflbench.report.table import Grid
from pflbench.report.text import grouped, ranges
from pflbench.suite.cells import Expansion


def lacking(table: Expansion, grid: Grid, results: Path) -> str:
    """A sentence on the suite's runs that are not done, and the command that computes them; empty if all are.

    `results`: the folder that the command names.
    """
    whole, absent = _by_row(table, grid)
    if not absent:
        return ""
    rows = {row: _said(absent[row], whole[row]) for row in whole if row in absent}
    alike = grouped((what, row) for row, what in rows.items())
    listed = "; ".join(f"{', '.join(titles)}: {what}" for what, titles in alike.items())
    failed = any(grid[place].failed for place in table.places if place in grid)
    computes = command("run", table.part.options + " --redo failed" * failed, results)
    return f"Missing{' or failed' if failed else ''}: {listed}. `{computes}` computes them."


_Seeds = dict[str, dict[str, set[int]]]
"""Seeds by the titles of rows and columns."""


def _by_row(table: Expansion, grid: Grid) -> tuple[_Seeds, _Seeds]:
    """The seeds that are asked for, and those of them that are not done; of the latter only places that lack any."""
    whole, absent = _Seeds(), _Seeds()
    for place, cell in table.places.items():
        asked = {needed[0].seed for needed in cell.by_seed}
        whole.setdefault(cell.row.title, {}).setdefault(cell.column.setting, set()).update(asked)
        done = grid[place].runs if place in grid else {}
        if open_ := asked - set(done):
            absent.setdefault(cell.row.title, {}).setdefault(cell.column.setting, set()).update(open_)
    return whole, absent


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
