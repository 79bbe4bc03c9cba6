"""Progress of a run: live bars on a terminal, one plain line per finished run elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from pflbench.cli.common import errors
from pflbench.console import Console
from pflbench.output import wrapped
from pflbench.running.events import Event, Notice, Training
from pflbench.running.local import Progress as Moved
from pflbench.running.task import Done, Task
from pflbench.units import count, duration

SPEAK_EVERY = 60.0  # seconds between two lines about one task where there are no bars


class Display(AbstractContextManager["Display"]):
    """Shows what happens as it comes; a context manager. `quiet`: problems only.

    `work`: what each run costs, by its id, in any unit: a round of one method may be a hundred of another.
    """

    def __init__(self, quiet: bool):
        self.quiet, self.console = quiet, Console(quiet=quiet)
        self.begun, self.finished = time.monotonic(), 0
        self.names: Mapping[str, str] = {}
        self.work: Mapping[str, float] = {}
        self.worked: dict[Task, float] = {}
        self.restored: dict[Task, int] = {}  # rounds of the checkpoint that a task goes on from
        self.bars: dict[Task, TaskID] = {}
        self.started: dict[Task, float] = {}
        self.spoken: dict[Task, float] = {}
        self.progress: Progress | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.progress:
            with contextlib.suppress(OSError):
                self.progress.stop()

    def event(self, event: Event) -> None:
        """Show what happened. Where that cannot be written, as on a full disk, training goes on without it."""
        try:
            self._show(event)
        except OSError as error:
            self.quiet = True
            with contextlib.suppress(OSError):
                errors().print(f"Warning: progress cannot be printed: {error.strerror}. Training goes on.")

    def _show(self, event: Event) -> None:
        if isinstance(event, Notice) and event.lacking:
            errors().print(f"Warning: {event}")
        elif self.quiet:
            return
        elif isinstance(event, Training):
            self._begun(event)
        elif isinstance(event, Moved):
            self._moved(event)
        elif isinstance(event, Done):
            self._done(event)
        else:
            self.console.print(str(event))

    def _begun(self, training: Training) -> None:
        self.begun, self.names, self.work = time.monotonic(), training.names, training.work
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn(
                    "{task.description}", markup=False, table_column=Column()
                ),  # broken into lines where it is too wide
                BarColumn(bar_width=24),
                TextColumn("{task.fields[note]}", markup=False, table_column=Column()),
                console=self.console,
                transient=True,
            )
            total = sum(self.work.values())
            self.overall = self.progress.add_task("all runs", total=total, note=f"0/{len(self.work)} runs")
            self.progress.start()
        self.console.print(str(training))

    def _say(self, line: str) -> None:
        """Print a line; a terminal gets it broken between words, a file gets it whole."""
        self.console.print(wrapped(line, self.console.width, "  ") if self.console.is_terminal else line)

    def _label(self, task: Task) -> str:
        seeds = ",".join(str(spec.seed) for spec in task.specs)
        return f"{self.names[task.specs[0].id]} · seed {seeds}"

    def _moved(self, moved: Moved) -> None:
        task, now = moved.task, time.monotonic()
        total = task.specs[0].rounds
        if task not in self.started:
            self.started[task] = self.spoken[task] = now
            if self.progress:
                self.bars[task] = self.progress.add_task(self._label(task), total=total, note="loading")
        if moved.rounds is None:
            self.restored.pop(task, None)
            return
        before = self.restored.setdefault(task, moved.rounds)
        if moved.rounds == before:
            self.started[task] = now
            if self.progress:
                self.progress.update(self.bars[task], completed=before)
            return
        self._count(task, moved.rounds)
        each = max(now - self.started[task], 1e-3) / (moved.rounds - before)
        rest = f"{duration((total - moved.rounds) * each)} left" if moved.rounds < total else "scoring"
        note = f"round {moved.rounds}/{total}, {_pace(each)}, {rest}"
        if self.progress:
            self.progress.update(self.bars[task], completed=moved.rounds, note=note)
        elif now - self.spoken[task] >= SPEAK_EVERY:
            self.spoken[task] = now
            self._say(f"  {self._label(task)}: {note}")

    def _count(self, task: Task | None, rounds: int) -> str:
        """Each of a task's runs has finished so many rounds; how long all runs still take at this pace, if known."""
        if task:
            self.worked[task] = self._work(task, rounds)
        done, total = sum(self.worked.values()), sum(self.work.values())
        here = done - sum(self._work(one, before) for one, before in self.restored.items())
        seconds = (time.monotonic() - self.begun) * (total - done) / here if here else 0.0
        left = f", about {duration(seconds)} left" if seconds else ""
        if self.progress:
            self.progress.update(self.overall, completed=done, note=f"{self.finished}/{len(self.work)} runs{left}")
        return left

    def _work(self, task: Task, rounds: int) -> float:
        return sum(self.work[spec.id] * rounds / spec.rounds for spec in task.specs)

    def _done(self, done: Done) -> None:
        self.finished += 1
        task = next((one for one in self.started if done.spec in one.specs), None)
        if task is None:  # another process trains it
            task = Task((done.spec,))
        left = self._count(task, done.spec.rounds)
        if self.progress and task in self.bars:
            self.progress.remove_task(self.bars.pop(task))
        rate = f", {_pace(done.seconds / done.spec.rounds)}" if done.seconds else ""
        times = f", {count(done.resumed, 'time')} resumed" if done.resumed else ""
        what = f"{done.headline} in {done.seconds:.1f} s{rate}{times}" if done.headline else "FAILED"
        if done.elsewhere:
            what = "done by another" if done.status == "done" else "FAILED for another"
        if self.finished < len(self.work) and not self.progress:
            what += left
        total = str(len(self.work))
        name = f"{self.names[done.spec.id]} · seed {done.spec.seed}"
        self._say(f"[{self.finished:>{len(total)}}/{total}] {name}: {what}")
        if done.status == "done" and done.message:
            errors().print(f"Warning: {name}: {done.message}")


def _pace(seconds: float) -> str:
    """The pace of rounds that take so long each."""
    return f"{1 / seconds:.2f} rounds/s" if seconds <= 10 else f"{duration(seconds)} a round"
