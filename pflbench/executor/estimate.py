"""How long a run will take, from what it computes and from how fast this machine was seen to compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine.batches import Drawn, Reshuffled, Static, Stream, support_batches
from pflbench.engine.evaluate import before_aggregation, leaves_models
from pflbench.errors import UsageError
from pflbench.executor import build
from pflbench.executor.measured import Measured
from pflbench.methods.base import Batch, Batches, Round, Take
from pflbench.models.network import Network
from pflbench.spec import RunSpec

FORWARD = 1 / 3
"""A forward pass in gradients: the backward pass costs about two."""
COINS = 100
"""Equally spaced coins that stand for the rounds of a method with phases."""
SECOND = 3
"""A Hessian-vector product in gradients: two more passes than one, over a longer graph."""


class _Small:
    """A model that costs nothing to compute with: one number per part, but a linear head, whose size tells classes.

    `full`: as large as the network instead, for what depends on sizes.
    """

    def __init__(self, network: Network, full: bool = False):
        self.network, self.full = network, full
        self.parts: dict[str, slice] = {}
        self.size = 0
        for name, where in network.layout.parts.items():
            true = full or (name == "head" and network.features is not None)
            size = where.stop - where.start if true else 1
            self.parts[name] = slice(self.size, self.size + size)
            self.size += size

    def part(self, name: str) -> slice:
        return self.parts[name]

    def last(self, layers: int) -> slice:
        if self.full:
            return self.network.layout.last(layers)
        return slice(self.size - 1, self.size)


class _Count(_Small):
    """An objective that computes nothing: it adds up rows, in gradients' worth."""

    rows = 0.0

    def __init__(self, network: Network, noisy: bool, full: bool = False):
        super().__init__(network, full)
        self.cacheable = network.features is not None and not noisy

    def decay(self, rate: float | None, w: Tensor, *, wrt: str | None = None) -> None:
        return None

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


class _Client:
    """A client that holds the mean number of rows, and what is asked of it."""

    def __init__(self, spec: RunSpec, reference: str, examples: int, full: bool = False):
        self.plain = build.network(spec)
        self.method = build.construct(reference, spec.method.hyper)
        self.network = self.method.network(self.plain)
        share = 1.0 if isinstance(spec.query, str) else 1 - spec.query
        support = np.arange(max(1, round(examples / spec.clients * share * (1 - spec.validation))))
        self.stream: Stream = (
            Reshuffled(support, spec.batch, spec.seed, 0)
            if spec.batches == "reshuffled"
            else Static(support_batches(support, spec) or (support,))
        )
        self.new = _New(self.network, full)
        self.server = self.method.init(self.new, spec.training_clients)
        self.noisy = spec.augment != "none" or self.network.drops
        self.full = full

    def does(
        self, takes: Sequence[Take], part: Callable[..., Any], used: bool = True, phase: str | None = None
    ) -> tuple[float, Any]:
        """Gradients' worth of rows that a part of the method costs which is fed these, and what comes of it."""
        count = _Count(self.network, self.noisy, self.full)
        taken = [_batches(drawn) for drawn in self.stream.draw(takes, 0, used=used, phase=phase)[0]]
        with torch.no_grad():
            now = Round(0, torch.zeros((), dtype=torch.int64), phase)
            made = part(count, self.server, self.method.init_client(self.server, self.new), *taken, round=now)
        return count.rows, made

    def trains(self, used: bool = True) -> float:
        """The rows of a participation: the mean over the method's phases."""
        phases = Counter(self.method.phase((i + 0.5) / COINS) for i in range(COINS))
        costs = {phase: self.does(self.method.takes(), self.method.client, used, phase)[0] for phase in phases}
        return sum(costs[phase] * share / COINS for phase, share in phases.items())


class Participation(NamedTuple):
    """What a client does in a round that it takes part in: gradients of minibatches, and numbers in its upload.

    `uploads` counts what `client` returns to the server, a placeholder where a method sends nothing; None for a method
    with phases, not all of which need send it.
    """

    gradients: float
    uploads: int | None


def _examples(spec: RunSpec) -> int | None:
    """How many examples the run's dataset has; None if it does not tell, or where a user's own code would have to."""
    if spec.dataset.version or spec.partition.version or spec.model_version:
        return None
    found: int | None = getattr(build.dataset(spec.dataset), "examples", None)
    return found


def participation(spec: RunSpec, reference: str) -> Participation | None:
    """One participation of a client that holds the mean number of rows; None if the dataset does not tell its size.

    Gradients count rows over the suite's batch size, so that a gradient of all rows counts as many minibatches; other
    passes count by what they cost in gradients (`FORWARD`, `SECOND`). `reference`: where the method's code is.
    """
    examples = _examples(spec)
    if examples is None:
        return None
    client = _Client(spec, reference, examples, full=True)
    phase = client.method.phase(0.5)
    if phase is not None:
        return Participation(client.trains() / spec.batch, None)
    rows, (upload, _) = client.does(client.method.takes(), client.method.client)
    return Participation(rows / spec.batch, sum(leaf.numel() for leaf in pytree.tree_leaves(upload)))


def gradient_rows(spec: RunSpec, reference: str) -> float | None:
    """Rows that a run takes gradients of, training and scoring together, if every client holds the mean number.

    Other passes count by what they cost in gradients; a larger network than the plain one (CAFeMe's) counts by its
    size. None if the dataset does not say how large it is.
    """
    examples = _examples(spec)
    if examples is None:
        return None
    client = _Client(spec, reference, examples)
    method = client.method
    idle = (1 - spec.arrival) * client.trains(used=False) if method.trains == "everyone" else 0.0
    asked = spec.training_clients if method.asks == "everyone" else spec.cohort
    training = spec.rounds * asked * (spec.arrival * client.trains() + idle)
    # A test split is usually a fifth or a sixth as large, and a client holds half of the labels.
    shares = {"test-split": examples / 10, "partition": examples / 6 / spec.clients}
    query = round(shares[spec.query] if isinstance(spec.query, str) else examples / spec.clients * spec.query)
    one = 0.0
    if "global" in spec.scoring.stages or "finetuned" in spec.scoring.stages:
        updates = spec.scoring.finetune.steps if spec.scoring.finetune and "finetuned" in spec.scoring.stages else 0
        one += updates * spec.batch + (updates + 1) * query * FORWARD
    if before_aggregation(method, spec.scoring):
        one += client.trains() + query * FORWARD
    elif "personalized" in spec.scoring.stages:
        adapted, _ = client.does(
            method.adapts(),
            lambda f, server, own, *taken, round: method.personalize(f, server, own, None, *taken, round=round),
        )
        one += query * FORWARD + adapted
    if leaves_models(spec.scoring):
        one += query * FORWARD
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    clients = min(scored[spec.scoring.clients], spec.scoring.first or spec.clients)
    total = training + min(spec.scoring.last, spec.rounds) * clients * one
    return float(total * client.network.layout.size / client.plain.layout.size)


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
            if not rows:
                return None
            by_kind[spec.group()] = rows * build.network(spec).layout.size
    return {spec.id: by_kind[spec.group()] for spec in references}


def _batches(drawn: Drawn) -> Batches:
    found = []
    for rows in drawn:
        numbers = torch.zeros(rows.shape[-1], dtype=torch.int64)
        found.append(Batch(numbers, numbers, places=numbers if rows.ndim == 2 else None))
    return tuple(found)
