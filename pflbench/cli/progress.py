"""Progress of a run: live bars on a terminal, one plain line per finished run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from pflbench.cli.common import PLAIN, errors
from pflbench.executor.local import Progress as Moved
from pflbench.executor.task import Done, Task
from pflbench.running.events import Event, Lacking, Training
from pflbench.units import duration

SPEAK_EVERY = 60.0  # seconds between two lines about one task where there are no bars


class Pace:
    """How much of all runs is done, and how long the rest will take at the same pace.

    `work`: what each run costs, by its id, in any unit: a round of one method may be a hundred of another.
    """

    def __init__(self, work: Mapping[str, float]):
        self.work = work
        self.by_task: dict[Task, float] = {}

    @property
    def total(self) -> float:
        """The work of all runs."""
        return sum(self.work.values())

    @property
    def done(self) -> float:
        """The work done so far."""
        return sum(self.by_task.values())

    def moved(self, task: Task, rounds: int) -> None:
        """Each of a task's runs has finished so many rounds."""
        self.by_task[task] = sum(self.work[spec.id] * rounds / spec.rounds for spec in task.specs)

    def left(self, seconds: float) -> float | None:
        """Seconds left after so many; None while nothing can be said."""
        return seconds * (self.total - self.done) / self.done if self.done else None


class Display:
    """Shows what happens as it comes; a context manager. `quiet`: problems only."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        self.console = Console(quiet=quiet, **PLAIN)
        self.finished = self.total = 0
        self.names: Mapping[str, str] = {}
        self.begun = time.monotonic()
        self.pace = Pace({})
        self.bars: dict[Task, TaskID] = {}
        self.started: dict[Task, float] = {}
        self.spoken: dict[Task, float] = {}
        self.progress: Progress | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.progress:
            self.progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(text)

    def event(self, event: Event) -> None:
        """Show what happened."""
        if isinstance(event, Training):
            self._begun(event)
        elif isinstance(event, Moved):
            self._moved(event)
        elif isinstance(event, Done):
            self._done(event)
        elif isinstance(event, Lacking):
            errors().print(f"Error: {event}")
        else:
            self.say(str(event))

    def _begun(self, training: Training) -> None:
        self.begun, self.names, self.total = time.monotonic(), training.names, len(training.specs)
        if self.quiet:
            self.pace = Pace({spec.id: spec.rounds for spec in training.specs})
            return
        self.pace = Pace(training.work)
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[note]}"),
                console=self.console,
                transient=True,
            )
            self.overall = self.progress.add_task("all runs", total=self.pace.total, note=f"0/{self.total} runs")
            self.progress.start()
        self.say(str(training))

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
        if not moved.rounds:
            return
        self.pace.moved(task, moved.rounds)
        rate = moved.rounds / max(now - self.started[task], 1e-3)
        left = f"{duration((total - moved.rounds) / rate)} left" if moved.rounds < total else "scoring"
        note = f"round {moved.rounds}/{total}, {rate:.2f} rounds/s, {left}"
        if self.progress:
            self.progress.update(self.bars[task], completed=moved.rounds, note=note)
            self._show_all(now)
        elif now - self.spoken[task] >= SPEAK_EVERY:
            self.spoken[task] = now
            self.say(f"  {self._label(task)}: {note}")

    def _show_all(self, now: float) -> None:
        assert self.progress
        note = f"{self.finished}/{self.total} runs{self._left(now)}"
        self.progress.update(self.overall, completed=self.pace.done, note=note)

    def _left(self, now: float) -> str:
        left = self.pace.left(now - self.begun)
        return f", about {duration(left)} left" if left else ""

    def _done(self, done: Done) -> None:
        self.finished += 1
        now = time.monotonic()
        for task in [t for t in self.started if done.spec in t.specs]:
            self.pace.moved(task, done.spec.rounds)
            if self.progress and task in self.bars:
                self.progress.remove_task(self.bars.pop(task))
        if self.progress:
            self._show_all(now)
        rate = f", {done.spec.rounds / done.seconds:.2f} rounds/s" if done.seconds else ""
        what = f"{done.headline} in {done.seconds:.1f} s{rate}" if done.headline else "FAILED"
        if self.finished < self.total and not self.progress:
            what += self._left(now)
        width = len(str(self.total))
        name = self.names[done.spec.id]
        self.say(f"[{self.finished:>{width}}/{self.total}] {name} · seed {done.spec.seed}: {what}")
