"""`pflbench queue`: the reference runs still to make, the most important first, at the lowest priority."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

from pflbench.cli import common, options
from pflbench.cli.common import console, states
from pflbench.cli.options import asking, option
from pflbench.cli.run import train_part
from pflbench.data.root import data_root
from pflbench.running.execution import Execution, choose_device
from pflbench.selection import Selection
from pflbench.store import Store
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.suite.queue import QueueItem

DEFAULT_FILE = Path("results/QUEUE.toml")


@asking(execution=("jobs", "data_dir"))
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
    end = None if minutes is None else monotonic() + 60 * minutes
    in_time = None if end is None else lambda: monotonic() < end
    good = True
    for item in items:
        found = states(item.table.runs, store)
        if found["missing"] and (in_time is None or in_time()):
            console().print(f"{item.title}: {_progress(found)}.")
            scored = replace(execution, evaluate_every=item.entry.evaluate_every)
            for part in _steps(item, store, execution.jobs, in_time):
                good &= train_part(part, results, scored, dry=dry_run)
        if not dry_run and states(item.table.runs, store).keys() == {"done"}:
            common.say_packed(pack(store, {spec.id for spec in item.table.runs}))
    if not dry_run:
        good &= _conclude(items, store, file)
    return 0 if good else 1


def _steps(item: QueueItem, store: Store, jobs: int | None, in_time: Callable[[], bool] | None) -> Iterator[Selection]:
    """Parts of an entry to train: all of it, or, where time is short, one after the other as many as run at a time.

    Each is to be trained before the next is asked for. `jobs`: processor cores to use, None for all; `in_time`: whether
    there is time to start something, None where there is no end.
    """
    from pflbench.running.local import cores  # which imports torch

    if in_time is None:
        alike = all(len(cell.by_seed) == len(item.table.seeds) for cell in item.table.cells)
        seeds = item.table.seeds if alike else item.part.seeds  # a column may have seeds of its own
        yield item.part.but(columns=[column.id for column in item.table.columns], seeds=seeds)
        return
    for place in item.cells():
        missing = list(dict.fromkeys(spec.seed for spec in place.runs if store.status(spec.id) == "missing"))
        size = len(missing) if choose_device("auto").startswith("cuda") else jobs or cores()  # a stack on a GPU
        for first in range(0, len(missing), size):
            now = missing[first : first + size]
            if in_time():
                yield place.part.but(seeds=now)
            if states([spec for spec in place.runs if spec.seed in now], store)["missing"]:
                break  # time is up, or there is something that the next seeds would stumble on too, as missing data


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
