"""`pflbench speed`: who does how many client-steps a second, timed in turn. Imports no torch: the contenders do.

A machine's pace drifts, so contenders take turns, pass by pass, and two are compared within a pass only: a ratio is the
median of the passes' ratios, its spread their range. Where a program may use several thread counts it is given several,
and the best (by its median) stands for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pflbench.errors import PflbenchError
from pflbench.executor.contenders import Answer, Contender, Process, Program, started
from pflbench.executor.foreign import Watch
from pflbench.executor.lineup import Field, Options, Row, competing

PAUSE = 0.25
"""Seconds between blocks, in which the last contender's threads fall asleep."""
TOO_LONG = 3.0
"""Times the length of a block after which it is cut short."""
OnBlock = Callable[[str], None]


@dataclass
class Timing:
    """One contender's blocks, by pass. In a block every process runs `rounds`, unless that takes far too long."""

    rounds: int
    ready: Answer
    client_steps: list[int] = field(default_factory=list)
    """Of all processes together."""
    seconds: list[float] = field(default_factory=list)
    foreign_cores: list[float | None] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Client-steps a second, by pass."""
        return [steps / seconds for steps, seconds in zip(self.client_steps, self.seconds, strict=True)]


def time_all(
    contenders: Sequence[Contender],
    folder: Path,
    *,
    passes: int,
    seconds: float,
    on_block: OnBlock = lambda _: None,
) -> dict[str, Timing]:
    """Start all contenders, then time them in turn: in each pass every one gets one block of about `seconds`.

    Raises:
        UsageError: A contender cannot start.
        PflbenchError: A contender died.
    """
    on_block("starting")
    with started(contenders, folder) as processes:
        teams = {c.id: [processes[program] for program in c.programs] for c in contenders}
        ready = {program: process.hear() for program, process in processes.items()}
        _check_equal(ready)
        found = {}
        for contender in contenders:
            on_block(f"{contender.title}: warming up")
            rounds = _calibrate(teams[contender.id], seconds)
            found[contender.id] = Timing(rounds, ready[contender.programs[0]])
        pids = [process.popen.pid for process in processes.values()]
        for number in range(passes):
            # There and back, so that nobody always comes after the same one.
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                on_block(f"pass {number + 1}/{passes}: {contender.title}")
                time.sleep(min(PAUSE, seconds))
                timing = found[contender.id]
                watch = Watch(pids)
                done, took = _block(teams[contender.id], timing.rounds, TOO_LONG * seconds)
                timing.foreign_cores.append(watch.cores())
                timing.client_steps.append(done * int(timing.ready["client_steps_per_round"]))
                timing.seconds.append(took)
    return found


def _check_equal(ready: Mapping[Program, Answer]) -> None:
    """All train the same number of parameters."""
    sizes = {(program.script, answer.get("parameters")) for program, answer in ready.items()}
    if len({size for _, size in sizes}) > 1:
        said = ", ".join(f"{script} {size}" for script, size in sorted(sizes, key=str))
        raise PflbenchError(f"The contenders train different numbers of parameters: {said}.")


def _calibrate(team: Sequence[Process], seconds: float) -> int:
    """So many rounds take about so many seconds."""
    rounds = 1
    while True:
        done, took = _block(team, rounds, seconds)
        took = max(took, 1e-9)
        if took >= seconds / 8:
            return max(1, round(done / len(team) * seconds / took))
        rounds = math.ceil(rounds * min(20.0, max(2.0, seconds / 6 / took)))


def _block(team: Sequence[Process], rounds: int, limit: float) -> tuple[int, float]:
    """Rounds of all processes together, and seconds until the last of them is done."""
    for process in team:
        process.tell(rounds, limit)
    answers = [process.hear() for process in team]
    return sum(int(answer["rounds"]) for answer in answers), max(float(answer["seconds"]) for answer in answers)


class Spread(NamedTuple):
    """A median and the range around it."""

    median: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """The median and the range of some values."""
    return Spread(median(values), min(values), max(values))


def better(ids: Sequence[str], rates: Mapping[str, Sequence[float]]) -> str:
    """The contender with the highest median rate."""
    return max(ids, key=lambda id: median(rates[id]))


@dataclass(frozen=True)
class Line:
    """A row, measured. `ratio` is None where nothing is compared."""

    row: Row
    contender: str
    rate: Spread
    against: str | None
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> Spread | None:
        """How many times as fast, over the passes."""
        return spread(self.ratios) if self.ratios else None


def line(row: Row, rates: Mapping[str, Sequence[float]]) -> Line:
    """Compare within each pass."""
    chosen = better(row.of, rates)
    against = better(row.against, rates) if row.against else None
    ratios = [a / b for a, b in zip(rates[chosen], rates[against], strict=True)] if against else []
    return Line(row, chosen, spread(rates[chosen]), against, tuple(ratios))


@dataclass(frozen=True)
class Result:
    """One network's table."""

    network: str
    field: Field
    timings: dict[str, Timing]

    @property
    def lines(self) -> list[Line]:
        """The rows, measured."""
        rates = {id: timing.rates for id, timing in self.timings.items()}
        return [line(row, rates) for row in self.field.rows]

    @property
    def seconds_per_client_step(self) -> float:
        """Of the engine with one run."""
        return 1 / median(self.timings[self.field.alone].rates)

    @property
    def foreign_cores(self) -> float | None:
        """The most that others took in a block."""
        known = [cores for timing in self.timings.values() for cores in timing.foreign_cores if cores is not None]
        return max(known, default=None)

    def document(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        contenders = {
            c.id: {
                "title": c.title,
                "programs": [[p.script, *p.options] for p in c.programs],
                "rounds_per_block": self.timings[c.id].rounds,
                "client_steps": self.timings[c.id].client_steps,
                "seconds": self.timings[c.id].seconds,
                "client_steps_per_second": self.timings[c.id].rates,
                "median": median(self.timings[c.id].rates),
                "foreign_cores": self.timings[c.id].foreign_cores,
                "ready": self.timings[c.id].ready,
            }
            for c in self.field.contenders
        }
        rows = [
            {
                "contender": m.contender,
                "client_steps_per_second": m.rate._asdict(),
                "against": m.against,
                "ratio": None if m.ratio is None else {**m.ratio._asdict(), "passes": list(m.ratios)},
            }
            for m in self.lines
        ]
        workload = self.timings[self.field.alone].ready.get("workload")
        return {"workload": workload, "contenders": contenders, "rows": rows}


def compete(
    network: str, options: Options, folder: Path, *, passes: int, seconds: float, on_block: OnBlock = lambda _: None
) -> Result:
    """Time all contenders on one network."""
    entered = competing(network, options)
    timings = time_all(entered.contenders, folder, passes=passes, seconds=seconds, on_block=on_block)
    return Result(network, entered, timings)
