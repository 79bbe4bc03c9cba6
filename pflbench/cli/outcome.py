"""What the verbs that train have in common: progress, and a summary at the end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pflbench.cli import common
from pflbench.cli.common import console, errors
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.executor.task import Done
    from pflbench.running.execution import Execution
    from pflbench.running.training import Outcome, Work
    from pflbench.selection import Selection
    from pflbench.spec import RunSpec


def train_part(part: Selection, results: Path, execution: Execution, *, quiet: bool = False, dry: bool = False) -> bool:
    """Train what has no result of this part of some suites, and count what statistics are not counted yet.

    Returns whether everything has a result then. `dry`: only list what there is to do.
    """
    from pflbench.cli.progress import Display
    from pflbench.running.counting import count_datasets
    from pflbench.running.training import work_of
    from pflbench.suite.labels import loaded, parts

    suites = loaded(common.required(part.suites), execution.data_dir)
    trained = [suite for suite in suites if suite.document().statistics is None]
    work = work_of(parts(trained, part))
    with Display(quiet) as display:
        missing = count_datasets(suites, part, results, execution, display.event, dry=dry)
    if not trained:
        return not missing
    outcome = carried_out(work, results, execution, quiet=quiet, dry=dry)
    out = Console(quiet=True) if quiet else console()
    if dry:
        for spec in outcome.plan.runnable:
            out.print(f"  {_name(spec, work.names)}")
        return not (outcome.plan.problems or missing)
    say_failures(outcome.dones, outcome.plan.earlier, work.names)
    good, idle = sum(done.status == "done" for done in outcome.dones), len(outcome.plan.runnable) - len(outcome.dones)
    if outcome.dones:
        rest = f", {idle} not started" if idle else ""
        out.print(f"{count(good, 'run')} finished, {len(outcome.dones) - good} failed{rest}.")
    if good or not outcome.plan.runnable:
        elsewhere = "" if results == common.DEFAULT_RESULTS else f" --results {shlex.quote(str(results))}"
        out.print(f"The table: pflbench report{part.but(methods=None, overrides=None).options}{elsewhere}")
    return outcome.good and not missing


def carried_out(work: Work, results: Path, execution: Execution, *, quiet: bool, dry: bool) -> Outcome:
    """Train, and show how it goes. `dry`: say what there is to do, and stop."""
    from pflbench.cli.progress import Display
    from pflbench.running.training import Outcome, check, to_train, train
    from pflbench.store.store import Store

    with Display(quiet) as display:
        if dry:
            found = to_train(work, Store(results), execution, display.event)
            check(found, work)
            return Outcome(found, [])
        return train(work, results, execution, display.event)


def say_failures(dones: Sequence[Done], earlier: Mapping[RunSpec, str], names: Mapping[str, str]) -> None:
    """One message per distinct cause, now and earlier. `names`: what each run is called but for its seed, by its id."""
    for message, specs in _by_message({d.spec: d.message for d in dones if d.status != "done"}).items():
        errors().print(f"Error: {_names(specs, names)}: {message}")
        if common.show_tracebacks:
            errors().print(next(d.detail for d in dones if d.spec == specs[0]))
    if earlier:
        are = "run that failed before was" if len(earlier) == 1 else "runs that failed before were"
        errors().print(f"Error: {len(earlier)} {are} left alone; --redo failed tries again.")
        for message, specs in _by_message(earlier).items():
            errors().print(f"  {_names(specs, names)}: {message}")


def _by_message(messages: Mapping[RunSpec, str]) -> dict[str, list[RunSpec]]:
    found: dict[str, list[RunSpec]] = {}
    for spec, message in messages.items():
        found.setdefault(message, []).append(spec)
    return found


def _names(specs: list[RunSpec], names: Mapping[str, str]) -> str:
    return _name(specs[0], names) + (f" and {len(specs) - 1} more" if len(specs) > 1 else "")


def _name(spec: RunSpec, names: Mapping[str, str]) -> str:
    return f"{names[spec.id]} · seed {spec.seed} · {count(spec.rounds, 'round')}"
