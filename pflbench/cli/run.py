"""`pflbench run` and `plan`: train and score what is missing, or say how long that would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import EXECUTION, SELECTION, asking
from pflbench.commands import command
from pflbench.console import Console
from pflbench.running.execution import Execution
from pflbench.selection import Selection

if TYPE_CHECKING:
    from pflbench.running.training import Outcome

STOPPED = 75
"""Exit status of `run` that SIGTERM ended: EX_TEMPFAIL, "try again later"."""


@asking(SELECTION, EXECUTION)
def run(
    selection: Selection,
    execution: Execution,
    results: options.Results = options.DEFAULT_RESULTS,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> int:
    """Train and score every run of a suite that has no result yet.

    A finished run is kept whatever happens next: interrupt it, and the same command goes on from there.
    """
    from pflbench.cli.progress import Display
    from pflbench.running import training

    with Display(quiet) as display:
        outcome = training.run(selection, results, execution, display.event, dry=dry_run)
    out = Console(quiet=quiet)
    if dry_run:
        for spec in outcome.runnable:
            out.print(f"  {outcome.name(spec)}")
        if execution.executor == "slurm" and outcome.runnable:
            _say_jobs(len(outcome.runnable), selection, execution, results)
        return 1 if outcome.problems else 0
    say_failures(outcome)
    if outcome.stopped:
        errors().print("Stopped by SIGTERM. The same command goes on from the last checkpoint of each run under way.")
        return STOPPED
    if outcome.runnable:
        out.print(outcome.summary)
    if outcome.good and len(outcome.dones) < len(outcome.runnable):
        out.print("Other processes train the runs that were not started.")
    if outcome.names and (outcome.finished or (outcome.good and not outcome.runnable)):
        shown = selection.but(methods=None, overrides=None, like=None)
        out.print(f"The table: {command('report', shown.options, results)}")
    return 0 if outcome.good else 1


def _say_jobs(runs: int, selection: Selection, execution: Execution, results: Path) -> None:
    """The Slurm jobs of a dry run, and the time of their runs."""
    from pflbench import api
    from pflbench.running import slurm

    console().print(slurm.jobs_text(runs, execution))
    how = {name: getattr(execution, name) for name in ("data_dir", "shard", "fresh")}
    for table in api.plan(selection, results, **how).tables:
        console().print(table.total)


def say_failures(outcome: Outcome) -> None:
    """A message for each distinct cause why runs failed, now and earlier."""
    for message in outcome.failures(details=common.show_tracebacks):
        errors().print(f"Error: {message}")


@asking(SELECTION, ("data_dir", "shard", "fresh"))
def plan(selection: Selection, execution: Execution, results: options.Results = options.DEFAULT_RESULTS) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    A time comes from finished runs with the same method, hyperparameters, dataset, network, cohort, batch, precision
    and scoring, and at least a fourth of the rounds. Its source: `runs` on this processor, runs on another one,
    `scaled` by the time of one product of matrices, or `unscaled` where they lack it. Else it is unknown: train a seed.
    """
    from pflbench import api

    how = {name: getattr(execution, name) for name in ("data_dir", "shard", "fresh")}
    console().print(str(api.plan(selection, results, **how)) or "Nothing to run: the shard is empty.")
    return 0
