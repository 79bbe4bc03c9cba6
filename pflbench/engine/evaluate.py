"""Scoring: the global model, and the fine-tuning curve, on a client's query batches. Written for one client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.data.federation import Federation
from pflbench.engine.batches import Stream, query_batches
from pflbench.engine.client_map import ClientMap, Item
from pflbench.methods.base import Batches, Method, Objective, Take, keep
from pflbench.result import Score
from pflbench.spec import RunSpec, Scoring
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
        w = keep(b, w - lr * f.grad(w, b), w)
        points.append(score(f, w, query))
    return Tally(*[torch.stack(values) for values in zip(*points, strict=True)])


def scored_clients(scoring: Scoring, training: np.ndarray) -> np.ndarray:
    """Ids of the clients a run scores; `training` is bool ["clients"]."""
    chosen = {"held-out": ~training, "training": training, "all": np.ones_like(training)}[scoring.clients]
    return np.flatnonzero(chosen)[: scoring.first]


def evaluate(
    method: Method[Any, Any, Any],
    specs: Sequence[RunSpec],
    servers: Sequence[Tree],
    federations: Sequence[Federation],
    streams: Sequence[Sequence[Stream]],
    clients: ClientMap,
) -> list[tuple[Score, ...]]:
    """Score every run of a group (specs that differ by seed only) after its last round; one tuple of rows per run."""
    scoring = specs[0].scoring
    updates = scoring.finetune.steps if scoring.finetune and "finetuned" in scoring.stages else 0
    items, owners = [], []
    for seed, federation in enumerate(federations):
        for client in scored_clients(scoring, federation.training).tolist():
            drawn, _ = streams[seed][client].draw((Take(epochs=1), Take(steps=updates)), 0)
            items.append(Item(seed, (), (*drawn, query_batches(federation, client, specs[0]))))
            owners.append((seed, client))
    tallies = clients(lambda *args: curve(method, scoring, *args), servers, items)
    rows: list[list[Score]] = [[] for _ in specs]
    for (seed, client), tally in zip(owners, tallies, strict=True):
        rows[seed] += _rows(specs[seed], client, tally)
    return [tuple(r) for r in rows]


def _rows(spec: RunSpec, client: int, tally: Tally) -> list[Score]:
    correct, examples, loss_sum, batch_accuracy = (v.cpu().numpy() for v in tally)
    accuracy = batch_accuracy if spec.scoring.average == "batches" else correct / examples

    def row(stage: str, step: int) -> Score:
        return Score(
            stage,
            spec.rounds,
            step,
            client,
            int(correct[step]),
            int(examples[step]),
            float(loss_sum[step]),
            float(accuracy[step]),
        )

    found = [row("global", 0)] if "global" in spec.scoring.stages else []
    if "finetuned" in spec.scoring.stages:
        found += [row("finetuned", step) for step in range(len(examples))]
    return found
