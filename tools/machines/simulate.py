"""How well runs are spread over slots: the project's own ordering and leases under a clock that is only counted.

    python tools/machines/simulate.py            # the ratios; ends with 1 if one is above 1.15

The work are the 2,170 runs of the three papers' tables at their full protocol; `costs.json` says what each takes on one
core, as measured at commit 5701733. A slot is a `pflbench run` of its own, on a machine of its own, on one folder.
Preemption ends it at a moment that nothing announces: its claim stays, what its run did since the last checkpoint is
lost, and a new process begins in its place a minute later. Written out is the ratio of the time at which all is stored
to the least that is possible: the larger of the longest run, and of all work, with what preemption destroyed, over the
slots. Beside it what the order of the tables gives, which was pflbench's before.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pflbench.running.job import Done, Job
from pflbench.running.worker import Queue, longest_first
from pflbench.spec import RunSpec
from pflbench.store.leases import Pace
from pflbench.testing import tiny_spec

COSTS = Path(__file__).with_name("costs.json")
TABLES = (
    *("cafeme-table1", "cafeme-table2", "fedec-table2"),
    *("pfedvem-table1", "pfedvem-table2", "pfedvem-table3", "pfedvem-table5", "pfedvem-table6"),
)
SLOTS = (1, 8, 64)
HOURS_BETWEEN = 8.0
"""Between two preemptions of a slot, on average."""
CHECKPOINT = 600.0
"""Seconds between two checkpoints of a run."""
PACE = Pace(beat=300.0, patience=1800.0, poll=300.0)
"""Fifteen times as patient as outside: ended processes are noticed later."""
RESTART = 60.0
"""Seconds from a preemption to the next process in the slot."""
AT_MOST = 1.15


@dataclass
class Clock:
    """Seconds since the beginning."""

    now: float = 0.0


@dataclass
class Claims:
    """Leases of a process on runs, in a folder that is a dictionary: by run, the holder and when it ended.

    Living holders are never silent. One that ended is noticed when it was silent for as long as outside.
    """

    folder: dict[str, Claims]
    clock: Clock
    ended: float = float("inf")

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """As `Leases.take`, for one run."""
        (id,) = ids
        holder = self.folder.get(id, self)
        if holder is not self and self.clock.now < holder.ended + PACE.patience:
            return []
        self.folder[id] = self
        return [id]

    def release(self, ids: Collection[str]) -> None:
        """As `Leases.release`."""
        for id in ids:
            if self.folder.get(id) is self:
                del self.folder[id]

    def holders(self, ids: Collection[str]) -> list[str]:
        """Nobody asks."""
        return []


class Outcome(NamedTuple):
    """When all was stored, what preemption destroyed, in seconds; how often it came.

    `twice`: how many runs were trained twice though nobody died.
    """

    end: float
    destroyed: float
    preemptions: int
    twice: int

    def ratio(self, costs: Sequence[float], slots: int) -> float:
        """The end over the least that is possible."""
        return self.end / max((sum(costs) + self.destroyed) / slots, max(costs))


@dataclass
class Slot:
    """A place for one process after the other."""

    number: int
    lives: int = 0
    leases: Claims | None = None
    queue: Queue | None = None
    job: Job | None = None
    began: float = 0.0


@dataclass
class Cluster:
    """Slots that drain the same jobs from one folder."""

    jobs: Sequence[Job]
    costs: dict[RunSpec, float]
    slots: int
    chance: random.Random
    between: float
    """Seconds between two preemptions of a slot on average; infinite: none comes."""
    checkpoint: float
    """Seconds between two checkpoints; infinite: there are none."""
    clock: Clock = field(default_factory=Clock)
    stored: set[RunSpec] = field(default_factory=set)
    kept: dict[RunSpec, float] = field(default_factory=dict)
    """Seconds of each run that are in its checkpoint."""

    def run(self) -> Outcome:
        """Until all is stored."""
        self.folder = dict[str, Claims]()
        self.events: list[tuple[float, int, str, Slot, int]] = []
        self.counted = self.preempted = self.twice = 0
        self.destroyed = 0.0
        for number in range(self.slots):
            self._begin(Slot(number))
        while len(self.stored) < len(self.costs):
            self.clock.now, _, what, slot, life = heapq.heappop(self.events)
            if life == slot.lives:  # else of a process that was preempted
                getattr(self, f"_{what}")(slot)
        return Outcome(self.clock.now, self.destroyed, self.preempted, self.twice)

    def _at(self, after: float, what: str, slot: Slot) -> None:
        self.counted += 1
        heapq.heappush(self.events, (self.clock.now + after, self.counted, what, slot, slot.lives))

    def _begin(self, slot: Slot) -> None:
        slot.lives += 1
        slot.leases = Claims(self.folder, self.clock)
        left = [job for job in self.jobs if job.specs[0] not in self.stored]
        slot.queue, slot.job = Queue(left, slot.leases, self._find, lambda _: None), None
        if self.between < float("inf"):
            self._at(self.chance.expovariate(1 / self.between), "preempt", slot)
        self._take(slot)

    def _find(self, _: Job, spec: RunSpec) -> Done | None:
        return Done(spec, "done", elsewhere=True) if spec in self.stored else None

    def _take(self, slot: Slot) -> None:
        assert slot.queue is not None
        slot.job, slot.began = slot.queue.take(), self.clock.now
        if slot.job is not None:
            (spec,) = slot.job.specs
            self._at(self.costs[spec] - self.kept.get(spec, 0.0), "finish", slot)
        elif slot.queue.remaining:
            self._at(PACE.poll, "take", slot)

    def _finish(self, slot: Slot) -> None:
        assert slot.job is not None and slot.queue is not None
        (spec,) = slot.job.specs
        self.twice += spec in self.stored
        self.stored.add(spec)
        slot.queue.leases.release([spec.id])
        self._take(slot)

    def _preempt(self, slot: Slot) -> None:
        assert slot.leases is not None
        self.preempted += 1
        if slot.job is not None:
            took, (spec,) = self.clock.now - slot.began, slot.job.specs
            kept = took - took % self.checkpoint if self.checkpoint < float("inf") else 0.0
            self.kept[spec] = self.kept.get(spec, 0.0) + kept
            self.destroyed += took - kept
        slot.leases.ended = self.clock.now
        slot.lives += 1
        self._at(RESTART, "begin", slot)


def simulated(
    costs: Sequence[float],
    slots: int,
    hours: float,
    *,
    checkpoint: float = CHECKPOINT,
    seed: int = 0,
    ordered: bool = True,
) -> Outcome:
    """Runs that take so many seconds each, on so many slots.

    `hours`: between two preemptions of a slot; 0: none. `checkpoint`: seconds between two; infinite: none. `ordered`:
    longest first, else as they stand.
    """
    jobs = [Job((tiny_spec(number, "fedavg"),)) for number in range(len(costs))]
    known = {job.specs[0]: cost for job, cost in zip(jobs, costs, strict=True)}
    if ordered:
        jobs = longest_first(jobs, {spec.id: cost for spec, cost in known.items()})
    return Cluster(jobs, known, slots, random.Random(seed), 3600 * hours or float("inf"), checkpoint).run()


def read_costs() -> list[float]:
    """Seconds of each run, in the order of the tables."""
    return [seconds for _, _, seconds, runs in json.loads(COSTS.read_text())["runs"] for _ in range(runs)]


def main() -> int:
    """Print the ratios; 1 if one is above what is allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=HOURS_BETWEEN, help="between two preemptions of a slot")
    parser.add_argument("--seeds", type=int, default=2, help="so many times, with other preemptions")
    options = parser.parse_args()
    costs = read_costs()
    print(
        f"{len(costs)} runs of {min(costs) / 60:.1f} min to {max(costs) / 3600:.1f} h, {sum(costs) / 3600:.0f} h in "
        f"all; slots are preempted every {options.hours:g} h, checkpoints are written every {CHECKPOINT / 60:g} min"
    )
    print(f"{'slots':>5} {'preempted':>9} {'destroyed':>9} {'ends after':>10} {'ratio':>6} {'table order':>11}")
    worst = 0.0
    for slots in SLOTS:
        for hours, seed in [(0.0, 0), *((options.hours, seed) for seed in range(options.seeds))]:
            found = simulated(costs, slots, hours, seed=seed)
            ratio = found.ratio(costs, slots) if not found.twice else float("inf")  # trained twice though nobody died
            worst = max(worst, ratio)
            table = "" if hours else f"{simulated(costs, slots, hours, ordered=False).ratio(costs, slots):.3f}"
            print(
                f"{slots:>5} {found.preemptions:>9} {found.destroyed / 3600:>7.0f} h {found.end / 3600:>8.1f} h "
                f"{ratio:>6.3f} {table:>11}",
                flush=True,
            )
    print(f"The largest ratio is {worst:.3f}, at most {AT_MOST} is allowed.")
    return worst > AT_MOST


if __name__ == "__main__":
    sys.exit(main())
