"""`pflbench queue`: the reference runs still to make, the most important first, at the lowest priority."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from pflbench.cli import common, options
from pflbench.cli.common import console, states
from pflbench.cli.options import asking, option
from pflbench.cli.run import say_outcome
from pflbench.data.root import data_root
from pflbench.running.execution import Execution
from pflbench.store import Store
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.suite.queue import QueueItem

DEFAULT_FILE = Path("results/QUEUE.toml")


@asking(execution=("jobs", "checkpoint_every", "data_dir"))
def queue(
    execution: Execution,
    file: Annotated[
        Path, option("--file", "-f", envvar="PFLBENCH_QUEUE", help="The queue: a .toml file.")
    ] = DEFAULT_FILE,
    list_: Annotated[bool, option("--list", "-l", help="Print the entries and how far they are.")] = False,
    minutes: Annotated[float | None, option("--minutes", min=0, help="Start no run after so many minutes.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    dry_run: options.DryRun = False,
) -> int:
    """Run the entries of the queue that are not finished, in their order, and pack those that are.

    It yields to everything else on the machine. A finished run is kept whatever happens next: interrupt it, and the
    same command goes on from there.
    """
    from pflbench.store.packing import pack
    from pflbench.suite.queue import read_queue
    from pflbench.suite.user_supplied import UserSupplied

    items = read_queue(file, UserSupplied(data_root(execution.data_dir), imports=True))
    store = Store(results, mends=not any((list_, dry_run)))
    store.list()  # names what is there and not taken
    if list_:
        _say(items, store)
        return 0
    if not dry_run and hasattr(os, "nice"):
        os.nice(19)
    unfinished = [item for item in items if states(item.table.runs, store)["missing"]]
    until = None if minutes is None else monotonic() + 60 * minutes
    try:
        good = not unfinished or _train(unfinished, results, replace(execution, until=until), dry=dry_run)
    finally:  # whatever happens, what is complete is packed
        if not dry_run:
            complete = [item.table.runs for item in items if states(item.table.runs, store).keys() == {"done"}]
            common.say_packed(pack(store, {spec.id for runs in complete for spec in runs}))
    if not dry_run:
        good &= _conclude(items, store, file)
    return 0 if good else 1


def _train(items: list[QueueItem], results: Path, execution: Execution, *, dry: bool) -> bool:
    """Train what is missing, or list it; whether nothing stood in the way."""
    from pflbench.cli.progress import Display
    from pflbench.running.executors import run_in_turn

    with Display(quiet=False) as display:
        outcome = run_in_turn(items, results, execution, display.event, dry=dry)
    say_outcome(outcome, console(), dry=dry)
    return not outcome.problems


def _progress(found: Counter[str]) -> str:
    return f"{found['done']} of {found.total()} done{_failed(found)}"


def _failed(found: Counter[str]) -> str:
    return f", {found['failed']} failed" if found["failed"] else ""


def _say(items: list[QueueItem], store: Store) -> None:
    for number, item in enumerate(items, 1):
        found, cost = states(item.table.runs, store), item.entry.cost
        if not isinstance(cost, str):
            todo = cost * found["missing"]
            cost = f"{cost:g} min a run" + (f", {todo:g} min to do" if todo else "")
        console().print(f"{number:>2}. {item.title}: {_progress(found)}{cost and f'; {cost}'}.")
        if item.entry.note:
            console().print(f"    {item.entry.note}")


def _conclude(items: list[QueueItem], store: Store, file: Path) -> bool:
    """Say how far the queue is; whether nothing failed."""
    found = states({spec for item in items for spec in item.table.runs}, store)
    if found["missing"]:
        console().print(f"{str(file)!r}: {found['done']} of {count(found.total(), 'run')} done{_failed(found)}.")
    else:
        console().print(f"Nothing left to do in {str(file)!r}: {count(found['done'], 'run')} done{_failed(found)}.")
    return not found["failed"]
