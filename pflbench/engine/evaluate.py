"""Scoring: the global model, and the fine-tuning curve, on a client's query batches. Written for one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.engine.batches import query_batches
from pflbench.engine.client_map import ClientMap, Item
from pflbench.engine.run import Run
from pflbench.methods.base import Batches, Method, Objective, Take, keep
from pflbench.optim import sgd
from pflbench.result import Score
from pflbench.spec import Scoring
from pflbench.typing import Params

Tree = Any


class Tally(NamedTuple):
    """One client scored once: exact counts, summed loss, and the mean of batch accuracies."""

    correct: Tensor
    examples: Tensor
    loss_sum: Tensor
    batch_accuracy: Tensor


def score(f: Objective, w: Params, query: Batches) -> Tally:
    """Score one model on one client's query batches (scalars, float64)."""
    zero = w.new_zeros((), dtype=torch.float64)
    tally, used = Tally(zero, zero, zero, zero), zero
    for b in query:
        logits = f.logits(w, b)
        loss = F.cross_entropy(logits, b.labels, reduction="none")
        hit = logits.argmax(-1) == b.labels
        mask = torch.ones_like(hit) if b.mask is None else b.mask
        correct, examples = (hit & mask).sum().double(), mask.sum().double()
        new = Tally(
            tally.correct + correct,
            tally.examples + examples,
            tally.loss_sum + torch.where(mask, loss.double(), 0).sum(),
            tally.batch_accuracy + correct / examples.clamp(min=1),
        )
        tally, used = keep(b, (new, used + 1), (tally, used))
    return tally._replace(batch_accuracy=tally.batch_accuracy / used)


def curve(
    method: Method[Any, Any, Any], scoring: Scoring, f: Objective, server: Tree, own: tuple[()], *taken: Batches
) -> Tree:
    """The deployed model's score and, with a fine-tuning protocol, the score after each update.

    `taken`: one pass over the support (for `deploy`), the fine-tuning minibatches, the query batches.
    Entry t is taken after t updates; update t uses the rate lr · decay^(t // every) (CAFeMe, authors' code).
    """
    support, tuning, query = taken
    w = method.deploy(f, server, support)
    points = [score(f, w, query)]
    for t, b in enumerate(tuning):
        assert scoring.finetune is not None
        lr = scoring.finetune.lr * scoring.finetune.decay ** (t // scoring.finetune.every)
        w = keep(b, sgd(w, f.grad(w, b), lr=lr), w)
        points.append(score(f, w, query))
    return Tally(*[torch.stack(values) for values in zip(*points, strict=True)])


def scored_clients(scoring: Scoring, training: np.ndarray) -> np.ndarray:
    """Ids of the clients a run scores; `training` is bool ["clients"]."""
    chosen = {"held-out": ~training, "training": training, "all": np.ones_like(training)}[scoring.clients]
    return np.flatnonzero(chosen)[: scoring.first]


def evaluate(
    method: Method[Any, Any, Any],
    runs: Mapping[int, Run],
    clients: ClientMap,
    round: int,
) -> dict[int, tuple[Score, ...]]:
    """Score runs of a group after so many rounds; rows by the run's number in the group, as `clients` counts seeds."""
    if not runs:
        return {}
    first = next(iter(runs.values())).spec
    scoring = first.scoring
    updates = scoring.finetune.steps if scoring.finetune and "finetuned" in scoring.stages else 0
    items, owners = [], []
    for seed, run in runs.items():
        for client in scored_clients(scoring, run.federation.training).tolist():
            drawn, _ = run.streams[client].draw((Take(epochs=1), Take(steps=updates)), 0)
            items.append(Item(seed, (), (*drawn, query_batches(run.federation, client, first))))
            owners.append((seed, client))
    servers = {seed: run.server for seed, run in runs.items()}
    tallies = clients(lambda *args: curve(method, scoring, *args), servers, items, key="scoring")
    rows: dict[int, list[Score]] = {seed: [] for seed in runs}
    for (seed, client), tally in zip(owners, tallies, strict=True):
        rows[seed] += _rows(first.scoring, round, client, tally)
    return {seed: tuple(found) for seed, found in rows.items()}


def _rows(scoring: Scoring, round: int, client: int, tally: Tally) -> list[Score]:
    correct, examples, loss_sum, batch_accuracy = (v.cpu().numpy() for v in tally)
    accuracy = batch_accuracy if scoring.average == "batches" else correct / examples

    def row(stage: str, step: int) -> Score:
        return Score(
            stage,
            round,
            step,
            client,
            int(correct[step]),
            int(examples[step]),
            float(loss_sum[step]),
            float(accuracy[step]),
        )

    found = [row("global", 0)] if "global" in scoring.stages else []
    if "finetuned" in scoring.stages:
        found += [row("finetuned", step) for step in range(len(examples))]
    return found
