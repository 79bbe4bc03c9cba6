"""Progress of a run: live bars on a terminal, one plain line per finished run elsewhere."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from pflbench.cli.common import errors
from pflbench.console import Console
from pflbench.running.events import Event, Notice, Training
from pflbench.running.events import Progress as Moved
from pflbench.running.job import Done, Job
from pflbench.spec import RunSpec
from pflbench.units import count, duration

SPEAK_EVERY = 60.0  # seconds between two lines about one job where there are no bars


@dataclass
class Active:
    """A job that is trained now. `first`: its round at the time `since`, that of a checkpoint; None while it loads."""

    bar: TaskID
    since: float
    spoken: float
    first: int | None = None


class Display(AbstractContextManager["Display"]):
    """Shows what happens as it comes; a context manager. `quiet`: problems only."""

    def __init__(self, quiet: bool):
        self.quiet, self.console = quiet, Console(quiet=quiet)
        self.started_at, self.finished = time.monotonic(), 0
        self.training = Training((), "")
        self.work: dict[str, float] = {}  # of each run, by its id, without the rounds of a checkpoint
        self.shares: dict[str, float] = {}  # of this work that are done
        self.active: dict[Job, Active] = {}
        text = TextColumn("{task.description}", markup=False, table_column=Column())  # wrapped where it is too wide
        note = TextColumn("{task.fields[note]}", markup=False, table_column=Column())
        bar, is_terminal = BarColumn(bar_width=24), self.console.is_terminal
        self.bars = Progress(text, bar, note, console=self.console, transient=True, disable=not is_terminal)
        self.overall = self.bars.add_task("all runs", note="")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self.bars.stop()

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
            self._start(event)
        elif isinstance(event, Moved):
            self._move(event)
        elif isinstance(event, Done):
            self._finish(event)
        else:
            self.console.print(str(event))

    def _start(self, training: Training) -> None:
        self.started_at, self.training, self.work = time.monotonic(), training, dict(training.work)
        self.bars.start()
        self._remaining()
        self.console.print(str(training))

    def _say(self, line: str) -> None:
        """Print a line; a terminal gets it wrapped, a file gets it whole."""
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def _label(self, *specs: RunSpec) -> str:
        return f"{self.training.names[specs[0].id]} · seed {','.join(str(spec.seed) for spec in specs)}"

    def _move(self, moved: Moved) -> None:
        job, now, total = moved.job, time.monotonic(), moved.job.specs[0].rounds
        if job not in self.active:
            bar = self.bars.add_task(self._label(*job.specs), total=total, note="loading")
            self.active[job] = Active(bar, now, now)
        active = self.active[job]
        if moved.rounds is None:  # it loads, perhaps once more
            active.first = None
        elif active.first is None:
            active.first, active.since = moved.rounds, now
            self.work |= {spec.id: self.training.work[spec.id] * (1 - moved.rounds / total) for spec in job.specs}
            self.bars.update(active.bar, completed=moved.rounds)
        else:
            done = moved.rounds - active.first
            each = max(now - active.since, 1e-3) / max(done, 1)
            remaining = f"{duration((total - moved.rounds) * each)} left" if moved.rounds < total else "scoring"
            note = f"round {moved.rounds}/{total}, {_pace(each)}, {remaining}"
            self.shares |= {spec.id: done / max(total - active.first, 1) for spec in job.specs}
            self.bars.update(active.bar, completed=moved.rounds, note=note)
            self._remaining()
            if self.bars.disable and now - active.spoken >= SPEAK_EVERY:
                active.spoken = now
                self._say(f"  {self._label(*job.specs)}: {note}")

    def _remaining(self) -> str:
        """Move the bar of all runs; the time that they still take at this pace, if known."""
        done, total, text = sum(self.work[id] * share for id, share in self.shares.items()), sum(self.work.values()), ""
        if done and self.finished < len(self.work):
            text = f", about {duration((time.monotonic() - self.started_at) * (total - done) / done)} left"
        note = f"{self.finished}/{len(self.work)} runs{text}"
        self.bars.update(self.overall, total=total, completed=done, note=note)
        return text

    def _finish(self, done: Done) -> None:
        self.finished += 1
        self.shares[done.spec.id] = 1.0
        for job in [one for one in self.active if done.spec in one.specs]:
            self.bars.remove_task(self.active.pop(job).bar)
        if done.status != "done":
            text = "FAILED"
        elif done.elsewhere:
            text = "done by another"
        else:
            text = f"{done.headline} in {done.seconds:.1f} s"
            text += f", {_pace(done.seconds / done.spec.rounds)}" if done.seconds else ""
            text += f", {count(done.resumed, 'time')} resumed" if done.resumed else ""
        total, name = str(len(self.work)), self._label(done.spec)
        self._say(f"[{self.finished:>{len(total)}}/{total}] {name}: {text}{self._remaining()}")


def _pace(seconds: float) -> str:
    """The pace of rounds that take so long each."""
    return f"{1 / seconds:.2f} rounds/s" if seconds <= 10 else f"{duration(seconds)} a round"
