"""How long a run will take, from what it computes and from how fast this machine was seen to compute it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pflbench.engine.batches import Drawn, Reshuffled, Static, Stream, support_batches
from pflbench.errors import UsageError
from pflbench.executor import build
from pflbench.executor.measured import Measured
from pflbench.methods.base import Batch, Batches, Round
from pflbench.models.network import Network
from pflbench.spec import RunSpec

FORWARD = 1 / 3
"""A forward pass in gradients: the backward pass costs about two."""
SECOND = 3
"""A Hessian-vector product in gradients: two more passes than one, over a longer graph."""


class _Small:
    """A model that costs nothing to compute with: one number per part, but a linear head, whose size tells classes."""

    def __init__(self, network: Network):
        self.network = network
        self.parts: dict[str, slice] = {}
        self.size = 0
        for name, where in network.layout.parts.items():
            size = where.stop - where.start if name == "head" and network.features is not None else 1
            self.parts[name] = slice(self.size, self.size + size)
            self.size += size

    def part(self, name: str) -> slice:
        return self.parts[name]


class _Count(_Small):
    """An objective that computes nothing: it adds up rows, in gradients' worth."""

    rows = 0.0

    def __call__(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * len(b.rows)
        return w.new_zeros(())

    def grad(self, w: Tensor, b: Batch, *, wrt: str | None = None, **_: Any) -> Tensor:
        self.rows += len(b.rows)
        return torch.zeros_like(w[self.part(wrt)] if wrt else w)

    def hvp(self, w: Tensor, b: Batch, v: Tensor) -> Tensor:
        self.rows += SECOND * len(b.rows)
        return torch.zeros_like(w)

    def logits(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * len(b.rows)
        return w.new_zeros(len(b.rows), self.network.classes)

    def features(self, w: Tensor, b: Batch) -> Tensor:
        self.rows += FORWARD * len(b.rows)
        return w.new_zeros(len(b.rows), self.network.width)


class _New(_Small):
    """Initial models of that size."""

    def __call__(self, k: int = 0) -> Tensor:
        return torch.zeros(self.size)

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape)


def gradient_rows(spec: RunSpec, reference: str) -> float | None:
    """Rows that a run takes gradients of, training and scoring together, if every client holds the mean number.

    Other passes count by what they cost in gradients; a larger network than the plain one (CAFeMe's) counts by its
    size. None if the dataset does not say how large it is.
    """
    examples = getattr(build.dataset(spec.dataset), "examples", None)
    if examples is None:
        return None
    plain = build.network(spec)
    method = build.construct(reference, spec.method.hyper)
    network = method.network(plain)
    share = 1 - (0 if spec.query == "test-split" else spec.query)
    support = np.arange(max(1, round(examples / spec.clients * share * (1 - spec.validation))))
    stream: Stream = (
        Reshuffled(support, spec.batch, spec.seed, 0)
        if spec.batches == "reshuffled"
        else Static(support_batches(support, spec) or (support,))
    )
    new = _New(network)
    server = method.init(new, spec.training_clients)

    def trained(used: bool) -> float:
        count = _Count(network)
        taken = [_batches(drawn) for drawn in stream.draw(method.takes(), 0, used=used)[0]]
        with torch.no_grad():
            now = Round(0, torch.zeros((), dtype=torch.int64))
            method.client(count, server, method.init_client(server, new), *taken, round=now)
        return count.rows

    idle = (1 - spec.arrival) * trained(used=False) if method.trains == "everyone" else 0.0
    training = spec.rounds * spec.cohort * (spec.arrival * trained(used=True) + idle)
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    clients = min(scored[spec.scoring.clients], spec.scoring.first or spec.clients)
    updates = spec.scoring.finetune.steps if spec.scoring.finetune and "finetuned" in spec.scoring.stages else 0
    # A test split is usually a fifth or a sixth as large, and a client holds half of the labels.
    query = round(examples / 10 if spec.query == "test-split" else examples / spec.clients * spec.query)
    scoring = clients * (updates * spec.batch + (updates + 1) * query * FORWARD)
    return float((training + scoring) * network.layout.size / plain.layout.size)


def seconds(spec: RunSpec, reference: str, speeds: dict[str, Measured]) -> float | None:
    """Seconds of one run on one core, by `pflbench speed`'s measurements; None where they do not tell.

    `reference`: where the method's code is.
    """
    speed = speeds.get(spec.model)
    if speed is None or spec.precision != "fp32":
        return None
    try:
        rows = gradient_rows(spec, reference)
    except Exception:  # somebody's method may not like numbers that mean nothing
        return None
    return None if rows is None else rows * speed["seconds_per_client_step"] / speed["batch"]


def relative_work(references: Mapping[RunSpec, str]) -> dict[str, float] | None:
    """What each run costs next to the others, by its id; None if one is of somebody's own method, or does not tell.

    `references`: for each run where its method's code is. Own code runs in workers only: it may end its process.
    """
    by_kind: dict[str, float] = {}
    for spec, reference in references.items():
        if not reference.startswith("pflbench.methods."):
            return None
        if spec.group() not in by_kind:
            try:
                rows = gradient_rows(spec, reference)
            except UsageError:  # which the run itself will tell
                return None
            by_kind[spec.group()] = (rows or 0) * build.network(spec).layout.size
    found = {spec.id: by_kind[spec.group()] for spec in references}
    return found if all(found.values()) else None


def _batches(drawn: Drawn) -> Batches:
    found = []
    for rows in drawn:
        numbers = torch.zeros(rows.shape[-1], dtype=torch.int64)
        found.append(Batch(numbers, numbers, places=numbers if rows.ndim == 2 else None))
    return tuple(found)
