"""Federated Reptile and first-order MAML as a tutorial gives them: special cases, and rounds against slow versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.data.federation import Federation
from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedec import FedEC
from pflbench.methods.fo_maml import FOMaml
from pflbench.methods.reptile import Reptile
from pflbench.models.mlp import perceptron
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_features, tiny_federation, tiny_spec

FEDERATION, EQUAL = tiny_federation(0), tiny_federation(0, sizes=(20,) * 8)
EXECUTIONS = ("loop", "vectorized")
NET = tiny_features()
DERIVED = perceptron((1, 8, 8), 3, hidden=(16,))
"""A network with a gradient derived by hand."""
LEFT = Scoring(clients="all", stages=("personalized", "stored", "sampled"))


def spec(**changes: Any) -> RunSpec:
    return tiny_spec(rounds=3).model_copy(update={"batches": "reshuffled"} | changes)


def start() -> Tensor:
    return NET.init(0).double()


def batches(rows: Sequence[np.ndarray]) -> tuple[Batch, ...]:
    return tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def autograd(w: Tensor, rows: np.ndarray, federation: Federation = FEDERATION) -> Tensor:
    """The mean cross-entropy's gradient on these rows."""
    leaf = w.clone().requires_grad_()
    logits = NET.logits([leaf], federation.x[rows].double() / 255)
    return torch.autograd.grad(F.cross_entropy(logits, torch.from_numpy(federation.labels[rows])), leaf)[0]


def descended(w: Tensor, rows: Sequence[np.ndarray], lr: float, federation: Federation = FEDERATION) -> Tensor:
    for some in rows:
        w = w - lr * autograd(w, some, federation)
    return w


@pytest.mark.parametrize("network", [NET, DERIVED], ids=["autograd", "by hand"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}, {"batch": 4}], ids=str)
def test_reptile_is_fedec_without_a_constraint(options: dict[str, Any], network: Any) -> None:
    shared = {"epochs": 2, "inner_lr": 0.05, "outer_lr": 0.6, **options}
    scored = spec(scoring=LEFT)
    (reptile,) = Simulation([scored], [FEDERATION], Reptile(**shared), network).run()
    (fedec,) = Simulation([scored], [FEDERATION], FedEC(**shared, constraint="none"), network).run()
    close(reptile.server, fedec.server)
    for a, b in zip(sorted(reptile.scores), sorted(fedec.scores), strict=True):
        assert a[:5] == b[:5] and a.loss_sum == pytest.approx(b.loss_sum, rel=1e-11)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_reptile_with_a_server_step_of_1_and_equal_clients_is_fedavg(momentum: float | None) -> None:
    for weights in ("uniform", "examples"):
        equal = spec(weights=weights)
        (reptile,) = Simulation([equal], [EQUAL], Reptile(epochs=2, inner_lr=0.05, momentum=momentum), NET).run()
        (fedavg,) = Simulation([equal], [EQUAL], FedAvg(epochs=2, lr=0.05, momentum=momentum), NET).run()
        close(reptile.server, fedavg.server)


@pytest.mark.parametrize(
    "method", [Reptile(outer_lr=0.0), Reptile(outer_lr=0.0, steps=3), FOMaml(outer_lr=0.0)], ids=str
)
def test_without_a_server_step_nothing_moves(method: Any) -> None:
    (outcome,) = Simulation([tiny_spec()], [FEDERATION], method, NET).run()
    assert torch.equal(outcome.server, start())


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("amount", [{"epochs": 2}, {"steps": 3}], ids=str)
def test_rounds_of_reptile_are_those_of_a_slow_version(amount: dict[str, int], execution: Any) -> None:
    """On static minibatches, whose stream goes on where a client's last participation left it."""
    method = Reptile(inner_lr=0.05, outer_lr=0.6, **amount)
    static = tiny_spec(rounds=4, cohort=4).model_copy(update={"weights": "examples"})
    (outcome,) = Simulation([static], [FEDERATION], method, NET, Setup(execution=execution)).run()
    cut = [stream.batches for stream in support_streams(FEDERATION, static)]
    cursors, again = [0] * 8, 0
    w = start()
    for index in range(4):
        sent = []
        for c in sample_cohort(static, FEDERATION.training, index).tolist():
            again += cursors[c]
            mine = list(cut[c]) * 2
            if "steps" in amount:
                mine = [cut[c][(cursors[c] + i) % len(cut[c])] for i in range(3)]
                cursors[c] += 3
            sent.append(descended(w, mine, 0.05))
        w = w + 0.6 * (sum(sent) / 4 - w)  # a plain mean, though the suite weighs by examples
    assert bool(again) == ("steps" in amount)
    torch.testing.assert_close(outcome.server, w, rtol=1e-10, atol=1e-11)


def test_a_personal_model_is_the_servers_after_the_inner_update() -> None:
    f = LoopObjective(Task(NET, FEDERATION.x))
    rows = [FEDERATION.support[3][:5], FEDERATION.support[3][5:9]]
    for method in (Reptile(inner_lr=0.05), FOMaml(inner_lr=0.05)):
        assert method.personal_draws() == method.draws(Round(0))[:1]
        made = method.personal_model(f, start(), (), batches(rows), round=Round(0))
        close(made, descended(start(), rows, 0.05))


@pytest.mark.parametrize("method", [Reptile, FOMaml])
def test_an_inner_update_is_of_epochs_or_of_steps(method: Any) -> None:
    (drawn, *_) = method(epochs=2, steps=3).draws(Round(0))
    assert (drawn.epochs, drawn.steps) == (None, 3)
    assert method(epochs=2).draws(Round(0))[0].epochs == 2 and method().draws(Round(0))[0].epochs


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("amount", [{"epochs": 2}, {"steps": 3}], ids=str)
def test_rounds_of_first_order_maml_are_those_of_a_slow_version(amount: dict[str, int], execution: Any) -> None:
    method = FOMaml(inner_lr=0.1, outer_lr=0.3, **amount)
    drawn = spec(weights="examples", cohort=4)
    (outcome,) = Simulation([drawn], [FEDERATION], method, NET, Setup(execution=execution)).run()
    streams, w = support_streams(FEDERATION, drawn), start()
    for index in range(3):
        sent = []
        for c in sample_cohort(drawn, FEDERATION.training, index).tolist():
            (mine, _), _ = streams[c].draw(method.draws(Round(0)), 0, "round", index)
            sent.append(autograd(descended(w, mine, 0.1), FEDERATION.support[c]))
        w = w - 0.3 * sum(sent) / 4
    torch.testing.assert_close(outcome.server, w, rtol=1e-10, atol=1e-11)


def test_first_order_maml_without_an_inner_step_is_gradient_descent_on_the_clients_mean_loss() -> None:
    everyone = spec(cohort=6)
    (outcome,) = Simulation([everyone], [EQUAL], FOMaml(inner_lr=0.0, outer_lr=0.3), NET).run()
    together = np.concatenate([EQUAL.support[c] for c in np.flatnonzero(EQUAL.training)])
    close(outcome.server, descended(start(), [together] * 3, 0.3, EQUAL))


def test_first_order_maml_drops_the_hessian_and_no_more() -> None:
    """The derivative of F(w - a grad F(w)) is (I - aH) G, with G what a client sends."""
    f, w, a = LoopObjective(Task(NET, FEDERATION.x)), start(), 0.3
    (whole,) = batches([FEDERATION.support[3]])
    sent, _ = FOMaml(inner_lr=a).client(f, w, (), (whole,), (whole,), round=Round(0))
    direction = torch.from_numpy(np.random.RandomState(0).normal(size=len(w)))

    def after(t: float) -> float:
        moved = w + t * direction
        return f(moved - a * f.grad(moved, whole), whole).item()

    slope = (after(1e-6) - after(-1e-6)) / 2e-6
    kept = sent @ direction
    assert slope == pytest.approx((kept - a * f.hvp(w, whole, sent) @ direction).item(), rel=1e-5)
    assert abs(slope - kept.item()) > 1e-3 * abs(slope)
