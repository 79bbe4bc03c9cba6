"""Events of a training, as objects whose text is one line for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from pflbench.spec import RunSpec
from pflbench.store.counts import Counts

if TYPE_CHECKING:
    from pflbench.running.local import Progress, Waiting
    from pflbench.running.task import Done, Task


@dataclass(frozen=True)
class Notice:
    """Something to know before training or measuring begins. `lacking`: runs are left out for want of it."""

    text: str
    lacking: bool = False

    def __str__(self) -> str:
        return self.text


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
        from pflbench.running.work import work_of

        each = [(spec, work_of(spec, task.reference, task.every)) for task in self.tasks for spec in task.specs]
        if any(work is None for _, work in each):
            return {spec.id: spec.rounds for spec, _ in each}
        return {spec.id: work or 0.0 for spec, work in each}

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


Event: TypeAlias = "Notice | Counted | Training | Progress | Waiting | Done"
OnEvent = Callable[[Event], None]


def unheard(_: Event) -> None:
    """Ignores every event."""
