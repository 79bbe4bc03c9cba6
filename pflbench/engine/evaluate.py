"""Scoring: the global model, its fine-tuning curve, and personal models, on query rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Scorer:
    """Scores of the runs of a group after a round.

    Attributes:
        method: The method of all of them.
        runs: The runs, by their indices in the group; at least one.
        clients: Maps functions over their clients.
        round: Number of finished rounds.
        on_model: Takes the models.
    """

    method: Method
    runs: Mapping[int, Run]
    clients: ClientMap
    round: int
    on_model: OnModel | None = None

    @property
    def scoring(self) -> Scoring:
        """What of the runs is scored."""
        return next(iter(self.runs.values())).spec.scoring

    def every_stage(self) -> Scored:
        """Score all stages, without personal models that the suite scores before aggregation."""
        scoring, stages = self.scoring, set(self.scoring.stages)
        everyone = [(index, client) for index, run in self.runs.items() for client in run.scored]
        if self._deploys_to_clients():
            # So many at a time that memory holds their models.
            for owners in self.clients.portions(everyone) if self.on_model else [everyone]:
                yield from self._deployed(owners)
        if "global" in stages and scoring.global_on == "test-set":
            yield from self._on_test_rows()
        if "personalized" in stages and not before_aggregation(self.method, scoring):
            for owners in self.clients.portions(everyone):
                yield from self.personal(
                    {(index, client): (self.runs[index].state(client), None) for index, client in owners}
                )
        if leaves_models(scoring):
            yield from self._local_models()

    def _deploys_to_clients(self) -> bool:
        """True if clients get the global model: to be scored or fine-tuned, or to be stored though not scored."""
        stages = set(self.scoring.stages)
        if "finetuned" in stages or ("global" in stages and self.scoring.global_on == "clients"):
            return True
        stored = self.on_model is not None and "global" not in stages
        return stored and of_class(type(self.method)).global_model == "trained"

    def personal(self, trained: Trained) -> Scored:
        """Score the personal models of these clients, by (run, client): on their query rows, at each of their stages.

        `trained`: each client's state after training, and its upload of this round. Without an upload (None) models are
        made from their states and the server's; with one they are what this round's training made. Where the suite asks
        for features, their means over each client's support become metrics of its run.
        """
        if not trained:
            return
        method, fresh = self.method, all(sent is None for _, sent in trained.values())
        if fresh and not (stages := of_class(type(method))).adapts(vars(method)):
            raise UsageError(f"{type(method).__name__} has no personal models without {stages.personal_needs}.")
        draws = drawn_by(method, "personal_draws", method.personal_draws()) if fresh else ()
        items, keys = [], self.clients.keys(self.runs, [*trained], "personalize", self.round)
        for ((index, client), (state, sent)), key in zip(trained.items(), keys, strict=True):
            run = self.runs[index]
            drawn, _ = run.streams[client].draw(draws, 0, "personalize", self.round)
            self.clients.check_rows(*drawn)
            support = pieces(run.federation.support[client]) if run.spec.scoring.features else []
            private = state, () if sent is None else sent, key
            items.append(Item(index, private, (*drawn, self._query(run, client), support)))

        def made(f: Objective, server: Tree, private: Tree, *taken: Batches) -> Tree:
            (state, sent, key), (*adapting, query, support) = private, taken
            fed, now = keyed(adapting, key, self.clients.data.task), Watched(self.round - 1, key, requested)
            how = {} if fresh else {"upload": sent}
            model = method.personal_model(f, server, state, *fed, round=now, **how)
            by_stage = models(method, "personal_model", model, self.clients.data.task.network.layout.size)
            scores = {stage: score(f, w, query) for stage, w in by_stage.items()}
            return scores, by_stage, _means(f, by_stage["personalized"], support)

        name, requested = ("personal", fresh), set[int]()
        yield from self._mapped(made, [*trained], items, None if name in self.clients.timely else name)
        if requested:
            self.clients.timely.add(name)

    def _mapped(self, fn: ClientFunction, owners: Sequence[Owner], items: Sequence[Item], key: Hashable) -> Scored:
        """Scores of these items, where `fn` returns tallies and models by stage, and mean features."""

        def wanted(*args: Tree) -> Tree:
            tallies, by_stage, features = fn(*args)
            return tallies, by_stage if self.on_model else {}, features

        servers = {index: run.server for index, run in self.runs.items()}
        made = self.clients(wanted, servers, items, key=key and (key, self.on_model is None))
        for (index, client), (tallies, by_stage, features) in zip(owners, made, strict=True):
            run = self.runs[index]
            means = host.read(features, "features").tolist() if len(features) else []
            run.metrics += [Metric(self.round, client, f"feature/{i}", value) for i, value in enumerate(means)]
            for stage, tally in tallies.items():
                yield index, _rows(stage, run.spec.scoring.average, self.round, client, tally)
            if self.on_model:
                for stage, w in by_stage.items():
                    self.on_model(index, stage, client, w)

    def _local_models(self) -> Scored:
        """Local models: of the clients scored ("stored"), and of the last cohort ("sampled")."""
        for stage in self.scoring.stages:
            if stage not in ("stored", "sampled"):
                continue
            owners = [
                (index, client)
                for index, run in self.runs.items()
                for client in sorted(run.local_models.keys() & run.scored if stage == "stored" else run.latest)
            ]
            items = [
                Item(index, self.runs[index].local_models[client], (self._query(self.runs[index], client),))
                for index, client in owners
            ]

            def one(f: Objective, server: Tree, w: Params, query: Batches, stage: str = stage) -> Tree:
                return {stage: score(f, w, query)}, {stage: w}, ()

            yield from self._mapped(one, owners, items, ("local models", stage))

    def _deployed(self, owners: Sequence[Owner]) -> Scored:
        """The global model on the query rows of each of these clients, and its fine-tuning."""
        scoring, clients = self.scoring, self.clients
        tunes = "finetuned" in scoring.stages
        updates = scoring.finetune.steps if scoring.finetune and tunes else 0
        items = []
        for (index, client), key in zip(owners, clients.keys(self.runs, owners, "finetune", self.round), strict=True):
            run = self.runs[index]
            drawn, _ = run.streams[client].draw((Draw(epochs=1), Draw(steps=updates)), 0, "finetune", self.round)
            clients.check_rows(drawn[1])
            items.append(Item(index, key, (*drawn, self._query(run, client))))

        def one(f: LoopObjective, server: Tree, key: Tensor, support: Batches, tuning: Batches, query: Batches) -> Tree:
            (tuning,) = keyed([tuning], key, clients.data.task)
            tally, deployed, last = curve(self.method, scoring, f, server, support, tuning, query)
            scored = "global" in scoring.stages and scoring.global_on == "clients"
            tallies = {"global": Hits(*[v[0] for v in tally])} if scored else {}
            by_stage = {"global": deployed}
            if tunes:
                tallies["finetuned"], by_stage["finetuned"] = tally, last
            return tallies, by_stage, ()

        yield from self._mapped(one, owners, items, "scoring")

    def _on_test_rows(self) -> Scored:
        """The global model on the federation's test rows, as client -1."""
        items = [Item(index, (), (pieces(run.federation.test),)) for index, run in self.runs.items()]

        def one(f: LoopObjective, server: Tree, private: tuple[()], query: Batches) -> Tree:
            w = _deploy(self.method, f, server, ())
            return {"global": score(f, w, as_predicted(self.method, query, None))}, {"global": w}, ()

        yield from self._mapped(one, [(index, -1) for index in self.runs], items, "test rows")

    def _query(self, run: Run, client: int) -> Drawn:
        """A client's query: in the run's minibatches where scores depend on them, else in pieces that fit memory."""
        batchwise = self.clients.data.task.network.scored_batchwise
        if run.spec.scoring.average != "batches" and not batchwise:
            return pieces(run.federation.query[client])
        query = query_batches(run.federation, client, run.spec)
        if batchwise:
            self.clients.check_rows(query)
        return query


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


def _rows(stage: str, average: str, round: int, client: int, tally: Hits) -> list[Score]:
    """A score per entry of the tally, whose number is the fine-tuning step; one of a tally of scalars."""
    rows = []
    for step, (correct, examples, loss_sum, batch_accuracy) in enumerate(
        zip(*(np.atleast_1d(host.read(values, "scores")).tolist() for values in tally), strict=True)
    ):
        accuracy = batch_accuracy if average == "batches" else correct / examples
        rows.append(Score(stage, round, step, client, int(correct), int(examples), loss_sum, accuracy))
    return rows
