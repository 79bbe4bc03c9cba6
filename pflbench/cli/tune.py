"""`pflbench tune`: try a grid of a method's hyperparameters, and print the best as TOML."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pflbench.cli import options
from pflbench.cli.common import console, errors
from pflbench.cli.options import asking, option
from pflbench.cli.run import say_failures
from pflbench.errors import UsageError
from pflbench.running.execution import Execution
from pflbench.selection import Selection
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.running.tuning import Tuning


@asking(
    ("suites", "columns", "seeds", "profile", "rounds", "overrides", "precision"),
    ("device", "jobs", "evaluate_every", "memory_limit", "deterministic", "redo", "data_dir", "unchecked"),
)
def tune(
    selection: Selection,
    execution: Execution,
    method: Annotated[
        str | None, option("--method", "-m", help="A row or method id, or path/to/file.py:Class.")
    ] = None,
    grid: Annotated[
        list[str] | None, option("--grid", help="key=value,value: instead of the suite's grid; one for each key.")
    ] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    dry_run: options.DryRun = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Print the chosen values and problems only.")] = False,
) -> int:
    """Try a grid of a method's hyperparameters on seeds for tuning, and print the best as TOML for the suite file.

    Every trial is a run that holds out a share of every client's training rows and is scored on it; test rows are not
    read. The table's stage after the last round counts (where the suite's [tune.read] says so: the mean over the last
    ten scored rounds), in the mean over seeds. The first of equals wins; diverged trials lose. Where a table scores
    clients that never train, they fine-tune on the rest of their support.

    Without --method, all rows with a grid are tuned, in the table's order.
    """
    from pflbench.cli.progress import Display
    from pflbench.running.training import train
    from pflbench.running.tuning import check_scored_rounds, jobs_of_searches, tuning_outcomes
    from pflbench.store.store import ShownStore
    from pflbench.suite.load import loaded
    from pflbench.suite.tuning import searches, tuned_rows

    if method is None and grid:
        raise UsageError("Which method? A --grid is that of one: write --method ID.")
    if len(selection.suites) > 1:
        raise UsageError(f"Several suites ({', '.join(selection.suites)}): one is tuned at a time.")
    typed = grid or ()
    (content,) = loaded(selection.suites, execution.data_dir)
    methods = tuned_rows(content, selection.profile) if method is None else [method]
    every = [one for name in methods for one in searches(content, name, selection, grid=typed)]
    check_scored_rounds(every, ShownStore(results), execution.evaluate_every)
    command = _command(content.called, selection, typed, execution.evaluate_every)

    def outcomes() -> list[Tuning]:
        return tuning_outcomes(every, ShownStore(results), command)

    with Display(quiet) as display:
        outcome = train(jobs_of_searches(every), replace(execution, results=results), display.event, dry=dry_run)
    errors_only = [one for one in outcome.dones if one.status == "error"]  # the table has the others
    say_failures(replace(outcome, earlier={}, dones=errors_only))
    chosen = [_conclude(one, quiet, dry_run) for one in outcomes()]
    return 1 if outcome.problems or not (dry_run or all(chosen)) else 0


def _command(suite: str, selection: Selection, grid: Iterable[str], every: int | None) -> str:
    """The command line of a search, without method and column."""
    command = f"pflbench tune -s {suite}{selection.but(suites=[], columns=[]).options}"
    command += "".join(f" --grid {shlex.quote(one)}" for one in grid)
    return command + (f" --evaluate-every {every}" if every else "")


def _conclude(tuning: Tuning, quiet: bool, dry_run: bool) -> bool:
    """Print a search's trials, and the best if all have a result. True if there is a best."""
    if not quiet:
        console().print(_table(tuning))
    if dry_run:
        return False
    if tuning.best is None:
        counts = f"of {count(len(tuning.scores), 'trial')}, {tuning.missing} without a result"
        errors().print(f"Error: {tuning.title}: nothing is chosen ({counts}).")
        return False
    console().print(tuning.toml)
    return True


def _table(tuning: Tuning) -> str:
    from tabulate import tabulate

    from pflbench.suite.tuning import set_text

    rows = []
    for i, (trial, (accuracy, failure)) in enumerate(zip(tuning.search.trials, tuning.scores, strict=True)):
        state = f"failed: {failure}" if failure else "to do" if accuracy is None else "best" * (i == tuning.best)
        score = "" if accuracy is None else f"{accuracy:.2f}"
        rows.append([*map(set_text, trial.values.values()), score, state])
    heads = [*tuning.search.grid, f"{tuning.search.read}, %", ""]
    return f"{tuning.title}\n{tabulate(rows, heads, 'simple', disable_numparse=True)}"
