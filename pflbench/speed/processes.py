"""Contenders: programs that wait until they are told to run so many rounds (`benchmarks/speed/protocol.py`).

A contender is one process, or several that are told to go at the same moment. Their output is one JSON line per answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


class Process:
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
def started(contenders: Sequence[Contender], folder: Path) -> Iterator[dict[Program, Process]]:
    """Every program of the contenders, running; all are killed at the end."""
    processes: dict[Program, Process] = {}
    try:
        for program in (p for contender in contenders for p in contender.programs):
            if program not in processes:
                processes[program] = Process(program, folder)
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
