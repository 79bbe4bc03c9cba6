"""`pflbench run` and `plan`: train and score what is missing, or say how long that would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import EXECUTION, SELECTION, asking
from pflbench.commands import command
from pflbench.console import Console
from pflbench.data.root import data_root
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
    from pflbench.running import executors

    execution.check(selection.precision)
    with Display(quiet) as display:
        outcome = executors.run(selection, results, execution, display.event, dry=dry_run)
    out = Console(quiet=True) if quiet else console()
    say_outcome(outcome, out, dry=dry_run)
    if dry_run:
        if execution.executor == "slurm" and outcome.runnable:
            _say_jobs(len(outcome.runnable), selection, execution, results)
        return 1 if outcome.problems else 0
    if outcome.names and (outcome.finished or not (outcome.runnable or outcome.problems)):
        out.print(f"The table: {command('report', selection.but(methods=None, overrides=None).options, results)}")
    return 0 if outcome.good else 1


def _say_jobs(runs: int, selection: Selection, execution: Execution, results: Path) -> None:
    """The Slurm jobs of a dry run, and the time of their runs."""
    from pflbench.running import planning, slurm
    from pflbench.suite.load import loaded

    console().print(slurm.jobs_text(runs, execution))
    root = data_root(execution.data_dir)
    suites = loaded(selection.suites, execution.data_dir)
    planned = planning.plan(suites, selection, results, root, shard=execution.shard)
    for table in planned.tables:
        console().print(table.total)


def say_outcome(outcome: Outcome, out: Console, *, dry: bool) -> None:
    """What failed, and how many runs are finished; `dry`: what there is to do. Raises `typer.Exit` after SIGTERM."""
    if dry:
        for spec in outcome.runnable:
            out.print(f"  {outcome.called(spec)}")
        return
    say_failures(outcome)
    if outcome.stopped:
        errors().print("Stopped by SIGTERM. The same command goes on from the last checkpoint of each run under way.")
        raise typer.Exit(STOPPED)
    if outcome.dones:
        out.print(outcome.summary)


def say_failures(outcome: Outcome) -> None:
    """A message for each distinct cause why runs failed, now and earlier."""
    for message in outcome.failures(details=common.show_tracebacks):
        errors().print(f"Error: {message}")


@asking(SELECTION)
def plan(
    selection: Selection,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
    shard: options.ShardText = None,
    fresh: options.Fresh = False,
) -> int:
    """Say what `pflbench run` would do for this part of a suite: runs, what is done, time, disk. Trains nothing.

    A time comes from finished runs in this results folder that this machine's processor made; else from those of
    another machine, scaled by the time of one product of matrices where they have it. Finished runs tell of runs with
    the same method and hyperparameters, dataset, network, cohort, batch, precision and scoring, and of at most four
    times their rounds. What nothing tells is unknown: train one seed.
    """
    from pflbench.running.planning import plan
    from pflbench.suite.load import loaded
    from pflbench.units import parse_shard

    part = parse_shard(shard) if shard else None
    suites = loaded(selection.suites, data_dir)
    root = data_root(data_dir)
    made = plan(suites, selection, results, root, shard=part, fresh=fresh)
    for text in (*made.remarks, *made.tables):
        console().print(text)
    for lack in made.lacks:
        errors().print(f"Warning: {lack}")
    return 0
