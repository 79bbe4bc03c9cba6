"""`pflbench queue`: the reference runs still to make, the worthiest first, at the lowest priority."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pflbench.cli import common, pack, run
from pflbench.cli.common import console

if TYPE_CHECKING:
    from pflbench.spec import RunSpec
    from pflbench.store import Store
    from pflbench.suite.queue import Item

DEFAULT_FILE = Path("results/QUEUE.toml")


def queue(
    file: Annotated[
        Path, typer.Option("--file", "-f", envvar="PFLBENCH_QUEUE", help="The queue: a .toml file.")
    ] = DEFAULT_FILE,
    list_: Annotated[
        bool, typer.Option("--list", "-l", envvar="PFLBENCH_LIST", help="Print the entries and how far they are.")
    ] = False,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0, envvar="PFLBENCH_MINUTES", help="Start no run after so many minutes."),
    ] = None,
    jobs: common.Jobs = None,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", envvar="PFLBENCH_DRY_RUN", help="Say what would run, and stop.")
    ] = False,
) -> int:
    """Run the entries of the queue that are not finished, in their order, and pack those that are.

    It yields to everything else on the machine. A finished run is kept whatever happens next: interrupt it, and the
    same command goes on from there.
    """
    from pflbench.data.root import data_root
    from pflbench.store import Store
    from pflbench.store.pack import pack as pack_runs
    from pflbench.suite.own import Own
    from pflbench.suite.queue import read_queue

    items = read_queue(file, Own(data_root(data_dir)))
    store = Store(results)
    store.list()  # names what is there and not taken
    if list_:
        for number, item in enumerate(items, 1):
            console().print(f"{number:>2}. {item.title}: {_progress(item, store)}{_cost(item, store)}.")
            if item.entry.note:
                console().print(f"    {item.entry.note}")
        return 0
    if not dry_run and hasattr(os, "nice"):
        os.nice(19)
    end = math.inf if minutes is None else monotonic() + 60 * minutes
    code = 0
    for item in items:
        if _states(item.table.runs, store)["missing"] and monotonic() < end:
            console().print(f"{item.title}: {_progress(item, store)}.")
            for choice in _choices(item, store, jobs, end):
                code |= run.run(**choice, jobs=jobs, results=results, data_dir=data_dir, dry_run=dry_run)
        if not dry_run and _states(item.table.runs, store).keys() == {"done"}:
            pack.say(pack_runs(store, {spec.id for spec in item.table.runs}))
    return code if dry_run else code | _conclude(items, store, file)


def _choices(item: Item, store: Store, jobs: int | None, end: float) -> Iterator[dict[str, Any]]:
    """What to ask `run` for: the whole entry, or, if time is short, one after the other what runs at a time."""
    from pflbench.suite.queue import seed_text

    chosen: dict[str, Any] = {"suite": [item.suite], "profile": item.entry.profile}
    if end == math.inf:
        columns = [column.id for column in item.table.columns]
        methods = None if item.methods is None else list(item.methods)
        yield chosen | {"column": columns, "method": methods, "seeds": seed_text(item.table.seeds)}
        return
    for part in item.parts():
        missing = list(dict.fromkeys(spec.seed for spec in part.runs if store.status(spec.id) == "missing"))
        size = _at_a_time(jobs) or len(missing)
        for first in range(0, len(missing), size):
            now = missing[first : first + size]
            if monotonic() < end:
                yield chosen | {"column": [part.column], "method": [part.method], "seeds": seed_text(now)}
            if _states([spec for spec in part.runs if spec.seed in now], store)["missing"]:
                break  # time is up, or there is something that the next seeds would stumble on too, as missing data


def _at_a_time(jobs: int | None) -> int | None:
    """How many seeds of a cell run at a time; None: all, as one stack."""
    from pflbench.executor.local import cores

    return None if run.choose_device("auto").startswith("cuda") else jobs or cores()


def _states(specs: Iterable[RunSpec], store: Store) -> Counter[str]:
    return Counter(store.status(spec.id) for spec in specs)


def _progress(item: Item, store: Store) -> str:
    states = _states(item.table.runs, store)
    failed = f", {states['failed']} failed" if states["failed"] else ""
    return f"{states['done']} of {states.total()} done{failed}"


def _cost(item: Item, store: Store) -> str:
    cost = item.entry.cost
    if isinstance(cost, str):
        return f"; {cost}" if cost else ""
    todo = cost * _states(item.table.runs, store)["missing"]
    return f"; {cost:g} min a run" + (f", {todo:g} min to do" if todo else "")


def _conclude(items: list[Item], store: Store, file: Path) -> int:
    """Say how far the queue is."""
    states = _states({spec for item in items for spec in item.table.runs}, store)
    failed = f", {states['failed']} failed" if states["failed"] else ""
    if states["missing"]:
        console().print(f"{str(file)!r}: {states['done']} of {common.count(states.total(), 'run')} done{failed}.")
    else:
        console().print(f"Nothing left to do in {str(file)!r}: {common.count(states['done'], 'run')} done{failed}.")
    return 1 if states["failed"] else 0
