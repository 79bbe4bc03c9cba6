"""`pflbench tune`: try a grid of a method's hyperparameters, and print the best as TOML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rich.table import Table

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

Columns = Annotated[list[str] | None, option("--column", help="This column, by id (default: those of the suite).")]


@asking(
    ("overrides", "rounds", "profile", "precision"),
    ("device", "jobs", "memory_limit", "deterministic", "redo", "data_dir", "unchecked"),
    columns=Columns,
)
def tune(
    selection: Selection,
    execution: Execution,
    suite: Annotated[str | None, option("--suite", "-s", help="A suite's name, or a .toml file.")] = None,
    method: Annotated[
        str | None, option("--method", "-m", help="A row or method id, or path/to/file.py:Class.")
    ] = None,
    grid: Annotated[
        list[str] | None, option("--grid", help="key=value,value: instead of the suite's grid; one for each key.")
    ] = None,
    full: Annotated[
        bool, option("--full/--reduced", help="All of the suite's grid, or the keys that matter most.")
    ] = False,
    seed: Annotated[int | None, option("--seed", min=0, help="Instead of the suite's for tuning, or 41.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    dry_run: options.DryRun = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Print the chosen values and problems only.")] = False,
) -> int:
    """Try a grid of a method's hyperparameters on a seed of its own, and print the best as TOML for the suite file.

    Every trial is a run like any other, but for a share of every client's training rows (its support), which is held
    out and scored on in place of the test rows: those are not looked at. What counts is what the table shows after the
    last round, of personal models if it shows them, else of the global one; the first of equals wins, and what
    diverges loses. Where a table scores clients that never train, they fine-tune on the rest of their support.

    The reduced search is for values that build on each other: tune FedAvg first and paste what it prints, also as the
    rates and batches of the methods that extend it, then tune the others.
    """
    from pflbench.cli.progress import Display
    from pflbench.running.training import train
    from pflbench.running.tuning import judged, work_of_searches
    from pflbench.store.store import Store
    from pflbench.suite.load import loaded
    from pflbench.suite.tuning import searches

    execution.check(selection.precision)
    if full and grid:
        raise UsageError("Either --full, which is the suite's grid, or a --grid of your own.")
    if method is None:
        raise UsageError("Which method? Write --method ID, a row or method of the suite, or file.py:Class.")
    (asked,) = loaded([suite] if suite else [], execution.data_dir)
    found = searches(asked, method, selection, full=full, grid=grid or (), seed=seed)
    profile = selection.profile or "paper"
    work = work_of_searches(asked, profile, found)
    with Display(quiet) as display:
        outcome = train(work, results, execution, display.event, dry=dry_run)
    errors_only = [one for one in outcome.dones if one.status == "error"]  # the table has the others
    say_failures(outcome._replace(earlier={}, dones=errors_only))
    chosen = [_conclude(one, quiet, dry_run) for one in judged(asked, profile, found, Store(results))]
    return 1 if outcome.problems or not (dry_run or all(chosen)) else 0


def _conclude(tuning: Tuning, quiet: bool, dry_run: bool) -> bool:
    """Print a search's trials, and the best if all have a result; whether there is one."""
    if not quiet:
        console().print(_table(tuning))
    if dry_run:
        return False
    if tuning.best is None:
        missing = tuning.missing
        lacking = f"{count(missing, 'trial')} without a result" if missing else "every trial failed"
        errors().print(f"Error: {tuning.title}: {lacking}, so nothing is chosen.")
        return False
    console().print(tuning.toml)
    return True


def _table(tuning: Tuning) -> Table:
    from pflbench.suite.tuning import text

    search = tuning.search
    grid = Table(title=tuning.title)
    for key in search.grid:
        grid.add_column(key, justify="right")
    grid.add_column(f"{search.reading.stage}, %", justify="right")
    grid.add_column("")
    for i, (trial, (accuracy, failure)) in enumerate(zip(search.trials, tuning.verdicts, strict=True)):
        lacks = f"failed: {failure}" if failure else "" if accuracy is not None else "to do"
        note = "best" if i == tuning.best else lacks
        cells = [*map(text, trial.values.values()), "" if accuracy is None else f"{accuracy:.2f}", note]
        grid.add_row(*cells, style="bold" if i == tuning.best else None)
    return grid
