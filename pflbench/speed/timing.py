"""Timing programs in turn: how many local steps each does in a second. Imports no torch: the programs do.

A machine's speed changes over minutes, so contenders take turns, and two are compared within a pass only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pflbench.errors import PflbenchError
from pflbench.speed.processes import Answer, Contender, Process, Program, started

PAUSE = 0.25
"""Seconds between blocks, in which the last contender's threads fall asleep."""
STARTING = 3.0
"""Seconds that a program takes to be there, about."""
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

    Raises as `Process.hear`.
    """
    on_block("starting")
    with started(contenders, folder) as processes:
        teams = {c.id: [processes[program] for program in c.programs] for c in contenders}
        ready = {program: process.hear() for program, process in processes.items()}
        _check_equal(ready)
        timings = {}
        for contender in contenders:
            on_block(f"{contender.title}: warming up")
            rounds = _calibrate(teams[contender.id], seconds)
            timings[contender.id] = Timing(rounds, ready[contender.programs[0]])
        pids = [process.popen.pid for process in processes.values()]
        for number in range(passes):
            # There and back, so that nobody always comes after the same one.
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                on_block(f"pass {number + 1}/{passes}: {contender.title}")
                time.sleep(min(PAUSE, seconds))
                timing = timings[contender.id]
                watch = Watch(pids)
                done, took = _block(teams[contender.id], timing.rounds, TOO_LONG * seconds)
                timing.foreign_cores.append(watch.cores())
                timing.client_steps.append(done * int(timing.ready["client_steps_per_round"]))
                timing.seconds.append(took)
    return timings


def expected_seconds(contenders: Sequence[Contender], *, passes: int, seconds: float) -> float:
    """About how long `time_all` takes: to start the programs, to find out how long they take, and to time them."""
    programs = {program for contender in contenders for program in contender.programs}
    return len(programs) * STARTING + len(contenders) * (passes + 1) * (seconds + PAUSE)


def _check_equal(ready: Mapping[Program, Answer]) -> None:
    """All that train a network train the same number of parameters."""
    sizes = {(program.script, answer["parameters"]) for program, answer in ready.items() if answer.get("parameters")}
    if len({size for _, size in sizes}) > 1:
        said = ", ".join(f"{script} {size}" for script, size in sorted(sizes, key=str))
        raise PflbenchError(f"The contenders train different numbers of parameters: {said}.")


def _calibrate(team: Sequence[Process], seconds: float) -> int:
    """Number of rounds that take about so many seconds."""
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


class Watch:
    """Time of this process's cores that others took since it was made (Linux only); `pids` are ours."""

    def __init__(self, pids: Sequence[int], proc: Path = Path("/proc")):
        self.pids, self.proc = [os.getpid(), *pids], proc
        self.started, self.before = time.perf_counter(), self._foreign()

    def cores(self) -> float | None:
        """Cores that others kept busy on average since; None where that cannot be told."""
        now, elapsed = self._foreign(), time.perf_counter() - self.started
        if now is None or self.before is None or elapsed <= 0:
            return None
        return max(0.0, (now - self.before) / elapsed)

    def _foreign(self) -> float | None:
        try:
            tick = os.sysconf("SC_CLK_TCK")
            mine = {f"cpu{n}" for n in os.sched_getaffinity(0)}
            lines = [line.split() for line in (self.proc / "stat").read_text().splitlines()]
            # user nice system idle iowait irq softirq steal
            busy = sum(int(n) for f in lines if f[0] in mine for n in [*f[1:4], *f[6:9]])
            return (busy - sum(self._own(pid) for pid in self.pids)) / tick
        except (OSError, ValueError, AttributeError, IndexError):
            return None

    def _own(self, pid: int) -> int:
        # After the program's name, which may hold anything, in brackets; user and system time are fields 14 and 15.
        fields = (self.proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
