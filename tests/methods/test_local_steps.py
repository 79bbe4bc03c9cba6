"""Local updates of so many minibatches in place of epochs: the passes cut off, or the client's static stream."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench.catalog import complete, describe
from pflbench.engine.batches import support_streams
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedec import FedEC
from pflbench.methods.ifca import IFCA
from pflbench.methods.scaffold import Scaffold
from pflbench.spec import Scoring
from pflbench.testing import tiny_federation, tiny_network, tiny_spec

FEDERATION, EQUAL = tiny_federation(0), tiny_federation(0, sizes=(20,) * 8)
EXECUTIONS = ("loop", "vectorized")
NET = tiny_network()
PASS = 3
"""Minibatches of a pass over an equal client's 15 rows, 5 at a time."""


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("batches", ["static", "reshuffled"])
@pytest.mark.parametrize("method", [FedAvg, IFCA, FedEC])
def test_as_many_steps_as_epochs_have_minibatches_are_those_epochs(method: Any, batches: Any, execution: Any) -> None:
    spec = tiny_spec(rounds=3, scoring=Scoring()).model_copy(update={"batches": batches})
    by_epochs, by_steps = (
        Simulation([spec], [EQUAL], method(**amount), NET, Setup(execution=execution)).run()[0]
        for amount in ({"epochs": 2}, {"epochs": 9, "steps": 2 * PASS})
    )
    assert torch.equal(by_epochs.server, by_steps.server)


def test_reshuffled_steps_are_the_first_of_a_pass() -> None:
    """Without replacement, from one round's draw; a pass is not gone on with in the next."""
    spec = tiny_spec().model_copy(update={"batches": "reshuffled"})
    stream = support_streams(EQUAL, spec)[0]
    for moment in (0, 1):
        (cut,), _ = stream.draw(FedAvg(steps=2).draws(Round(moment)), 0, "round", moment)
        (whole,), _ = stream.draw(FedAvg(epochs=1).draws(Round(moment)), 0, "round", moment)
        assert [some.tolist() for some in cut] == [some.tolist() for some in whole[:2]]


def autograd(w: Tensor, rows: Any) -> Tensor:
    """The mean cross-entropy's gradient on these rows."""
    leaf = w.clone().requires_grad_()
    logits = NET.logits([leaf], FEDERATION.x[rows].double() / 255)
    return torch.autograd.grad(F.cross_entropy(logits, torch.from_numpy(FEDERATION.labels[rows])), leaf)[0]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("method", [FedAvg(steps=4, lr=0.05), IFCA(steps=4, lr=0.05, clusters=1)], ids=str)
def test_static_steps_go_on_in_the_clients_stream(method: Any, execution: Any) -> None:
    """Also behind IFCA's pass to choose by, which leaves the stream where it is."""
    spec = tiny_spec(rounds=4, cohort=4, scoring=Scoring())
    (outcome,) = Simulation([spec], [FEDERATION], method, NET, Setup(execution=execution)).run()
    cut = [stream.batches for stream in support_streams(FEDERATION, spec)]  # type: ignore[union-attr]
    cursors, again = [0] * 8, 0
    w = NET.init(0).double()
    for index in range(4):
        sent = []
        for c in sample_cohort(spec, FEDERATION.training, index).tolist():
            again += cursors[c] % len(cut[c])
            u = w
            for i in range(4):
                u = u - 0.05 * autograd(u, cut[c][(cursors[c] + i) % len(cut[c])])
            cursors[c] += 4
            sent.append(u)
        w = sum(sent) / 4  # type: ignore[assignment]
    assert again
    torch.testing.assert_close(outcome.server.view(-1), w, rtol=1e-9, atol=1e-10)


def test_none_is_no_part_of_an_identity_and_scaffold_takes_at_least_one() -> None:
    assert "steps" not in complete(describe("fedavg"), {})
    assert complete(describe("ifca"), {"steps": 5})["steps"] == 5
    assert Scaffold(epochs=0, steps=1).draws(Round(0))[0].steps == 1
    with pytest.raises(UsageError, match="at least one epoch or step"):
        Scaffold(steps=0)
    with pytest.raises(UsageError, match="steps must be at least 0, not -1"):
        FedAvg(steps=-1)
