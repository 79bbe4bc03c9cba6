"""`--follow`: every round of every run adds a line to a file or a TensorBoard folder. No network.

A line has the run (`run`, `method`, `seed`, and its suite, column and row), `round` of `rounds`, `seconds`, and the
mean `accuracy` in percent by stage where the round was scored.
"""

from __future__ import annotations

import importlib.util
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench.errors import UsageError
from pflbench.running.again import means
from pflbench.store.files import error_text

if TYPE_CHECKING:
    from pflbench.engine.simulate import Simulation


def destination(follow: str) -> tuple[bool, Path]:
    """Return True for a TensorBoard folder, False for a file, and its absolute path.

    Raises:
        UsageError: It is neither, or TensorBoard is not installed.
    """
    kind, colon, folder = follow.partition(":")
    if not colon or not kind.isalnum() or len(kind) == 1:  # one letter is a drive
        return False, Path(follow).absolute()
    if kind != "tensorboard" or not folder:
        raise UsageError(f"--follow {follow!r}: write a file or tensorboard:FOLDER.")
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("--follow tensorboard: install TensorBoard: pip install 'pflbench[tensorboard]'.")
    return True, Path(folder).absolute()


class Follower:
    """Writes a line a round for each run of a group. A line that cannot be written costs a warning, no training.

    `requests`: by run id, the suites that request it; a line names the first one, its column and row.
    """

    def __init__(self, follow: str, requests: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
        self.is_board, self.path = destination(follow)
        self.requests = requests
        self.started = time.monotonic()
        self.has_failed = False

    def __call__(self, simulation: Simulation) -> None:
        """Write the lines of a round that is finished."""
        try:
            for run in simulation.runs:
                request = next(iter(self.requests.get(run.spec.id, ())), {})
                line = {
                    "time": round(time.time(), 3),
                    "run": run.spec.id,
                    **{key: request[key] for key in ("suite", "column", "row") if key in request},
                    "method": run.spec.method.name,
                    "seed": run.spec.seed,
                    "round": simulation.rounds,
                    "rounds": run.spec.rounds,
                    "seconds": round(time.monotonic() - self.started, 3),
                }
                scores = means(score for score in run.scores if score.round == simulation.rounds)
                if scores:  # of the steps of fine-tuning the last one
                    line["accuracy"] = {stage: round(mean, 4) for (stage, _, _), mean in scores.items()}
                (_draw if self.is_board else _append)(self.path, line)
        except OSError as error:
            if not self.has_failed:
                problem = f"cannot write to {str(self.path)!r}: {error_text(error)}"
                warnings.warn(f"--follow: {problem}. Training goes on.", stacklevel=2)
            self.has_failed = True


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line of JSON to the end of a file that any number of processes share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:  # one write is not mixed with another process's
        file.write(f"{json.dumps(line)}\n".encode())


def _draw(folder: Path, line: Mapping[str, Any]) -> None:
    """Add points to the event file of a run, at `SUITE/COLUMN/ROW, seed S`."""
    name = f"{line['method'].rpartition('/')[2]}, seed {line['seed']}, {line['run']}"
    if "suite" in line:
        name = f"{Path(str(line['suite'])).stem}/{line.get('column')}/{line.get('row')}, seed {line['seed']}"
    writer = _writer(folder / name)
    for stage, accuracy in line.get("accuracy", {}).items():
        writer.add_scalar(f"accuracy/{stage}", accuracy, line["round"], line["time"])
    writer.add_scalar("seconds", line["seconds"], line["round"], line["time"])
    writer.flush()
    if line["round"] == line["rounds"]:
        writer.close()


@cache
def _writer(folder: Path) -> Any:
    """The writer of a run's event file; one for all its rounds."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
