"""`pflbench tune`: try a grid of a method's hyperparameters, and print the best as TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from pflbench.cli import common, run
from pflbench.cli.common import console, errors
from pflbench.errors import UsageError

if TYPE_CHECKING:
    from pflbench.report.shelf import Shelf
    from pflbench.suite.tuning import Search, Trial


def tune(
    suite: Annotated[
        str | None, typer.Option("--suite", "-s", envvar="PFLBENCH_SUITE", help="A suite's name, or a .toml file.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", envvar="PFLBENCH_METHOD", help="A row or method id, or path/to/file.py:Class."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", envvar="PFLBENCH_COLUMN", help="This column, by id (default: those of the suite)."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid", envvar="PFLBENCH_GRID", help="key=value,value: instead of the suite's grid; one for each key."
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--reduced", envvar="PFLBENCH_FULL", help="All of the suite's grid, or the keys that matter most."
        ),
    ] = False,
    set_: common.Sets = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, envvar="PFLBENCH_SEED", help="Instead of the suite's for tuning, or 41."),
    ] = None,
    rounds: common.Rounds = None,
    profile: common.Profile = "paper",
    precision: common.Precision = "fp32",
    device: common.Device = "auto",
    jobs: common.Jobs = None,
    memory_limit: common.MemoryLimit = None,
    deterministic: common.Deterministic = False,
    redo: common.Redo = "missing",
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
    unchecked: common.Unchecked = False,
    dry_run: common.DryRun = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", envvar="PFLBENCH_QUIET", help="Print the chosen values and problems only.")
    ] = False,
) -> int:
    """Try a grid of a method's hyperparameters on a seed of its own, and print the best as TOML for the suite file.

    Every trial is a run like any other, but for a share of every client's training rows (its support), which is held
    out and scored on in place of the test rows: those are not looked at. What counts is what the table shows after the
    last round, of personal models if it shows them, else of the global one; the first of equals wins, and what
    diverges loses. Where a table scores clients that never train, they fine-tune on the rest of their support.

    The reduced search is for values that build on each other: tune FedAvg first and paste what it prints, also as the
    rates and batches of the methods that extend it, then tune the others.
    """
    from pflbench.report.shelf import Shelf
    from pflbench.store.store import Store
    from pflbench.suite.tuning import searches

    how = run.How(
        results=results,
        data_dir=data_dir,
        device=device,
        precision=precision,
        jobs=jobs,
        memory_limit=memory_limit,
        deterministic=deterministic,
        redo=redo,
        quiet=quiet,
        unchecked=unchecked,
        dry_run=dry_run,
    )
    how.check()
    common.check_precision(precision)
    if full and grid:
        raise UsageError("Either --full, which is the suite's grid, or a --grid of your own.")
    (name,) = common.required([suite] if suite else None)
    if method is None:
        raise UsageError("Which method? Write --method ID, a row or method of the suite, or file.py:Class.")
    (asked,) = common.loaded([name], data_dir)
    found = searches(
        asked,
        method,
        profile=profile,
        columns=column,
        full=full,
        grid=grid or (),
        seed=seed,
        rounds=rounds,
        sets=set_ or (),
        precision=precision,  # type: ignore[arg-type]
    )
    rows = common.row_labels(asked, profile)
    labelled = [(search, rows.get(search.line.row.id, search.line.info.name)) for search in found]
    names = {trial.run.id: _name(search, trial, label) for search, label in labelled for trial in search.trials}
    outcome = run.train(
        [trial.run for search in found for trial in search.trials],
        {trial.run.id: search.places for search in found for trial in search.trials},
        names,
        how,
    )
    failures = [done for done in outcome.dones if done.status == "error"]  # the others are in the table
    run.say_failures(failures, {}, names)
    shelf = Shelf(Store(results))
    methods = {row.method for row in asked.document(profile).row}
    chosen = [
        _conclude(search, label, _target(search, methods), _verdicts(search, shelf), quiet, dry_run)
        for search, label in labelled
    ]
    return 1 if outcome.problems or not (dry_run or all(chosen)) else 0


def _text(value: Any) -> str:
    from pflbench.suite.tuning import text

    return text(value)


def _name(search: Search, trial: Trial, label: str) -> str:
    values = " ".join(f"{key}={_text(value)}" for key, value in trial.values.items())
    return f"{search.column.id} {values} · {label}"


class Target(NamedTuple):
    """Where the chosen values go: `[column.hyper.KEY]`. `beaten`: those of them that the row's own values win over."""

    key: str
    beaten: tuple[str, ...] = ()


def _target(search: Search, methods: Collection[str]) -> Target:
    """The method's values, but the row's where it has values of its own: only a column's by row id are stronger.

    `methods`: those of the suite's rows. A row whose id is one of them has no values by its id.
    """
    own = tuple(key for key in search.grid if key in search.own)
    if own and search.line.row.id not in methods:
        return Target(search.line.row.id)
    return Target(search.name, own)


class Verdict(NamedTuple):
    """A trial's accuracy on the validation rows in percent; without one, why it has none (empty: not run yet)."""

    accuracy: float | None
    failure: str = ""


def _verdicts(search: Search, shelf: Shelf) -> list[Verdict]:
    from pflbench.report.reading import average, scored
    from pflbench.report.table import Reading

    reading = Reading(search.stage, search.steps, search.column.smallest, search.mean)
    found = []
    for _, spec in search.trials:
        result = shelf.read(spec)
        if result is not None:
            found.append(Verdict(float(average(scored(result, reading), reading, result).mean())))
        else:
            found.append(Verdict(None, (shelf.stored[spec.id].failure or "") if shelf.failed(spec) else ""))
    return found


def _best(verdicts: list[Verdict]) -> int | None:
    """The trial with the best accuracy, the first of equals; None if all failed."""
    there = [i for i, verdict in enumerate(verdicts) if verdict.accuracy is not None]
    return max(there, key=lambda i: verdicts[i].accuracy or 0.0) if there else None


def _conclude(search: Search, label: str, target: Target, verdicts: list[Verdict], quiet: bool, dry_run: bool) -> bool:
    """Print a search's trials, and the best if all have a result; whether there is one."""
    title = f"{search.column.id} · {label} · seed {search.trials[0].run.seed}"
    missing = sum(verdict == Verdict(None) for verdict in verdicts)
    best = None if missing else _best(verdicts)
    if not quiet:
        console().print(_table(search, title, verdicts, best))
    if dry_run:
        return False
    if best is None:
        lacking = f"{common.count(missing, 'trial')} without a result" if missing else "every trial failed"
        errors().print(f"Error: {title}: {lacking}, so nothing is chosen.")
        return False
    console().print(_toml(search, target, verdicts, best))
    return True


def _table(search: Search, title: str, verdicts: list[Verdict], best: int | None) -> Table:
    grid = Table(title=title)
    for key in search.grid:
        grid.add_column(key, justify="right")
    grid.add_column(f"{search.stage}, %", justify="right")
    grid.add_column("")
    for i, (trial, (accuracy, failure)) in enumerate(zip(search.trials, verdicts, strict=True)):
        note = "best" if i == best else f"failed: {failure}" if failure else "" if accuracy is not None else "to do"
        cells = [*map(_text, trial.values.values()), "" if accuracy is None else f"{accuracy:.2f}", note]
        grid.add_row(*cells, style="bold" if i == best else None)
    return grid


def _toml(search: Search, target: Target, verdicts: list[Verdict], best: int) -> str:
    """The best values as a table of the column, under comments that say how they were found."""
    values, spec = search.trials[best]
    trials, failed = len(verdicts), sum(verdict.accuracy is None for verdict in verdicts)
    of = f"{common.count(trials, 'trial')}, {failed} of which failed" if failed else common.count(trials, "trial")
    tried = " × ".join(f"{key} of {', '.join(map(_text, choice))}" for key, choice in search.grid.items())
    lines = [
        f"# Column {search.column.id}, {common.count(spec.rounds, 'round')}, seed {spec.seed}: "
        f"{verdicts[best].accuracy:.2f} % ({search.stage}) on {100 * spec.validation:g} % of the training rows,",
        f"# the best of {of}: {tried}.",
    ]
    lines += [f"# Row {search.line.row.id} has its own {key}, which wins." for key in target.beaten]
    if search.guest:
        name = search.line.info.reference.rpartition(":")[2]
        lines.append(f"# Or: {' '.join(f'--set {name}.{key}={_text(value)}' for key, value in values.items())}")
    lines.append(f"[column.hyper.{_key(target.key)}]")
    for key, value in values.items():
        lines.append(f"# {key}: none" if value is None else f'{key} = {{ value = {_value(value)}, source = "tuned" }}')
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _value(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
