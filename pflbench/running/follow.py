"""`--follow`: every round of every run adds a line to a file or a TensorBoard folder. No network.

A line has the run (`run`, `method`, `seed`, and its place in a table), `round` of `rounds`, `seconds`, and the mean
`accuracy` in percent by stage where the round was scored.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench.errors import StoreError, UsageError
from pflbench.spec import RunSpec
from pflbench.store.files import error_text

if TYPE_CHECKING:
    from pflbench.engine.run import Run

Line = Mapping[str, Any]


def destination(follow: str) -> JSONLines | TensorBoard:
    """Return the destination that `--follow` names: `tensorboard:FOLDER` or a file.

    Raises:
        UsageError: It names neither, or TensorBoard is not installed.
    """
    kind, colon, where = follow.partition(":")
    if kind == "tensorboard":
        if not where:
            raise UsageError(f"--follow {follow!r}: write where to, as tensorboard:FOLDER.")
        if importlib.util.find_spec("tensorboard") is None:
            raise UsageError("--follow tensorboard: install TensorBoard: pip install 'pflbench[tensorboard]'.")
        return TensorBoard(Path(where))
    if colon and kind.isalnum() and len(kind) > 1:  # one letter is a drive
        raise UsageError(f"--follow {follow!r}: {kind!r} is unknown; known: a file, tensorboard:FOLDER.")
    return JSONLines(Path(follow))


def check(follow: str) -> None:
    """Raise `UsageError` if this is not to be written; nothing is made."""
    to = destination(follow)
    path = to.path if isinstance(to, JSONLines) else to.folder
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    is_file = isinstance(to, JSONLines) and there == path.absolute()
    why = ""
    if there.is_dir() == is_file:
        why = f"{str(there)!r} is {'a folder' if is_file else 'no folder'}"
    elif not os.access(there, os.W_OK):
        why = f"{str(there)!r} is not yours to write"
    if why:
        raise UsageError(f"--follow {follow!r}: {why}.")


def absolute(follow: str) -> str:
    """Make the path of `--follow` absolute, for a process in another folder."""
    kind, colon, where = follow.partition(":")
    if kind == "tensorboard" and where:
        return f"{kind}{colon}{Path(where).absolute()}"
    return str(Path(follow).absolute())


class JSONLines:
    """Adds lines to the end of a file that any number of processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, lines: Sequence[Line]) -> None:
        """Add them. Raises `StoreError`."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a file that is open for appending is not mixed with another process's.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"Cannot write to {str(self.path)!r}: {error_text(error)}.") from error


class TensorBoard:
    """A folder of event files: one for each run, at `SUITE/COLUMN/ROW, seed S`, with its accuracies by stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers: dict[str, Any] = {}

    def __call__(self, lines: Sequence[Line]) -> None:
        """Add points. Raises `StoreError`."""
        from torch.utils.tensorboard import SummaryWriter

        try:
            for line in lines:
                if line["run"] not in self.writers:
                    self.writers[line["run"]] = SummaryWriter(str(self.folder / _name(line)))
                writer = self.writers[line["run"]]
                for stage, accuracy in line.get("accuracy", {}).items():
                    writer.add_scalar(f"accuracy/{stage}", accuracy, line["round"], line["time"])
                writer.add_scalar("seconds", line["seconds"], line["round"], line["time"])
                writer.flush()
                if line["round"] == line["rounds"]:
                    self.writers.pop(line["run"]).close()
        except OSError as error:
            raise StoreError(f"Cannot write to {str(self.folder)!r}: {error_text(error)}.") from error


def _name(line: Line) -> str:
    """A run's name for people, which is also a path."""
    if "suite" in line:
        return f"{Path(str(line['suite'])).stem}/{line.get('column', '')}/{line.get('row', '')}, seed {line['seed']}"
    return f"{line['method'].rpartition('/')[2]}, seed {line['seed']}, {line['run']}"


@dataclass
class Follower:
    """Writes a line a round for each run of a group. A line that cannot be written costs a warning, no training."""

    to: JSONLines | TensorBoard
    specs: Sequence[RunSpec]
    asked: Mapping[str, Mapping[str, object]]
    """By run id, where it stands in a table, see `running.task.Task`."""
    _began: float = field(default_factory=time.monotonic, init=False)
    _failed: bool = field(default=False, init=False)

    def __call__(self, rounds: int, runs: Sequence[Run] = ()) -> None:
        """Write the lines of a round; `runs`: their scores, once their own training has begun."""
        lines = []
        for index, spec in enumerate(self.specs):
            asked = self.asked.get(spec.id, {})
            line: dict[str, Any] = {
                "time": round(time.time(), 3),
                "run": spec.id,
                **{key: asked[key] for key in ("suite", "column", "row") if key in asked},
                "method": spec.method.name,
                "seed": spec.seed,
                "round": rounds,
                "rounds": spec.rounds,
                "seconds": round(time.monotonic() - self._began, 3),
            }
            if runs and (scores := accuracies(runs[index], rounds)):
                line["accuracy"] = scores
            lines.append(line)
        try:
            self.to(lines)
        except StoreError as error:
            if not self._failed:
                warnings.warn(f"--follow lacks lines: {error} Training goes on.", stacklevel=2)
            self._failed = True


def accuracies(run: Run, rounds: int) -> dict[str, float]:
    """Mean accuracy in percent over the clients scored after this round, by stage, after the last fine-tuning step."""
    now = [score for score in run.scores if score.round == rounds]
    found = {}
    for stage in dict.fromkeys(score.stage for score in now):
        last = max(score.step for score in now if score.stage == stage)
        values = [score.accuracy for score in now if (score.stage, score.step) == (stage, last)]
        found[stage] = round(100 * sum(values) / len(values), 4)
    return found
