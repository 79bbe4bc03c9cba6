"""Other readings of CAFeMe's text and code, each against a slow version: one client, one minibatch at a time.

The slow version has no objective, no stack, no streams and no vectors of states; Adam is torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench import names
from pflbench.catalog import complete, describe
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial, sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Round
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedrep_averaged import FedRepAveraged
from pflbench.methods.ifca import IFCA
from pflbench.models.network import Network
from pflbench.models.ops import Context
from pflbench.optim import AdamState
from pflbench.spec import Finetune, RunSpec, Scoring
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

FEDERATION = tiny_federation(0)
CUT = [[rows[i : i + 5] for i in range(0, len(rows), 5)] for rows in FEDERATION.support]
"""Every client's static minibatches."""
TUNING = Finetune(steps=4, lr=0.05, decay=0.5, every=2)
SPEC = tiny_spec(
    rounds=3, cohort=4, scoring=Scoring(stages=("global", "finetuned"), average="examples", finetune=TUNING)
)
EXECUTIONS = ("loop", "vectorized")
Loss = Callable[[Tensor, np.ndarray, np.ndarray | None], Tensor]


def simulated(method: Any, execution: Any = "loop", spec: RunSpec = SPEC) -> RunOutcome:
    (outcome,) = Simulation([spec], [FEDERATION], method, tiny_network(), Setup(execution=execution)).run()
    assert outcome.failure is None
    return outcome


def close(a: Tensor, b: Tensor) -> None:
    """To what Adam and the statistics of a batch of two rows make of rounding; a mistake is worth much more."""
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


class Slow:
    """The losses of one network, walks through minibatches, and each client's own torch Adam."""

    def __init__(self, network: Network, reset: bool = False):
        self.network, self.reset = network, reset
        self.walks: dict[tuple[int, str], int] = {}
        self.adams: dict[tuple[int, str], dict[str, Any]] = {}

    def taken(self, client: int, steps: int, half: str = "all") -> list[np.ndarray]:
        """The next minibatches of a client's walk through all of them, or through a half."""
        cut = CUT[client]
        middle = len(cut) // 2
        if half != "all" and len(cut) > 1:
            cut = cut[:middle] if half == "first" else cut[middle:]
        at = self.walks.get((client, half), 0)
        self.walks[client, half] = at + steps
        return [cut[(at + i) % len(cut)] for i in range(steps)]

    def loss(self, w: Tensor, rows: np.ndarray, seen: np.ndarray | None = None) -> Tensor:
        """The mean cross-entropy; `seen`: the rows of a context, None for the batch itself."""
        return F.cross_entropy(self.logits(w, rows, seen), labels(rows))

    def logits(self, w: Tensor, rows: np.ndarray, seen: np.ndarray | None = None) -> Tensor:
        others = rows if seen is None else seen
        context = Context(images(others), labels(others)) if self.network.contextual else None
        return self.network.logits([w], images(rows), context=context)

    def grad(self, w: Tensor, rows: np.ndarray, seen: np.ndarray | None = None) -> Tensor:
        leaf = w.detach().clone().requires_grad_()
        return torch.autograd.grad(self.loss(leaf, rows, seen), leaf)[0]

    def adam(
        self, client: int, name: str, w: Tensor, gradients: Sequence[Callable[[Tensor], Tensor]], lr: float
    ) -> Any:
        """Steps of torch's Adam from the state that this client has under this name, or at rest."""
        leaf = w.clone().requires_grad_()
        by = torch.optim.Adam([leaf], lr)
        if not self.reset and (client, name) in self.adams:
            by.load_state_dict(self.adams[client, name])
        for gradient in gradients:
            leaf.grad = gradient(leaf.detach())
            by.step()
        self.adams[client, name] = by.state_dict()
        return leaf.detach()

    def curve(self, w: Tensor, client: int, frozen: bool = False, head_first: int = 0) -> list[tuple[int, float]]:
        """(correct, summed loss) of a held-out client before fine-tuning and after each of its steps."""
        query = [FEDERATION.query[client][i : i + 5] for i in range(0, len(FEDERATION.query[client]), 5)]
        query = query[:-1] if len(query) > 1 and len(query[-1]) == 1 else query
        points, last = [], CUT[client][0]
        for t in range(TUNING.steps + 1):
            logits = [self.logits(w, rows, last if frozen else None) for rows in query]
            correct = sum(int((z.argmax(1) == labels(rows)).sum()) for z, rows in zip(logits, query, strict=True))
            loss = sum(
                float(F.cross_entropy(z, labels(rows), reduction="sum")) for z, rows in zip(logits, query, strict=True)
            )
            points.append((correct, loss))
            last = CUT[client][t % len(CUT[client])]
            g = self.grad(w, last)
            if t < head_first:
                head = self.network.layout.part("head")
                g = torch.cat([torch.zeros(head.start), g[head], torch.zeros(len(g) - head.stop)])
            w = w - TUNING.lr * TUNING.decay ** (t // TUNING.every) * g
        return points

    def check(self, outcome: RunOutcome, w: Tensor, **how: Any) -> None:
        """Hold a run's server and its held-out clients' curves against the slow version's."""
        close(outcome.server, w)
        for client in np.flatnonzero(~FEDERATION.training).tolist():
            found = [s for s in outcome.scores if s.client == client and s.stage == "finetuned"]
            points = self.curve(outcome.server, client, **how)
            assert [s.step for s in found] == list(range(TUNING.steps + 1))
            for s, (correct, loss) in zip(found, points, strict=True):
                assert s.correct == correct and s.loss_sum == pytest.approx(loss, rel=1e-4)
            (start,) = [s for s in outcome.scores if s.client == client and s.stage == "global"]
            assert start.loss_sum == found[0].loss_sum


def images(rows: np.ndarray) -> Tensor:
    return FEDERATION.x[rows].double() / 255


def labels(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(FEDERATION.labels[rows])


def rounds(spec: RunSpec = SPEC) -> list[list[int]]:
    return [sample_cohort(spec, FEDERATION.training, index).tolist() for index in range(spec.rounds)]


VARIANTS = "cafeme/variants/cafeme.py"


def cafeme(variant: str = "", **options: Any) -> CAFeMe:
    """CAFeMe, or a variant of it."""
    made: CAFeMe = names.load(f"{VARIANTS}:{variant}")(**options) if variant else CAFeMe(**options)
    return made


def ditto(name: str) -> Any:
    """Reading of Ditto beside CAFeMe's variant suites."""
    return names.resolve("methods", f"cafeme/variants/ditto.py:{name}")


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("variant", ["", "AdamReset", "Disjoint", "HiddenGates", "KeptContext", "Labels", "PaperText"])
def test_cafemes_readings_are_those_of_a_slow_version(variant: str, execution: Any) -> None:
    method = cafeme(variant, steps=3, outer_batches=4, inner_lr=0.1, outer_lr=0.02)
    slow = Slow(method.network(tiny_network()), reset=variant == "AdamReset")
    frozen = variant in ("KeptContext", "Labels", "PaperText")
    halves = ("first", "second") if variant in ("Disjoint", "PaperText") else ("all", "all")
    w = slow.network.init(0).double()
    for cohort in rounds():
        sent = []
        for c in cohort:
            phi, inner = w, slow.taken(c, 3, halves[0])
            for rows in inner:
                phi = phi - 0.1 * slow.grad(phi, rows)
            outer = np.concatenate(slow.taken(c, 4, halves[1]))
            g = slow.grad(phi, outer, inner[-1] if frozen else None)
            sent.append(slow.adam(c, "all", w, [lambda _, g=g: g], 0.02))  # type: ignore[misc]
        w = sum(sent) / len(sent)  # type: ignore[assignment]
    slow.check(simulated(method, execution), w, frozen=frozen)


@pytest.mark.parametrize("variant", ["", "KeptContext", "PaperText"])
def test_the_exact_meta_gradient_is_autograds_with_a_kept_context_too(variant: str) -> None:
    """The gates of the outer batch are then the adapted modulator's, of the last inner minibatch."""
    method = cafeme(variant, order="exact", steps=3, inner_lr=0.3)
    slow = Slow(method.network(tiny_network()))
    inner, outer = [CUT[3][i] for i in (0, 1, 2)], np.concatenate(CUT[3][:2])
    w = slow.network.init(0).double()
    theta = w.clone().requires_grad_()
    phi: Tensor = theta
    for rows in inner:
        phi = phi - 0.3 * torch.autograd.grad(slow.loss(phi, rows), phi, create_graph=True)[0]
    loss = slow.loss(phi, outer, inner[-1] if variant else None)
    expected = torch.autograd.grad(loss, theta)[0]
    f = LoopObjective(Task(slow.network, FEDERATION.x))
    *mine, merged = (Batch(torch.from_numpy(rows), labels(rows)) for rows in (*inner, outer))
    rest = method.init_client(w, Initial(slow.network, 0, torch.device("cpu"), torch.float64))
    _, state = method.client(f, w, rest, tuple(mine), (merged,), round=Round(0))
    assert isinstance(state, AdamState)
    torch.testing.assert_close(10 * state.first, expected, rtol=1e-9, atol=1e-9)  # the first moment of one step


def test_a_context_that_is_kept_moves_what_is_predicted_and_labels_do_too() -> None:
    servers = [simulated(cafeme(variant)).server for variant in ("", "KeptContext", "Disjoint")]
    assert not torch.equal(servers[0], servers[1]) and not torch.equal(servers[0], servers[2])
    method = cafeme("Labels")
    network = method.network(tiny_network())
    w, rows, seen = network.init(0).double(), FEDERATION.support[3][:5], FEDERATION.support[3][5:10]
    first, other = (
        network.logits([w], images(rows), context=Context(images(seen), y))
        for y in (labels(seen), (labels(seen) + 1) % 3)
    )
    assert not torch.equal(first, other)


def test_the_gradient_of_the_outer_loss_reaches_the_modulator_through_the_kept_context() -> None:
    method = cafeme("KeptContext", outer_lr=0.01, steps=2)
    outcome = simulated(method)
    network = method.network(tiny_network())
    where = network.layout.part("modulator")
    assert (outcome.server[where] != network.init(0).double()[where]).double().mean() > 0.5


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("make", "optimizer_state", "anchor"),
    [(Ditto, "kept", "current"), (ditto("StaleAnchor"), "kept", "stale"), (ditto("AdamReset"), "reset", "current")],
)
def test_dittos_readings_are_those_of_a_slow_version(
    make: Any, optimizer_state: str, anchor: str, execution: Any
) -> None:
    method = make(steps=3, lr=0.02, personal_lr=0.1, lam=0.7)
    slow = Slow(tiny_network(), reset=optimizer_state == "reset")
    w = slow.network.init(0).double()
    personal, last, stale = {}, {}, 0
    for cohort in rounds():
        sent = []
        for c in cohort:
            v, u = personal.get(c, slow.network.init(0).double()), w
            if anchor == "stale":
                u = last.get(c, slow.network.init(0).double())
                stale += not torch.equal(u, w)
            for rows in slow.taken(c, 3):
                v = v - 0.1 * (slow.grad(v, rows) + 0.7 * (v - u))
            mine = slow.taken(c, 3)
            personal[c] = v
            last[c] = slow.adam(c, "all", w, [lambda x, r=rows: slow.grad(x, r) for rows in mine], 0.02)  # type: ignore[misc]
            sent.append(last[c])
        w = sum(sent) / len(sent)  # type: ignore[assignment]
    assert bool(stale) == (anchor == "stale")
    slow.check(simulated(method, execution), w)
    # The personal models, as they are scored.
    scoring = Scoring(clients="training", stages=("stored",), average="examples")
    outcome = simulated(method, execution, SPEC.model_copy(update={"scoring": scoring}))
    assert {s.client for s in outcome.scores} == set(personal)
    for s in outcome.scores:
        query = [FEDERATION.query[s.client][i : i + 5] for i in range(0, len(FEDERATION.query[s.client]), 5)]
        query = query[:-1] if len(query) > 1 and len(query[-1]) == 1 else query
        found = sum(float(slow.loss(personal[s.client], rows)) * len(rows) for rows in query)
        assert s.loss_sum == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_dittos_global_part_by_sgd_is_that_of_a_slow_version(execution: Any) -> None:
    method, slow = Ditto(steps=3, lr=0.05, optimizer="sgd"), Slow(tiny_network())
    w = slow.network.init(0).double()
    for cohort in rounds():
        sent = []
        for c in cohort:
            slow.taken(c, 3)  # the personal steps'
            u = w
            for rows in slow.taken(c, 3):
                u = u - 0.05 * slow.grad(u, rows)
            sent.append(u)
        w = sum(sent) / len(sent)  # type: ignore[assignment]
    slow.check(simulated(method, execution), w)
    new = Initial(slow.network, 0, torch.device("cpu"), torch.float64)
    assert method.init_client(w, new).memory == ()  # a client keeps no moments


def test_a_stale_anchor_changes_no_score_of_the_global_model() -> None:
    current, stale = (simulated(make()) for make in (Ditto, ditto("StaleAnchor")))
    assert torch.equal(current.server, stale.server) and current.scores == stale.scores


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("variant", "options"),
    [("", {}), ("AdamReset", {}), ("LocalHeads", {}), ("LocalHeads", {"head_first": 3})],
    ids=str,
)
def test_fedreps_readings_are_those_of_a_slow_version(variant: str, options: dict[str, Any], execution: Any) -> None:
    kind = names.load(f"cafeme/variants/fedrep_averaged.py:{variant}") if variant else FedRepAveraged
    method = kind(head_steps=3, base_steps=2, head_lr=0.02, base_lr=0.01, **options)
    slow = Slow(tiny_network(), reset=variant == "AdamReset")
    base, head = (slow.network.layout.part(part) for part in ("base", "head"))
    w = slow.network.init(0).double()
    heads: dict[int, Tensor] = {}
    for cohort in rounds():
        sent = []
        for c in cohort:
            u = (
                torch.cat([w[base], heads.get(c, slow.network.init(0).double()[head])])
                if variant == "LocalHeads"
                else w
            )
            for name, where, steps, lr in (("head", head, 3, 0.02), ("base", base, 2, 0.01)):
                gradients = [
                    lambda x, r=rows, u=u, where=where: slow.grad(torch.cat([u[: where.start], x, u[where.stop :]]), r)[
                        where
                    ]
                    for rows in slow.taken(c, steps)
                ]
                x = slow.adam(c, name, u[where], gradients, lr)  # type: ignore[arg-type]
                u = torch.cat([u[: where.start], x, u[where.stop :]])
            heads[c] = u[head]
            sent.append(u)
        w = sum(sent) / len(sent)  # type: ignore[assignment]
        if variant == "LocalHeads":
            w = torch.cat([w[base], slow.network.init(0).double()[head]])
    slow.check(simulated(method, execution), w, head_first=options.get("head_first", 0))


def test_clusters_that_are_one_object_are_one_cluster() -> None:
    """As in the authors' script: a list of K references, the least loss, and what the server writes is seen by all."""
    slow = Slow(tiny_network())
    models = [slow.network.init(0).double()] * 4
    for cohort in rounds():
        sent: dict[int, list[Tensor]] = {}
        for c in cohort:
            losses = [sum(float(slow.loss(w, rows)) for rows in CUT[c]) for w in models]
            u = models[chosen := losses.index(min(losses))]
            for rows in CUT[c] * 2:
                u = u - 0.05 * slow.grad(u, rows)
            sent.setdefault(chosen, []).append(u)
        assert list(sent) == [0]
        models = [sum(sent[0]) / len(sent[0])] * 4  # type: ignore[list-item]
    close(simulated(IFCA(clusters=1, epochs=2, lr=0.05)).server[0], models[0])


def test_what_changes_no_setting_is_the_same_run() -> None:
    """Options at their defaults are no part of an identity, so that all stored runs keep theirs."""
    silent = {
        "ditto": {"optimizer": None},
        "fedavg": {"steps": None},
    }
    for name, options in silent.items():
        assert complete(describe(name), options) == complete(describe(name), {})
        assert set(options).isdisjoint(complete(describe(name), {}))


def test_what_cannot_be_known_is_refused() -> None:
    b = Batch(torch.arange(5), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(UsageError, match="a test set has no personalization batch"):
        cafeme("KeptContext").predicting(b, None)
    assert CAFeMe().predicting(b, None) is b
