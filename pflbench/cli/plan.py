"""`pflbench plan`: what a run would do, and what it would cost as far as finished runs tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from pflbench.cli import common
from pflbench.cli.asking import SELECTORS, asking
from pflbench.cli.common import console, errors
from pflbench.units import duration

if TYPE_CHECKING:
    from pflbench.running.planning import TablePlan
    from pflbench.selection import Selection


@asking(SELECTORS)
def plan(
    selection: Selection,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    The time comes from what `pflbench speed` measured on this machine; else from finished runs in this results folder
    that this machine's processor made; else from those of other machines ("others"). They tell of runs with the same
    method and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at most four times their
    rounds. Without any it is unknown.
    """
    from pflbench.data.root import data_root
    from pflbench.running import planning
    from pflbench.suite.labels import loaded, parts

    suites = loaded(common.required(selection.suites), data_dir)
    for reason in filter(None, map(planning.trains_nothing, suites)):
        console().print(reason)
    training = [suite for suite in suites if not planning.trains_nothing(suite)]
    found = planning.plan(parts(training, selection), results, data_root(data_dir))
    for table in found.tables:
        console().print(_grid(table))
        console().print(table.total)
    for lack in found.lacks:
        errors().print(f"Warning: {lack}")
    if found.hint:
        console().print(found.hint)
    return 0


def _grid(plan: TablePlan) -> Table:
    """A table that leaves ids whole in 80 characters, and tells of failures where there are any."""
    title = f"{plan.table.title} · profile {plan.table.profile}"
    grid = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    failed = any("failed" in line.states for line in plan.lines)
    for head in ("column", "method"):
        grid.add_column(head, overflow="fold")
    for head in ("runs", "done", *(["failed"] if failed else []), "rounds", "time"):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("source", overflow="fold")
    for line in plan.lines:
        counts = [len(line.states), line.states.count("done")] + ([line.states.count("failed")] if failed else [])
        cost = "unknown" if line.unknown else duration(line.seconds) if line.missing else ""
        grid.add_row(line.column, line.label, *map(str, [*counts, line.rounds]), cost, line.sources)
    return grid
