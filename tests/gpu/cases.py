"""Every method and variant in small: short local updates, and runs with all phases and all kinds of scoring."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from variants import FEATURES, METHODS

from pflbench import names
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.models.network import Network
from pflbench.spec import Finetune, RunSpec, Scoring
from pflbench.testing import Case, tiny_features, tiny_federation

EQUAL, RAGGED = (12,) * 8, (13, 16, 9, 11, 13, 12, 5, 15)
"""Rows per client: stacks of the same shapes again and again, and stacks with padded steps and rows."""
SHORT = {"epochs": 1, "head_epochs": 1, "base_epochs": 1, "personal_epochs": 1} | dict.fromkeys(
    ("steps", "head_steps", "base_steps", "inner_steps", "samples", "outer_batches"), 2
)
"""What hyperparameters are at most that only make a local update longer."""


@cache
def case(name: str) -> Case:
    """A method by its name among the variants."""
    reference, options = METHODS[name]
    method: Any = names.resolve("methods", reference)(**options)
    short = {n: most for n, most in SHORT.items() if (getattr(method, n, None) or 0) > most}
    return Case(dataclasses.replace(method, **short), tiny_features() if name in FEATURES else None)


def dropping(found: Case) -> Network:
    """A tiny network with dropout, if the method can train one whose head is a linear layer; else one without."""
    network = tiny_features(dropout=0.4)
    try:
        found.method.network(network)
    except UsageError:
        return found.plain
    return network


def after(found: Case, seed: int, **changes: Any) -> RunSpec:
    """All clients stay: after the last two of four rounds every stage there is, with features and fine-tuning.

    Minibatches are reshuffled, images augmented.
    """
    wanted = ("global", "finetuned", "personalized", "stored", "sampled")
    stages = found.stages("after-aggregation", *wanted) or ("global",)
    tuned = Finetune(steps=2, lr=0.05) if "finetuned" in stages else None
    features = "personalized" in stages and found.method.network(dropping(found)).features is not None
    scoring = Scoring(clients="training", stages=stages, finetune=tuned, last=2, features=features)
    fields = {"batches": "reshuffled", "rounds": 4, "augment": "crop-flip", "scoring": scoring}
    return found.spec(seed, **(fields | changes))


def before(found: Case, seed: int, **changes: Any) -> RunSpec:
    """A third of the uploads gets lost; personal models are scored as training leaves them, the global one once."""
    stages = found.stages("before-aggregation", "global", "personalized") or ("global",)
    scoring = Scoring(clients="training", stages=stages, moment="before-aggregation", average="examples")
    fields: dict[str, Any] = {"cohort": 4, "arrival": 0.7, "rounds": 3, "scoring": scoring}
    return found.spec(seed, **(fields | changes))


def simulation(found: Case, specs: Sequence[RunSpec], sizes: Sequence[int], **setup: Any) -> Simulation:
    """A stacked simulation of these runs."""
    federations = [tiny_federation(spec.seed, sizes) for spec in specs]
    noisy = specs[0].augment != "none"
    own = Setup(**({"execution": "vectorized", "most_padding": math.inf} | setup))
    return Simulation(specs, federations, found.method, dropping(found) if noisy else found.plain, own)


def finished(run: Simulation) -> list[RunOutcome]:
    """What a simulation comes to, which is to succeed."""
    outcomes = run.run()
    for outcome in outcomes:
        assert outcome.failure is None, f"the run failed: {outcome.failure}"
    return outcomes


def numbers(outcomes: Sequence[RunOutcome]) -> list[Any]:
    """All that a run has to say: server states, scores, metrics."""
    return [(o.server, sorted(o.scores), sorted(o.metrics)) for o in outcomes]


def same(found: Sequence[RunOutcome], expected: Sequence[RunOutcome]) -> bool:
    """Whether two lists of runs are the same bit for bit."""
    for a, b in zip(found, expected, strict=True):
        mine, theirs = (torch.utils._pytree.tree_leaves(o.server) for o in (a, b))
        alike = all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))
        if not alike or sorted(a.scores) != sorted(b.scores) or sorted(a.metrics) != sorted(b.metrics):
            return False
    return True
