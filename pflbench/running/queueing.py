"""A queue's entries, as the parts to train one after the other while there is time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pflbench.running.execution import choose_device
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.queue import QueueItem


def states(specs: Iterable[RunSpec], store: Store) -> Counter[str]:
    """How many of these runs are in which state."""
    return Counter(store.status(spec.id) for spec in specs)


def steps(
    item: QueueItem, store: Store, jobs: int | None, in_time: Callable[[], bool] | None = None
) -> Iterator[Selection]:
    """What to train of an entry: all of it, or, where time is short, one after the other what runs at a time.

    Each is to be trained before the next is asked for.

    Args:
        item: The entry.
        store: Where the results are.
        jobs: Processor cores to use; None: all.
        in_time: Whether there is time to start something; None: there is no end.
    """
    if in_time is None:
        yield item.part.but(columns=[column.id for column in item.table.columns], seeds=item.table.seeds)
        return
    for place in item.cells():
        missing = list(dict.fromkeys(spec.seed for spec in place.runs if store.status(spec.id) == "missing"))
        size = _at_a_time(jobs) or len(missing)
        for first in range(0, len(missing), size):
            now = missing[first : first + size]
            if in_time():
                yield place.part.but(seeds=now)
            if states([spec for spec in place.runs if spec.seed in now], store)["missing"]:
                break  # time is up, or there is something that the next seeds would stumble on too, as missing data


def _at_a_time(jobs: int | None) -> int | None:
    """How many seeds of a cell run at the same time; None: all, as one stack on a GPU."""
    from pflbench.executor.local import cores  # which imports torch

    return None if choose_device("auto").startswith("cuda") else jobs or cores()
