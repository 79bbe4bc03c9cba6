"""The tasks still to do, of which several processes take those that no other has."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pflbench.running.task import Done, Task
from pflbench.spec import RunSpec
from pflbench.store.leases import Leases

Settled = Callable[[RunSpec], "Done | None"]
"""The outcome of a run that another process has stored since this one began; None: it is still to do."""


class Alone:
    """Leases of a process that shares its runs with no other."""

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """Return all these runs."""
        return list(ids)

    def release(self, ids: Collection[str]) -> None:
        """Do nothing."""

    def holders(self, ids: Collection[str]) -> list[str]:
        """Return nobody."""
        return []


class Shared:
    """The tasks still to do, in their order. What `settled` says of runs is passed on to `on_done`.

    `again`: tasks to try once more, as a process that trained them died. Their leases are held all the time.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        leases: Leases | Alone | None = None,
        settled: Settled = lambda _: None,
        on_done: Callable[[Done], None] = lambda _: None,
    ) -> None:
        self.waiting, self.leases, self.settled, self.on_done = list(tasks), leases or Alone(), settled, on_done
        self.again: list[Task] = []

    def take(self, fits: Callable[[Task], bool] = lambda _: True) -> Task | None:
        """The first task that nobody else has, with its leases; None if there is none now. Raises `StoreError`.

        Seeds that train as one stack are taken together, but where nothing else is left, as many as are free.
        `fits`: whether a task may be taken now.
        """
        stacked = any(len(task.specs) > 1 for task in self.waiting)
        for partly in (False, True)[: 1 + stacked]:
            for task in filter(fits, tuple(self.waiting)):
                if (taken := self._take(task, partly)) is not None:
                    return taken
        return None

    def release(self, task: Task) -> None:
        """Give a task back that was taken: its results are stored, or it has none."""
        self.leases.release([spec.id for spec in task.specs])

    def give_up(self) -> None:
        """Start nothing more: leave what waits to others, and give back what was to be tried once more."""
        self.waiting.clear()
        for task in self.again:
            self.release(task)
        self.again.clear()

    def holders(self) -> list[str]:
        """Holders of the tasks that wait, in words."""
        return self.leases.holders([spec.id for task in self.waiting for spec in task.specs])

    @property
    def runs(self) -> int:
        """Number of runs that wait."""
        return sum(len(task.specs) for task in self.waiting)

    def _take(self, task: Task, partly: bool) -> Task | None:
        """The part of a task that is to do, with its leases; None: it is another's, or done."""
        taken = set(self.leases.take([spec.id for spec in task.specs], partly))
        if not taken:
            return None
        # Only now is it sure that no other stores one of them meanwhile.
        outcomes = {spec: self.settled(spec) for spec in task.specs if spec.id in taken}
        left = tuple(spec for spec in task.specs if spec.id not in taken)
        self.waiting[self.waiting.index(task) : self.waiting.index(task) + 1] = (
            [replace(task, specs=left)] if left else []
        )
        there = [done for done in outcomes.values() if done]
        self.leases.release([done.spec.id for done in there])
        for done in there:
            self.on_done(done)
        todo = tuple(spec for spec, done in outcomes.items() if done is None)
        return replace(task, specs=todo) if todo else None


def longest_first(tasks: Iterable[Task], work: Mapping[str, float]) -> list[Task]:
    """Sort tasks by their work, the longest first, so that no long one ends alone. Equal ones stay in their order.

    `work`: relative cost of each run, by its id.
    """
    return sorted(tasks, key=lambda task: -math.fsum(work[spec.id] for spec in task.specs))
