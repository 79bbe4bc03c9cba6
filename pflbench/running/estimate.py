"""How long a run will take, from what it computes and from how fast this machine was seen to compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pflbench import names
from pflbench.engine.batches import Reshuffled, Static, Stream, support_batches
from pflbench.engine.costs import FORWARD, META, Counting, Shapes, without_content
from pflbench.engine.evaluate import before_aggregation, leaves_models
from pflbench.engine.objective import Task
from pflbench.engine.run import Initial
from pflbench.methods.base import Draw, Round
from pflbench.running import build
from pflbench.spec import RunSpec

COINS = 100
"""Equally spaced coins that stand for the rounds of a method whose clients draw by them."""

_SHAPES = Shapes()
"""Shared by all runs that are counted: those of a suite meet the same shapes."""


class MeanClient:
    """A client that holds the mean number of rows, and the costs of its local updates."""

    def __init__(self, spec: RunSpec, reference: str, examples: int):
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
        self.new = Initial(self.network, spec.seed, META, torch.float32)
        with _SHAPES:
            self.server = self.method.init(self.new, spec.training_clients)
        self.task = Task(self.network, torch.empty(0, device=META), augment=spec.augment != "none")

    def does(self, draws: Sequence[Draw], part: Callable[..., Any], used: bool = True) -> float:
        """Images that a function of the method takes gradients of on such minibatches; other passes as fractions."""
        count = Counting(self.task)
        taken = [without_content(drawn) for drawn in self.stream.draw(draws, 0, used=used)[0]]
        with torch.no_grad(), _SHAPES:
            now = Round(0, torch.empty((), dtype=torch.int64, device=META))
            part(count, self.server, self.method.init_client(self.server, self.new), *taken, round=now)
        return count.rows

    def trains(self, used: bool = True) -> float:
        """The same for a local update: the mean over all coins."""
        kinds = Counter(self.method.draws(Round(0, coin=(i + 0.5) / COINS)) for i in range(COINS))
        return sum(self.does(draws, self.method.client, used) * share / COINS for draws, share in kinds.items())


@lru_cache(maxsize=1024)
def gradient_rows(spec: RunSpec, reference: str) -> float | None:
    """Rows that a run takes gradients of, training and scoring together, if every client holds the mean number.

    Other passes count by what they cost in gradients; a larger network than the plain one (CAFeMe's) counts by its
    size. None if the dataset does not say how large it is, or the method cannot compute without data.
    """
    if spec.dataset.version or spec.partition.version or spec.model_version:  # user's code, which runs in workers only
        return None
    examples = getattr(build.dataset(spec.dataset), "examples", None)
    if examples is None:
        return None
    try:
        divided = getattr(build.partition(spec.partition), "rows", None) or examples  # limited data (pFedVEM, Table 6)
        return _rows(spec, reference, examples, divided)
    except Exception:  # a user's method may look at its numbers; what is wrong with it the run itself says
        return None


def _rows(spec: RunSpec, reference: str, examples: int, divided: int) -> float:
    """`examples` the dataset has outside of its test split, of which the clients hold `divided`."""
    client = MeanClient(spec, reference, divided)
    method = client.method
    # A test split is usually a fifth or a sixth as large, and a client holds half of the labels.
    shares = {"test-split": examples / 10, "partition": divided / 6 / spec.clients}
    query = round(shares[spec.query] if isinstance(spec.query, str) else divided / spec.clients * spec.query)
    one = 0.0
    if "global" in spec.scoring.stages or "finetuned" in spec.scoring.stages:
        updates = spec.scoring.finetune.steps if spec.scoring.finetune and "finetuned" in spec.scoring.stages else 0
        one += updates * spec.batch + (updates + 1) * query * FORWARD
    if before_aggregation(method, spec.scoring):
        one += client.trains() + query * FORWARD
    elif "personalized" in spec.scoring.stages:
        one += query * FORWARD + client.does(method.personal_draws(), method.personalize)
    if leaves_models(spec.scoring):
        one += query * FORWARD
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    clients = min(scored[spec.scoring.clients], spec.scoring.first or spec.clients)
    before = ((link, names.locate("methods", link.method.name)) for link in spec.links)
    training = sum(_training(link, MeanClient(link, where, divided)) for link, where in before)
    total = training + _training(spec, client) + min(spec.scoring.last, spec.rounds) * clients * one
    return float(total * client.network.layout.size / client.plain.layout.size)


def _training(spec: RunSpec, client: MeanClient) -> float:
    """The same rows for the rounds of a run's own method."""
    idle = (1 - spec.arrival) * client.trains(used=False) if client.method.commits == "trained" else 0.0
    asked = spec.training_clients if client.method.joins == "everyone" else spec.cohort
    return spec.rounds * asked * (spec.arrival * client.trains() + idle)


def timed_as(spec: RunSpec) -> str:
    """What the time of one gradient depends on: the network, its images and classes, the precision, and the batch."""
    data = build.dataset(spec.dataset)
    channels, height, width = data.shape
    return f"{spec.model} {channels}x{height}x{width} {data.classes} {spec.precision} {spec.batch}"


def seconds(spec: RunSpec, reference: str, speeds: Mapping[str, float]) -> float | None:
    """Seconds of one run on one core; None where nothing that was measured says it.

    Args:
        spec: The run.
        reference: Where the method's code is.
        speeds: Seconds of one example's gradient on this machine, by `timed_as` or, for fp32, by the network alone.
    """
    rows = gradient_rows(spec, reference) if speeds else None
    if rows is None:
        return None
    speed = speeds.get(timed_as(spec), speeds.get(spec.model) if spec.precision == "fp32" else None)
    return None if speed is None else rows * speed


def relative_work(references: Mapping[RunSpec, str]) -> dict[str, float] | None:
    """What each run costs next to the others, by its id; None if one is of a user's method, or cannot be counted.

    `references`: for each run where its method's code is. Own code runs in workers only: it may end its process.
    """
    by_kind: dict[str, float] = {}
    for spec, reference in references.items():
        if spec.group() not in by_kind:
            work = work_of(spec, reference)
            if work is None:
                return None
            by_kind[spec.group()] = work
    return {spec.id: by_kind[spec.group()] for spec in references}


def work_of(spec: RunSpec, reference: str) -> float | None:
    """What a run costs next to others; None if it is of a user's method, or cannot be counted."""
    if not reference.startswith("pflbench.methods."):
        return None
    rows = gradient_rows(spec, reference)
    return rows * build.network(spec).layout.size if rows else None
