"""`pflbench plan`: what a run would do, and how long it would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich import box
from rich.table import Table

from pflbench.cli import common
from pflbench.cli.asking import SELECTORS, asking
from pflbench.cli.common import console, errors

if TYPE_CHECKING:
    from pflbench.running.events import Event
    from pflbench.running.planning import TablePlan
    from pflbench.selection import Selection


@asking(SELECTORS)
def plan(
    selection: Selection,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
    measure: Annotated[
        bool,
        common.option(
            "--measure/--no-measure",
            help="Where a time is unknown, measure for seconds how fast this machine trains, or leave it unknown.",
        ),
    ] = True,
) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    A time comes from what `pflbench speed` or an earlier plan measured on this machine; else from finished runs in
    this results folder that this machine's processor made; else from those of another machine. Finished runs tell of
    runs with the same method and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at
    most four times their rounds. What nothing tells is measured on one core, and kept.
    """
    from pflbench.data.root import data_root
    from pflbench.running.planning import plan
    from pflbench.suite.labels import loaded

    suites = loaded(common.required(selection.suites), data_dir)
    made = plan(suites, selection, results, data_root(data_dir), measure=measure, on_event=_say_measuring)
    for remark in made.remarks:
        console().print(remark)
    for table in made.tables:
        console().print(_grid(table))
        console().print(table.total)
    for lack in made.lacks:
        errors().print(f"Warning: {lack}")
    for reason in made.unknown:
        console().print(reason)
    return 0


def _say_measuring(event: Event) -> None:
    errors().print(f"{event} --no-measure leaves it out.")


def _grid(plan: TablePlan) -> Table:
    """A table that leaves ids whole in 80 characters. Failures and missing data have a column only if there are any."""
    title = f"{plan.table.title} · profile {plan.table.profile}"
    grid = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    failed = any("failed" in line.states for line in plan.lines)
    lacks = any(line.lacks for line in plan.lines)
    for head in ("column", "method"):
        grid.add_column(head, overflow="fold")
    for head in ("runs", "done", *(["failed"] if failed else []), "rounds", "time"):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("source", overflow="fold")
    if lacks:
        grid.add_column("data", no_wrap=True)
    for line in plan.lines:
        counts = [len(line.states), line.states.count("done")] + ([line.states.count("failed")] if failed else [])
        data = ["no" if line.lacks else "yes"] if lacks else []
        grid.add_row(line.column, line.label, *map(str, [*counts, line.rounds]), line.time, line.sources, *data)
    return grid
