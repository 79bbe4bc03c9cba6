"""Events of a training, as objects whose text is one line for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from pflbench.spec import RunSpec
from pflbench.store.counts import Counts
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.executor.local import Progress
    from pflbench.executor.task import Done, Task
    from pflbench.running.measuring import Measuring


@dataclass(frozen=True)
class Planned:
    """What there is to do: every run's state in the store by its id, and how many are trained now."""

    states: Mapping[str, str]
    todo: int

    def __str__(self) -> str:
        done = sum(state == "done" for state in self.states.values())
        failed = sum(state == "failed" for state in self.states.values())
        return f"{count(len(self.states), 'run')}: {done} done, {failed} failed before, {self.todo} to do."


@dataclass(frozen=True)
class Lacking:
    """Something that runs need is not there, so they are left out."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True)
class Checking:
    """A user's method is held against the contract, which takes seconds."""

    method: str

    def __str__(self) -> str:
        return f"Checking {self.method} against the contract of methods."


@dataclass(frozen=True)
class Remark:
    """A remark of the contract on a method that keeps it."""

    method: str
    remark: str

    def __str__(self) -> str:
        return f"{self.method} {self.remark}."


@dataclass(frozen=True, eq=False)
class Training:
    """Training begins. `names`: what each run is called but for its seed, by its id; `where`: the device."""

    tasks: tuple[Task, ...]
    names: Mapping[str, str]
    where: str

    @property
    def specs(self) -> list[RunSpec]:
        """All its runs."""
        return [spec for task in self.tasks for spec in task.specs]

    @cached_property
    def work(self) -> Mapping[str, float]:
        """The cost of each run relative to the others, by its id; its rounds where that is unknown."""
        from pflbench.executor.estimate import relative_work

        known = relative_work({spec: task.reference for task in self.tasks for spec in task.specs})
        return known or {spec.id: spec.rounds for spec in self.specs}

    def __str__(self) -> str:
        return f"Running on {self.where}."


@dataclass(frozen=True)
class Counted:
    """A dataset's images are counted, `earlier` or now. `counts`: with the first seed; None: it is still to do."""

    dataset: str
    counts: Counts | None
    earlier: bool = False

    def __str__(self) -> str:
        if self.counts is None:
            return f"{self.dataset}: to be counted."
        total, train, test, classes, _ = self.counts
        sizes = f"{total} images, {train} to train and {test} to test on, {classes} classes"
        return f"{self.dataset}: {sizes}{', counted before' if self.earlier else ''}."


Event: TypeAlias = "Planned | Lacking | Counted | Measuring | Checking | Remark | Training | Progress | Done"
OnEvent = Callable[[Event], None]


def unheard(_: Event) -> None:
    """Ignores every event."""
