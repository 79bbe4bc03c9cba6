"""A finished run that was made again, for more scores: whether it is the same run as far as both were scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pflbench.result import CLOSE, RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store.header import Stored

Moment = tuple[str, int, int]
"""Stage, round and fine-tuning step."""


def difference_text(stored: RunResult, again: RunResult) -> str | None:
    """Largest difference of mean accuracies at shared moments, in words, if it is more than `CLOSE`; else None.

    A mean is over the clients that were scored then. Results without a shared moment do not differ.
    """
    before, now = means(stored.scores), means(again.scores)
    shared = before.keys() & now.keys()
    if not shared:
        return None
    worst = max(shared, key=lambda moment: (abs(before[moment] - now[moment]), moment))
    if not abs(before[worst] - now[worst]) > CLOSE:
        return None
    stage, round, step = worst
    after = f"round {round}" + (f", step {step}" if step else "")
    return (
        f"by {now[worst] - before[worst]:+.2f} points after {after} ({stage}): "
        f"stored {before[worst]:.2f} % ({_made_on(stored)}), now {now[worst]:.2f} % ({_made_on(again)})"
    )


def _made_on(result: RunResult) -> str:
    """Device, torch and commit of a result."""
    device, torch, commit = (str(result.provenance.get(key) or "unknown") for key in ("device", "torch", "commit"))
    return f"{device}, torch {torch}, commit {commit[:12]}"


def often_enough(provenance: Mapping[str, Any], spec: RunSpec, every: int | None) -> bool:
    """True if a finished run of this provenance was scored as often as `every` requests (None: no request)."""
    if not every or every >= spec.rounds:
        return True
    was = provenance.get("evaluate_every")
    return bool(was and every % was == 0)


def state(run: Stored | None, spec: RunSpec, every: int | None) -> str:
    """`missing`, `failed` or `done`; a finished run that was scored less often than requested is missing."""
    if run is not None and run.failure is not None:
        return "failed"
    return "done" if run is not None and often_enough(run.provenance, spec, every) else "missing"


def scored_rounds(spec: RunSpec, every: int | None) -> int:
    """Number of rounds after which a run is scored; `every`: the interval of those before its last ones."""
    last = min(spec.scoring.last, spec.rounds)
    return last + ((spec.rounds - last) // every if every else 0)


def means(scores: Iterable[Score]) -> dict[Moment, float]:
    """The mean accuracy over clients in percent at each moment scored."""
    values: dict[Moment, list[float]] = {}
    for score in scores:
        values.setdefault((score.stage, score.round, score.step), []).append(100 * score.accuracy)
    return {moment: sum(several) / len(several) for moment, several in values.items()}
