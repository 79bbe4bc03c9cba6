"""A line of JSON after every round of every run, for whoever looks on: `tail -f`, a notebook, a dashboard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pflbench.engine.run import Run
from pflbench.errors import StoreError
from pflbench.spec import RunSpec
from pflbench.store.files import said


@dataclass
class Follower:
    """Writes the lines of one group of runs to the end of a file that any number of processes share."""

    path: Path
    specs: Sequence[RunSpec]
    asked: Mapping[str, Mapping[str, object]]
    """By run id, where it stands in a table, see `executor.task.Task`."""
    _began: float = field(default_factory=time.monotonic, init=False)

    def __call__(self, rounds: int, runs: Sequence[Run] = ()) -> None:
        """After so many rounds; `runs`: as they stand, once their own training has begun.

        Raises:
            StoreError: The file cannot be written.
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
                "rounds": spec.total_rounds,
                "seconds": round(time.monotonic() - self._began, 3),
            }
            if runs and (scores := accuracies(runs[index], rounds - (spec.total_rounds - spec.rounds))):
                line["accuracy"] = scores
            lines.append(json.dumps(line) + "\n")
        self._append("".join(lines))

    def _append(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a file that is open for appending is not mixed with another process's.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"Cannot write to {str(self.path)!r}: {said(error)}.") from error


def accuracies(run: Run, rounds: int) -> dict[str, float]:
    """Mean accuracy in percent over the clients scored after this round, by stage, after the last fine-tuning step."""
    now = [score for score in run.scores if score.round == rounds]
    found = {}
    for stage in dict.fromkeys(score.stage for score in now):
        last = max(score.step for score in now if score.stage == stage)
        values = [score.accuracy for score in now if (score.stage, score.step) == (stage, last)]
        found[stage] = round(100 * sum(values) / len(values), 4)
    return found
