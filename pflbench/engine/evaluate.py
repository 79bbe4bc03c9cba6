"""Scoring: the global model, its fine-tuning curve, and personal models, on query rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.engine import host
from pflbench.engine.batches import Drawn, pieces, query_batches
from pflbench.engine.client_map import ClientFunction, ClientMap, Item, Owner, Watched, keyed
from pflbench.engine.forms import draws as drawn_by
from pflbench.engine.forms import models
from pflbench.engine.objective import LoopObjective
from pflbench.engine.run import Run
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Draw, Method, Objective, keep
from pflbench.optim import sgd
from pflbench.result import Metric, Score
from pflbench.spec import Scoring
from pflbench.stages import of_class
from pflbench.typing import Params
from pflbench.vector import replace

Tree = Any
Trained = Mapping[Owner, tuple[Tree, Tree]]
Scored = Iterator[tuple[int, list[Score]]]
"""Scores of runs, each with the run's index in its group; a run may come several times."""
OnModel = Callable[[int, str, int, Params], None]
"""Takes a model: its run's index in the group, its stage, its client (-1: whom the test rows score), itself.

Those that the last scores are of ("finetuned": after the last step), and "global" also where it is not scored."""


class Hits(NamedTuple):
    """One client scored once: exact counts, summed loss, and the mean of batch accuracies."""

    correct: Tensor
    examples: Tensor
    loss_sum: Tensor
    batch_accuracy: Tensor


def leaves_models(scoring: Scoring) -> bool:
    """True if local models are scored: those of the clients' last local updates."""
    return "stored" in scoring.stages or "sampled" in scoring.stages


def score(f: Objective, w: Params, query: Batches) -> Hits:
    """Score one model on one client's query batches (scalars, float64)."""
    zero = w.new_zeros((), dtype=torch.float64)
    tally, used = Hits(zero, zero, zero, zero), zero
    for b in query:
        logits = f.logits(w, b)
        loss = F.cross_entropy(logits, b.labels, reduction="none")
        hit = logits.argmax(-1) == b.labels
        mask = torch.ones_like(hit) if b.mask is None else b.mask
        correct, examples = (hit & mask).sum().double(), mask.sum().double()
        new = Hits(
            tally.correct + correct,
            tally.examples + examples,
            tally.loss_sum + torch.where(mask, loss.double(), 0).sum(),
            tally.batch_accuracy + correct / examples.clamp(min=1),
        )
        tally, used = keep(b, (new, used + 1), (tally, used))
    return tally._replace(batch_accuracy=tally.batch_accuracy / used)


def curve(
    method: Method, scoring: Scoring, f: LoopObjective, server: Tree, *taken: Batches
) -> tuple[Hits, Params, Params]:
    """The deployed model's score and, with a fine-tuning protocol, the score after each update; then both models.

    `taken`: one pass over the support (for `deploy`), the fine-tuning minibatches, the query batches.
    Entry t is taken after t updates; update t uses the rate lr · decay^(t // every) (CAFeMe, authors' code).
    """
    support, tuning, query = taken
    w = deployed = _deploy(method, f, server, support)
    points = [score(f, w, as_predicted(method, query, support[0] if support else None))]
    for t, b in enumerate(tuning):
        assert scoring.finetune is not None
        lr = scoring.finetune.lr * scoring.finetune.decay ** (t // scoring.finetune.every)
        w = keep(b, tuned(f, w, b, lr, method.tuned(t)), w)
        points.append(score(f, w, as_predicted(method, query, b)))
    return Hits(*[torch.stack(values) for values in zip(*points, strict=True)]), deployed, w


def as_predicted(method: Method, query: Batches, last: Batch | None) -> Batches:
    """The query as a model is given it that was fine-tuned on `last` (see `Method.predicting`)."""
    return tuple(method.predicting(b, last) for b in query)


def tuned(f: Objective, w: Params, b: Batch, lr: float, part: str | None) -> Params:
    """A model after one step of fine-tuning of this part (None: of all)."""
    if part is None:
        return f.with_statistics(sgd(w, f.grad(w, b), lr=lr), w, b)
    where = f.part(part)
    new = sgd(w[where], f.grad(w, b, wrt=part), lr=lr)
    return replace(w, where, f.with_statistics(new, w, b, wrt=part))


def _deploy(method: Method, f: LoopObjective, server: Tree, support: Batches) -> Params:
    return models(method, "deploy", method.deploy(f, server, support), f.network.layout.size)["personalized"]


def before_aggregation(method: Method, scoring: Scoring) -> bool:
    """True if personalized models are scored as training leaves them, before the server aggregates."""
    return "personalized" in scoring.stages and scoring.moment == "before-aggregation" and of_class(type(method)).local


def evaluate(
    method: Method, runs: Mapping[int, Run], clients: ClientMap, round: int, on_model: OnModel | None = None
) -> Scored:
    """Score runs of a group after so many rounds; `on_model` takes the models.

    Personal models that training leaves behind are not scored here if the suite scores them before aggregation.
    """
    if not runs:
        return
    scoring = next(iter(runs.values())).spec.scoring
    stages, everyone = set(scoring.stages), [(index, client) for index, run in runs.items() for client in run.scored]
    if _deploys_to_clients(method, scoring, bool(on_model)):
        for owners in clients.portions(everyone) if on_model else [everyone]:  # so many that memory holds their models
            yield from _deployed(method, runs, clients, round, owners, on_model)
    if "global" in stages and scoring.global_on == "test-set":
        yield from _on_test_rows(method, runs, clients, round, on_model)
    if "personalized" in stages and not before_aggregation(method, scoring):
        for owners in clients.portions(everyone):
            trained = {(index, client): (runs[index].state(client), None) for index, client in owners}
            yield from personal(method, runs, clients, round, trained, on_model)
    if leaves_models(scoring):
        yield from _local_models(runs, clients, round, on_model)


def _deploys_to_clients(method: Method, scoring: Scoring, on_model: bool) -> bool:
    """True if clients get the global model: to be scored or fine-tuned, or to be stored though nothing scores it."""
    stages = set(scoring.stages)
    if "finetuned" in stages or ("global" in stages and scoring.global_on == "clients"):
        return True
    return on_model and "global" not in stages and of_class(type(method)).global_model == "trained"


def personal(
    method: Method,
    runs: Mapping[int, Run],
    clients: ClientMap,
    round: int,
    trained: Trained,
    on_model: OnModel | None = None,
) -> Scored:
    """Score the personal models of these clients, by (run, client): on their query rows, at each of their stages.

    `trained`: each client's state after training, and its upload of this round. Without an upload (None) models are
    made from their states and the server's; with one they are what this round's training made. `on_model` takes them.
    Where the suite asks for features, their means over each client's support become metrics of its run.
    """
    if not trained:
        return
    fresh = all(sent is None for _, sent in trained.values())
    if fresh and not (stages := of_class(type(method))).adapts(vars(method)):
        raise UsageError(f"{type(method).__name__} has no personal models without {stages.personal_needs}.")
    draws = drawn_by(method, "personal_draws", method.personal_draws()) if fresh else ()
    items, keys = [], clients.keys(runs, [*trained], "personalize", round)
    for ((index, client), (state, sent)), key in zip(trained.items(), keys, strict=True):
        run = runs[index]
        drawn, _ = run.streams[client].draw(draws, 0, "personalize", round)
        clients.check_rows(*drawn)
        support = pieces(run.federation.support[client]) if run.spec.scoring.features else []
        items.append(
            Item(index, (state, () if sent is None else sent, key), (*drawn, _query(run, clients, client), support))
        )

    def made(f: Objective, server: Tree, private: Tree, *taken: Batches) -> Tree:
        (state, sent, key), (*adapting, query, support) = private, taken
        fed, now = keyed(adapting, key, clients.data.task), Watched(round - 1, key, requested)
        how = {} if fresh else {"upload": sent}
        model = method.personal_model(f, server, state, *fed, round=now, **how)
        by_stage = models(method, "personal_model", model, clients.data.task.network.layout.size)
        scores = {stage: score(f, w, query) for stage, w in by_stage.items()}
        return scores, by_stage if on_model else {}, _means(f, by_stage["personalized"], support)

    name, requested = ("personal", fresh, on_model is None), set[int]()
    yield from _mapped(
        clients, runs, made, [*trained], items, None if name in clients.timely else name, round, on_model
    )
    if requested:
        clients.timely.add(name)


def _mapped(
    clients: ClientMap,
    runs: Mapping[int, Run],
    fn: ClientFunction,
    owners: Sequence[Owner],
    items: Sequence[Item],
    key: Hashable,
    round: int,
    on_model: OnModel | None,
) -> Scored:
    """Scores of these items, where `fn` returns tallies and models by stage, and mean features."""
    made = clients(fn, {index: run.server for index, run in runs.items()}, items, key=key)
    for (index, client), (tallies, by_stage, features) in zip(owners, made, strict=True):
        run = runs[index]
        means = host.read(features, "features").tolist() if len(features) else []
        run.metrics += [Metric(round, client, f"feature/{i}", value) for i, value in enumerate(means)]
        for stage, tally in tallies.items():
            yield index, _rows(stage, run.spec.scoring.average, round, client, tally)
        if on_model:
            for stage, w in by_stage.items():
                on_model(index, stage, client, w)


def _means(f: Objective, w: Params, batches: Batches) -> Tensor:
    """The mean features ["features"] of a model on all of these rows; none if there are no rows."""
    if not batches:
        return w.new_empty(0)
    total, rows = torch.zeros_like(f.features(w, batches[0])[0]), w.new_zeros(())
    for b in batches:
        z = f.features(w, b)
        mask = torch.ones_like(b.rows, dtype=torch.bool) if b.mask is None else b.mask
        new = total + torch.where(mask[:, None], z, 0).sum(0), rows + mask.sum()
        total, rows = keep(b, new, (total, rows))
    return total / rows


def _local_models(runs: Mapping[int, Run], clients: ClientMap, round: int, on_model: OnModel | None) -> Scored:
    """Local models: of the clients scored ("stored"), and of the last cohort ("sampled")."""
    for stage in next(iter(runs.values())).spec.scoring.stages:
        if stage not in ("stored", "sampled"):
            continue
        owners = [
            (index, client)
            for index, run in runs.items()
            for client in sorted(run.local_models.keys() & run.scored if stage == "stored" else run.latest)
        ]
        items = [Item(i, runs[i].local_models[client], (_query(runs[i], clients, client),)) for i, client in owners]

        def one(f: Objective, server: Tree, w: Params, query: Batches, stage: str = stage) -> Tree:
            return {stage: score(f, w, query)}, {stage: w} if on_model else {}, ()

        yield from _mapped(
            clients, runs, one, owners, items, ("local models", stage, on_model is None), round, on_model
        )


def _deployed(
    method: Method,
    runs: Mapping[int, Run],
    clients: ClientMap,
    round: int,
    owners: Sequence[Owner],
    on_model: OnModel | None,
) -> Scored:
    """The global model on the query rows of each of these clients, and its fine-tuning."""
    scoring = next(iter(runs.values())).spec.scoring
    tunes = "finetuned" in scoring.stages
    updates = scoring.finetune.steps if scoring.finetune and tunes else 0
    items = []
    for (index, client), key in zip(owners, clients.keys(runs, owners, "finetune", round), strict=True):
        run = runs[index]
        drawn, _ = run.streams[client].draw((Draw(epochs=1), Draw(steps=updates)), 0, "finetune", round)
        clients.check_rows(drawn[1])
        items.append(Item(index, key, (*drawn, _query(run, clients, client))))

    def one(f: LoopObjective, server: Tree, key: Tensor, support: Batches, tuning: Batches, query: Batches) -> Tree:
        (tuning,) = keyed([tuning], key, clients.data.task)
        tally, deployed, last = curve(method, scoring, f, server, support, tuning, query)
        scored = "global" in scoring.stages and scoring.global_on == "clients"
        tallies = {"global": Hits(*[v[0] for v in tally])} if scored else {}
        made = {"global": deployed} | ({"finetuned": last} if tunes else {})
        return tallies | ({"finetuned": tally} if tunes else {}), made if on_model else {}, ()

    yield from _mapped(clients, runs, one, owners, items, ("scoring", on_model is None), round, on_model)


def _on_test_rows(
    method: Method, runs: Mapping[int, Run], clients: ClientMap, round: int, on_model: OnModel | None
) -> Scored:
    """The global model on the federation's test rows, as client -1."""
    items = [Item(index, (), (pieces(run.federation.test),)) for index, run in runs.items()]

    def one(f: LoopObjective, server: Tree, private: tuple[()], query: Batches) -> Tree:
        w = _deploy(method, f, server, ())
        return {"global": score(f, w, as_predicted(method, query, None))}, {"global": w} if on_model else {}, ()

    owners = [(index, -1) for index in runs]
    yield from _mapped(clients, runs, one, owners, items, ("test rows", on_model is None), round, on_model)


def _query(run: Run, clients: ClientMap, client: int) -> Drawn:
    """A client's query: in the run's minibatches where scores depend on them, else in pieces that fit into memory."""
    if run.spec.scoring.average != "batches" and not clients.data.task.network.scored_batchwise:
        return pieces(run.federation.query[client])
    query = query_batches(run.federation, client, run.spec)
    if clients.data.task.network.scored_batchwise:
        clients.check_rows(query)
    return query


def _rows(stage: str, average: str, round: int, client: int, tally: Hits) -> list[Score]:
    """A score per entry of the tally, whose number is the fine-tuning step; one of a tally of scalars."""
    rows = []
    for step, (correct, examples, loss_sum, batch_accuracy) in enumerate(
        zip(*(np.atleast_1d(host.read(values, "scores")).tolist() for values in tally), strict=True)
    ):
        accuracy = batch_accuracy if average == "batches" else correct / examples
        rows.append(Score(stage, round, step, client, int(correct), int(examples), loss_sum, accuracy))
    return rows
