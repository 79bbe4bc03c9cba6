"""`pflbench queue`: the reference runs still to make, the most important first, at the lowest priority."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.asking import asking
from pflbench.cli.common import console
from pflbench.cli.outcome import train_part
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.running.execution import Execution
    from pflbench.store import Store
    from pflbench.suite.queue import QueueItem

DEFAULT_FILE = Path("results/QUEUE.toml")


@asking(execution=("jobs", "data_dir"))
def queue(
    execution: Execution,
    file: Annotated[
        Path, typer.Option("--file", "-f", envvar="PFLBENCH_QUEUE", help="The queue: a .toml file.")
    ] = DEFAULT_FILE,
    list_: Annotated[bool, common.option("--list", "-l", help="Print the entries and how far they are.")] = False,
    minutes: Annotated[
        float | None, common.option("--minutes", min=0, help="Start no run after so many minutes.")
    ] = None,
    results: common.Results = common.DEFAULT_RESULTS,
    dry_run: common.DryRun = False,
) -> int:
    """Run the entries of the queue that are not finished, in their order, and pack those that are.

    It yields to everything else on the machine. A finished run is kept whatever happens next: interrupt it, and the
    same command goes on from there.
    """
    from pflbench.data.root import data_root
    from pflbench.running.queueing import states, steps
    from pflbench.store import Store
    from pflbench.store.packing import pack
    from pflbench.suite.own import Own
    from pflbench.suite.queue import read_queue

    items = read_queue(file, Own(data_root(execution.data_dir)))
    store = Store(results)
    store.list()  # names what is there and not taken
    if list_:
        _say(items, store)
        return 0
    if not dry_run and hasattr(os, "nice"):
        os.nice(19)
    end = None if minutes is None else monotonic() + 60 * minutes
    in_time = None if end is None else lambda: monotonic() < end
    good = True
    for item in items:
        if states(item.table.runs, store)["missing"] and (in_time is None or in_time()):
            console().print(f"{item.title}: {_progress(item, store)}.")
            for part in steps(item, store, execution.jobs, in_time):
                good &= train_part(part, results, execution, dry=dry_run)
        if not dry_run and states(item.table.runs, store).keys() == {"done"}:
            common.say_packed(pack(store, {spec.id for spec in item.table.runs}))
    if not dry_run:
        good &= _conclude(items, store, file)
    return 0 if good else 1


def _say(items: list[QueueItem], store: Store) -> None:
    for number, item in enumerate(items, 1):
        console().print(f"{number:>2}. {item.title}: {_progress(item, store)}{_cost(item, store)}.")
        if item.entry.note:
            console().print(f"    {item.entry.note}")


def _progress(item: QueueItem, store: Store) -> str:
    from pflbench.running.queueing import states

    found = states(item.table.runs, store)
    failed = f", {found['failed']} failed" if found["failed"] else ""
    return f"{found['done']} of {found.total()} done{failed}"


def _cost(item: QueueItem, store: Store) -> str:
    from pflbench.running.queueing import states

    cost = item.entry.cost
    if isinstance(cost, str):
        return f"; {cost}" if cost else ""
    todo = cost * states(item.table.runs, store)["missing"]
    return f"; {cost:g} min a run" + (f", {todo:g} min to do" if todo else "")


def _conclude(items: list[QueueItem], store: Store, file: Path) -> bool:
    """Say how far the queue is; whether nothing failed."""
    from pflbench.running.queueing import states

    found = states({spec for item in items for spec in item.table.runs}, store)
    failed = f", {found['failed']} failed" if found["failed"] else ""
    if found["missing"]:
        console().print(f"{str(file)!r}: {found['done']} of {count(found.total(), 'run')} done{failed}.")
    else:
        console().print(f"Nothing left to do in {str(file)!r}: {count(found['done'], 'run')} done{failed}.")
    return not found["failed"]
