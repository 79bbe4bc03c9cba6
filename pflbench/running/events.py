"""Events of a training: plain values, whose text is one line for a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from pflbench.store.counts import Counts
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.running.job import Done, Job


@dataclass(frozen=True)
class Notice:
    """Something to know. `lacking`: runs have no result for this reason."""

    text: str
    lacking: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Training:
    """Training begins. `where`: the device."""

    jobs: Sequence[Job]
    where: str

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Column and row of each run, by its id."""
        return {spec.id: job.name for job in self.jobs for spec in job.specs}

    @cached_property
    def work(self) -> Mapping[str, float]:
        """Relative cost of each run, by its id."""
        from pflbench.running.work import work_of

        return {spec.id: work_of(spec, job.code, job.every) for job in self.jobs for spec in job.specs}

    def __str__(self) -> str:
        return f"Running on {self.where}."


@dataclass(frozen=True)
class Progress:
    """A job has finished this number of rounds. `rounds`: None when it has just started."""

    job: Job
    rounds: int | None

    def __str__(self) -> str:
        if self.rounds is None:
            return f"{self.job}: started"
        return f"{self.job}: round {self.rounds} of {self.job.specs[0].rounds}"


@dataclass(frozen=True)
class Waiting:
    """All remaining `runs` are trained by others: `holders`, in words."""

    runs: int
    holders: tuple[str, ...]

    def __str__(self) -> str:
        by = f" ({', '.join(self.holders)})" if self.holders else ""
        return f"Waiting for {count(self.runs, 'run')} that others train{by}."


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
