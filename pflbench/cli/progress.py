"""Progress of a run: live bars on a terminal, one plain line per finished run elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pflbench.cli.common import PLAIN
from pflbench.executor.local import Progress as Moved
from pflbench.executor.work import Done, Task


class Display:
    """Shows events as they come; a context manager.

    `columns`: run id → column id, for the labels.
    """

    def __init__(self, *, total: int, columns: dict[str, str], quiet: bool):
        self.total, self.columns, self.quiet = total, columns, quiet
        self.console = Console(quiet=quiet, **PLAIN)
        self.finished = 0
        self.bars: dict[Task, TaskID] = {}
        self.started: dict[Task, float] = {}
        self.progress: Progress | None = None
        if self.console.is_terminal and not quiet:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.overall = self.progress.add_task("all runs", total=total, note="")

    def __enter__(self) -> Display:
        if self.progress:
            self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.progress:
            self.progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(text)

    def event(self, event: Moved | Done) -> None:
        """Show that a task moved, or that a run is finished."""
        if isinstance(event, Done):
            self._done(event)
        elif self.progress:
            self._moved(event, self.progress)

    def _label(self, task: Task) -> str:
        first = task.specs[0]
        seeds = ",".join(str(spec.seed) for spec in task.specs)
        return f"{self.columns.get(first.id, '')} · {first.method.name} · seed {seeds}"

    def _moved(self, moved: Moved, progress: Progress) -> None:
        task = moved.task
        if task not in self.bars:
            rounds = task.specs[0].rounds
            self.bars[task] = progress.add_task(self._label(task), total=rounds, note="loading")
            self.started[task] = time.monotonic()
        elif moved.rounds:
            rate = moved.rounds / (time.monotonic() - self.started[task])
            progress.update(self.bars[task], completed=moved.rounds, note=f"{rate:.2f} rounds/s")

    def _done(self, done: Done) -> None:
        self.finished += 1
        if self.progress:
            self.progress.update(self.overall, completed=self.finished)
            for task in [t for t in self.bars if done.spec in t.specs]:
                self.progress.remove_task(self.bars.pop(task))
        what = f"{done.headline} in {done.seconds:.1f} s" if done.headline else done.status.upper()
        width = len(str(self.total))
        name = f"{self.columns.get(done.spec.id, '')} · {done.spec.method.name} · seed {done.spec.seed}"
        self.say(f"[{self.finished:>{width}}/{self.total}] {name}: {what}")
