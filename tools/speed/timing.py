"""Timing of programs in turn: local steps a second of each. Imports no torch: the programs do.

A machine's speed changes over minutes, so contenders take turns, and two are compared within a pass only. A contender
is one process, or several that go at the same moment. They wait for numbers of rounds (`tools/speed/protocol.py`),
and their output is one JSON line per answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pflbench.errors import PflbenchError, UsageError
from pflbench.package import FOLDER

Answer = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """One process to start: a script of the contenders' folder, and its options."""

    script: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contender:
    """Contender that is timed: programs that run at the same moment. Contenders with one program share its process."""

    id: str
    title: str
    programs: tuple[Program, ...]


class RunningProgram:
    """A running program."""

    def __init__(self, program: Program, folder: Path):
        self.program = program
        self.errors = tempfile.TemporaryFile()  # closed by `stop`
        self.popen = subprocess.Popen(
            [sys.executable, str(folder / program.script), *program.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )

    def tell(self, rounds: int, limit: float) -> None:
        """Let it run, for `limit` seconds or little more; `hear` waits for the end."""
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):  # dead: heard of by `hear`
            self.popen.stdin.write(f"{rounds} {limit}\n".encode())
            self.popen.stdin.flush()

    def hear(self) -> Answer:
        """Its next answer.

        Raises:
            UsageError: It says why it cannot start.
            PflbenchError: It died, or said something else.
        """
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            name = " ".join([self.program.script, *self.program.options])
            raise PflbenchError(f"The contender {name} {self._fate(line)}")
        if "error" in answer:
            raise UsageError(str(answer["error"]))
        return answer

    def stop(self) -> None:
        """Kill it."""
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.errors):
            with contextlib.suppress(OSError):  # what it was never told
                if pipe is not None:
                    pipe.close()

    def _fate(self, line: bytes) -> str:
        if line:
            return f"said {line.decode(errors='replace').strip()!r}, which is no answer."
        code = self.popen.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"died ({reason}){': ' + said[-1] if said else '.'}"


@contextlib.contextmanager
def started(contenders: Sequence[Contender], folder: Path) -> Iterator[dict[Program, RunningProgram]]:
    """Every program of the contenders, running; all are killed at the end."""
    processes: dict[Program, RunningProgram] = {}
    try:
        for program in (p for contender in contenders for p in contender.programs):
            if program not in processes:
                processes[program] = RunningProgram(program, folder)
        yield processes
    finally:
        for process in processes.values():
            process.stop()


def _environment() -> dict[str, str]:
    """A contender imports the pflbench that started it, also from a checkout that is not installed."""
    root = FOLDER.parent
    if not (root / "pyproject.toml").is_file():
        return dict(os.environ)
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *([before] if before else [])])}


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

    Raises as `RunningProgram.hear`.
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


def _calibrate(team: Sequence[RunningProgram], seconds: float) -> int:
    """Number of rounds that take about so many seconds."""
    rounds = 1
    while True:
        done, took = _block(team, rounds, seconds)
        took = max(took, 1e-9)
        if took >= seconds / 8:
            return max(1, round(done / len(team) * seconds / took))
        rounds = math.ceil(rounds * min(20.0, max(2.0, seconds / 6 / took)))


def _block(team: Sequence[RunningProgram], rounds: int, limit: float) -> tuple[int, float]:
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
