"""What every round of every run tells whoever looks on (`--follow`); `looking` has where it is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pflbench.engine.run import Run
from pflbench.running.looking import Destination
from pflbench.spec import RunSpec


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
                "rounds": spec.total_rounds,
                "seconds": round(time.monotonic() - self._began, 3),
            }
            if runs and (scores := accuracies(runs[index], rounds - (spec.total_rounds - spec.rounds))):
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
