"""`--follow`: every round of every run adds a line to a file, a TensorBoard folder or an MLflow database. No network.

A line has the run (`run`, `method`, `seed`, and its place in a table), `round` of `rounds`, `seconds`, and the mean
`accuracy` in percent by stage where the round was scored.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench.errors import StoreError, UsageError
from pflbench.spec import RunSpec
from pflbench.store.files import error_text

if TYPE_CHECKING:
    from pflbench.engine.run import Run

Line = Mapping[str, Any]
KINDS = {"tensorboard": "tensorboard:FOLDER", "mlflow": "mlflow:FILE.db"}
Destination = Callable[[Sequence[Line]], None]
"""Takes lines; raises `StoreError` where they cannot be written."""


def destination(follow: str) -> Destination:
    """Return the destination that `--follow` names: `tensorboard:FOLDER`, `mlflow:DATABASE`, or a file.

    Raises:
        UsageError: It names nothing of these, or the package that it takes is not installed.
    """
    kind, colon, where = follow.partition(":")
    if kind in ("tensorboard", "mlflow") and not where:
        raise UsageError(f"--follow {follow!r}: write where to, as {KINDS[kind]}.")
    if kind == "tensorboard":
        _need("tensorboard", "tensorboard")
        return TensorBoard(Path(where))
    if kind == "mlflow":
        _need("mlflow", "mlflow")
        return MLflow(where)
    if colon and kind.isalnum() and len(kind) > 1:  # one letter is a drive
        raise UsageError(f"--follow {follow!r}: {kind!r} is unknown; known: a file, {', '.join(KINDS.values())}.")
    return JSONLines(Path(follow))


def check(follow: str) -> None:
    """Raise `UsageError` if this is not to be written; nothing is made."""
    to = destination(follow)
    path = to.path if isinstance(to, JSONLines) else to.folder if isinstance(to, TensorBoard) else None
    if path is None:
        return
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
    if kind in ("tensorboard", "mlflow") and where:
        return follow if "://" in where else f"{kind}{colon}{Path(where).absolute()}"
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


class MLflow:
    """A database of MLflow, an experiment for each suite; `where`: its file, or its address with `://`."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.runs: dict[str, str] = {}

    def __call__(self, lines: Sequence[Line]) -> None:
        """Add points. Raises `StoreError`."""
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            if "://" not in self.where:
                Path(self.where).parent.mkdir(parents=True, exist_ok=True)
            client = MlflowClient(tracking_uri=self.where if "://" in self.where else f"sqlite:///{self.where}")
            for line in lines:
                if line["run"] not in self.runs:
                    self.runs[line["run"]] = _begun(client, line)
                run, when = self.runs[line["run"]], int(1000 * line["time"])
                for stage, accuracy in line.get("accuracy", {}).items():
                    client.log_metric(run, f"accuracy/{stage}", accuracy, when, line["round"])
                client.log_metric(run, "seconds", line["seconds"], when, line["round"])
                if line["round"] == line["rounds"]:
                    client.set_terminated(self.runs.pop(line["run"]))
        except (OSError, MlflowException) as error:
            raise StoreError(f"MLflow cannot write to {self.where!r}: {str(error).splitlines()[0]}") from error


def _begun(client: Any, line: Line) -> str:
    """MLflow's name of a new run of its own for this run."""
    name = str(line.get("suite", "pflbench"))
    found = client.get_experiment_by_name(name)
    experiment = found.experiment_id if found else client.create_experiment(name)
    tags = {key: str(line[key]) for key in ("run", "method", "seed", "column", "row") if key in line}
    return str(client.create_run(experiment, run_name=_name(line), tags=tags).info.run_id)


def _name(line: Line) -> str:
    """A run's name for people, which is also a path."""
    if "suite" in line:
        return f"{Path(str(line['suite'])).stem}/{line.get('column', '')}/{line.get('row', '')}, seed {line['seed']}"
    return f"{line['method'].rpartition('/')[2]}, seed {line['seed']}, {line['run']}"


def _need(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"--follow {extra}: needs the package {package}: pip install 'pflbench[{extra}]'.")


@dataclass
class Follower:
    """Tells of one group of runs."""

    to: Destination
    specs: Sequence[RunSpec]
    asked: Mapping[str, Mapping[str, object]]
    """By run id, where it stands in a table, see `running.task.Task`."""
    _began: float = field(default_factory=time.monotonic, init=False)

    def __call__(self, rounds: int, runs: Sequence[Run] = ()) -> None:
        """After so many rounds; `runs`: as they stand, once their own training has begun.

        Raises:
            StoreError: It cannot be written.
        """
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
        self.to(lines)


def accuracies(run: Run, rounds: int) -> dict[str, float]:
    """Mean accuracy in percent over the clients scored after this round, by stage, after the last fine-tuning step."""
    now = [score for score in run.scores if score.round == rounds]
    found = {}
    for stage in dict.fromkeys(score.stage for score in now):
        last = max(score.step for score in now if score.stage == stage)
        values = [score.accuracy for score in now if (score.stage, score.step) == (stage, last)]
        found[stage] = round(100 * sum(values) / len(values), 4)
    return found
