"""Costs of local updates for stored runs from before they were counted, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pflbench import names
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.upgrade import Step

TITLE = "given the costs of their clients"


def uncounted_runs(store: Store) -> list[str]:
    """Ids of the stored runs whose costs were not counted and may be: finished ones of methods that pflbench has."""
    return [run.spec.id for run in store.list() if _may_count(run.spec, run.provenance, run.failure)]


def recounting(data_root: Path) -> Step:
    """The step that counts; it needs a run's dataset. What it counts is what training would have counted.

    Left as they are: failed runs, runs of somebody's own code (which runs in workers only) and of other versions of
    built-in methods, and runs whose federation cannot be built here.
    """
    known: dict[str, dict[str, float]] = {}

    def counted(run: RunResult) -> RunResult | None:
        if not _may_count(run.spec, run.provenance, run.failure):
            return None
        if run.spec.id not in known:
            known[run.spec.id] = costs(run, data_root)
        return replace(run, provenance=run.provenance | known[run.spec.id]) if known[run.spec.id] else None

    return Step(TITLE, counted)


def costs(run: RunResult, data_root: Path) -> dict[str, float]:
    """The mean costs of the run's local updates (`engine.costs.Tally`); empty if they cannot be counted here."""
    from pflbench.engine.simulate import Simulation  # imports torch, which upgrading does not need else
    from pflbench.running import build

    spec, reference = run.spec, names.BUILT_IN["methods"][run.spec.method.name]
    try:
        if str(names.load(reference).version) != spec.method.version:
            return {}
        federation = build.federation(spec, data_root)
        if federation.hash != run.provenance.get("data_hash"):
            return {}
        method = build.construct(reference, spec.method.hyper)
        return dict(Simulation([spec], [federation], method, build.network(spec)).count()[0])
    except Exception:  # no data here, or hyperparameters that this version does not know
        return {}


def _may_count(spec: RunSpec, provenance: Mapping[str, Any], failure: str | None) -> bool:
    own = spec.method.name not in names.BUILT_IN["methods"]
    own = own or bool(spec.dataset.version or spec.partition.version or spec.model_version)
    return "client_gradients" not in provenance and failure is None and not own
