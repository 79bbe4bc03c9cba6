"""`pflbench tune`: try a grid of a method's hyperparameters, and print the best as TOML."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pflbench.cli import options
from pflbench.cli.common import console, errors
from pflbench.cli.options import asking, option
from pflbench.cli.run import say_failures
from pflbench.errors import UsageError
from pflbench.running.execution import Execution
from pflbench.selection import Selection

if TYPE_CHECKING:
    from pflbench.running.tuning import Tuning
    from pflbench.suite.document import Suite
    from pflbench.suite.tuning import Search

Seeds = Annotated[str | None, option("--seeds", help="Several seeds for tuning, 41-43: means over them count.")]
Columns = Annotated[list[str] | None, option("--column", help="This column, by id (default: those of the suite).")]


@asking(
    ("overrides", "rounds", "profile", "precision"),
    ("device", "jobs", "evaluate_every", "memory_limit", "deterministic", "redo", "data_dir", "unchecked"),
    columns=Columns,
    seeds=Seeds,
)
def tune(
    selection: Selection,
    execution: Execution,
    named: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="The same as --suite.")] = None,
    suite: Annotated[str | None, option("--suite", "-s", help="A suite's name, or a .toml file.")] = None,
    method: Annotated[
        str | None, option("--method", "-m", help="A row or method id, or path/to/file.py:Class.")
    ] = None,
    grid: Annotated[
        list[str] | None, option("--grid", help="key=value,value: instead of the suite's grid; one for each key.")
    ] = None,
    seed: Annotated[int | None, option("--seed", min=0, help="Instead of the suite's for tuning, or 41.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    dry_run: options.DryRun = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Print the chosen values and problems only.")] = False,
) -> int:
    """Try a grid of a method's hyperparameters on a seed of its own, and print the best as TOML for the suite file.

    Every trial is a run like any other, but for a share of every client's training rows (its support), which is held
    out and scored on in place of the test rows: those are not looked at. What counts is what the table shows after the
    last round (where the suite's [tune.read] says so: in the mean over the last ten scored rounds), of personal models
    if it shows them, else of the global one; the first of equals wins, and what diverges loses. Where a table scores
    clients that never train, they fine-tune on the rest of their support.

    Without --method, all rows with a grid are tuned, in the table's order.
    """
    from pflbench.suite.load import loaded
    from pflbench.suite.tuning import searches, tuned_rows

    execution.check(selection.precision)
    if seed is not None and selection.seeds:
        raise UsageError("Either --seed or --seeds.")
    if method is None and grid:
        raise UsageError("Which method? A --grid is that of one: write --method ID.")
    (asked,) = loaded(_one(named, suite), execution.data_dir)
    methods = tuned_rows(asked, selection.profile) if method is None else [method]
    typed = selection.but(columns=[], seeds=selection.seeds or ([] if seed is None else [seed]))
    searched = _searched(grid or (), execution.evaluate_every)
    command = f"pflbench tune -s {asked.called}{typed.options}{searched}"
    code = 0
    for one in methods:
        found = searches(asked, one, selection, grid=grid or (), seed=seed)
        code = max(code, _tune(asked, selection.profile or "paper", found, command, results, execution, quiet, dry_run))
    return code


def _one(named: str | None, suite: str | None) -> list[str]:
    """The suite, which is named with or without its option; none if it is not named."""
    found = [one for one in (named, suite) if one]
    if len(found) > 1:
        raise UsageError(f"Either the suite {named!r} or --suite {suite}: one is tuned at a time.")
    return found


def _searched(grid: Sequence[str], every: int | None) -> str:
    """Return the options of a search as they are typed."""
    options = [f"--grid {shlex.quote(one)}" for one in grid] + [f"--evaluate-every {every}"] * bool(every)
    return "".join(f" {one}" for one in options)


def _tune(
    suite: Suite,
    profile: str,
    found: Sequence[Search],
    command: str,
    results: Path,
    execution: Execution,
    quiet: bool,
    dry_run: bool,
) -> int:
    """Train the trials of a method, and print what is best; the exit code."""
    from pflbench.cli.progress import Display
    from pflbench.running.executors import train
    from pflbench.running.tuning import check_scored_rounds, tuning_outcomes, work_of_searches
    from pflbench.store.store import Store

    check_scored_rounds(found, Store(results, packaged=True), execution.evaluate_every)
    before = tuning_outcomes(suite, profile, found, Store(results, packaged=True))
    with Display(quiet) as display:
        outcome = train(work_of_searches(before), results, execution, display.event, dry=dry_run)
    errors_only = [one for one in outcome.dones if one.status == "error"]  # the table has the others
    say_failures(outcome._replace(earlier={}, dones=errors_only))
    store = Store(results, packaged=True)
    chosen = [_conclude(one, quiet, dry_run) for one in tuning_outcomes(suite, profile, found, store, command)]
    return 1 if outcome.problems or not (dry_run or all(chosen)) else 0


def _conclude(tuning: Tuning, quiet: bool, dry_run: bool) -> bool:
    """Print a search's trials, and the best if all have a result; whether there is one."""
    if not quiet:
        console().print(_table(tuning))
    if dry_run:
        return False
    if tuning.best is None:
        errors().print(f"Error: {tuning.title}: {tuning.lacking}, so nothing is chosen.")
        return False
    console().print(tuning.toml)
    return True


def _table(tuning: Tuning) -> Table:
    from pflbench.suite.tuning import set_text

    search = tuning.search
    grid = Table(title=tuning.title)
    for key in search.grid:
        grid.add_column(key, justify="right")
    grid.add_column(f"{search.read}, %", justify="right")
    grid.add_column("")
    for i, (trial, (accuracy, failure, *_)) in enumerate(zip(search.trials, tuning.verdicts, strict=True)):
        lacks = f"failed: {failure}" if failure else "" if accuracy is not None else "to do"
        note = "best" if i == tuning.best else lacks
        score = "" if accuracy is None else f"{accuracy:.2f}"
        grid.add_row(*map(set_text, trial.values.values()), score, note, style="bold" if i == tuning.best else None)
    return grid
