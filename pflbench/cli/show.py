"""`pflbench show`: one stored run in full."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console


def show(
    run: Annotated[str, typer.Argument(help="A run's id, or enough of its beginning.")],
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Print a run's spec, where it came from, and its scores and metrics."""
    from pflbench.reading.stored import named
    from pflbench.store import Store

    store = Store(results)
    (stored,) = named(store, [run])
    id = stored.spec.id
    result = store.read(id)
    out = console().print
    out(f"run {id}: {'failed' if result.failure else 'done'}")
    if result.failure:
        out(f"failure: {result.failure}")
    out("spec:", json.dumps(result.spec.model_dump(mode="json"), indent=2))
    out("provenance:", json.dumps(result.provenance, indent=2))
    moments: dict[tuple[str, int, int], list[float]] = {}
    for s in result.scores:
        moments.setdefault((s.stage, s.round, s.step), []).append(100 * s.accuracy)
    out("accuracy, mean over clients (min … max):")
    for (stage, round_, step), values in moments.items():
        mean = sum(values) / len(values)
        out(f"  {stage:<10} round {round_:>5} step {step:>3}  {mean:6.2f}  ({min(values):.2f} … {max(values):.2f})")
    told: dict[tuple[str, int], list[float]] = {}
    for metric in result.metrics:
        told.setdefault((metric.name, metric.round), []).append(metric.value)
    if told:
        out("numbers about clients, mean (min … max):")
    for (name, round_), values in told.items():
        out(f"  {name:<10} round {round_:>5}  {sum(values) / len(values):.6g}  ({min(values):.6g} … {max(values):.6g})")
    return 0
