"""Forward passes in bfloat16: close to float32, never the same, and nothing else changes its type.

(What the objective computes in float64 is compared with autograd in `test_client_map` and `test_mlp`.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench.engine.client_map import ClientMap, Data, Item
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Batch
from pflbench.methods.fedavg import FedAvg
from pflbench.models.mlp import perceptron
from pflbench.models.network import Network
from pflbench.models.plain_cnn import lenet
from pflbench.testing import SHAPE, tiny_federation, tiny_network, tiny_spec

EXECUTIONS = ("loop", "vectorized")
STACKS = ("grouped", "columns")
NETWORKS = {
    "with normalization": tiny_network(),
    "with a modulator": tiny_network().with_modulator("c1", True),
    "by hand": perceptron(SHAPE, 3, hidden=(9,)),
    "lenet": lenet((3, 32, 32), 3),
}


def data(net: Network, bf16: bool) -> Data:
    rng = np.random.default_rng(0)
    pool = torch.from_numpy(rng.integers(256, size=(40, *net.shape), dtype=np.uint8))
    return Data(Task(net, pool, bf16), rng.integers(net.classes, size=40), (0,))


def evaluated(net: Network, bf16: bool, execution: Any) -> list[list[Tensor]]:
    """Per client of three: loss, gradient, gradient of the head, Hessian-vector product, logits."""
    w = net.init(0)
    v = 0.1 * net.init(1)

    def fn(f: Any, shared: Tensor, own: Any, taken: Any) -> list[Tensor]:
        (b,) = taken
        g, head = f.grad(shared, b), f.grad(shared, b, wrt="head")
        return [f(shared, b), g, head, f.hvp(shared, b, v), f.logits(shared, b)]

    items = [Item(0, (), ([rows],)) for rows in np.split(np.arange(36), 3)]
    return ClientMap(data(net, bf16), execution)(fn, [w], items)


def gap(a: Tensor, b: Tensor) -> float:
    """Relative, of the whole vector."""
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bf16_is_float32_rounded(name: str, execution: Any) -> None:
    """A product of bfloat16 numbers is off by up to 2**-8; through a network of some layers it is some times that."""
    net = NETWORKS[name]
    for mine, exact in zip(evaluated(net, True, execution), evaluated(net, False, execution), strict=True):
        for a, b in zip(mine, exact, strict=True):
            assert a.dtype == b.dtype == torch.float32
            assert not torch.equal(a, b)
        loss, gradient, head, hvp, logits = (gap(a, b) for a, b in zip(mine, exact, strict=True))
        assert loss < 0.01 and logits < 0.05 and head < 0.1 and gradient < 0.2
        assert math.isfinite(hvp)


@pytest.mark.parametrize("name", NETWORKS)
def test_bf16_is_nearly_the_same_looped_and_stacked(name: str) -> None:
    net = NETWORKS[name]
    looped, stacked = (evaluated(net, True, execution) for execution in EXECUTIONS)
    exact = evaluated(net, False, "loop")
    for one, other, true in zip(looped, stacked, exact, strict=True):
        loss, gradient, head, _, logits = (gap(a, b) for a, b in zip(one, other, strict=True))
        assert max(loss, logits, head) < 0.05 and gradient < 0.2
        assert gap(other[1], true[1]) < 2 * gap(one[1], true[1]) + 0.01


@pytest.mark.parametrize("name", ["by hand", "lenet"])
def test_the_hessian_vector_product_in_bf16_is_close(name: str) -> None:
    net = NETWORKS[name]
    for execution in EXECUTIONS:
        for mine, exact in zip(evaluated(net, True, execution), evaluated(net, False, execution), strict=True):
            assert gap(mine[3], exact[3]) < 0.2


@pytest.mark.parametrize("stack", STACKS)
def test_ragged_stacks_lose_no_more_in_bf16_than_a_loop(stack: str) -> None:
    """Statistics of a masked normalization are sums over many values, which bfloat16 could not hold."""
    net, federation = tiny_network(), tiny_federation(0, sizes=(800, 700, 5, 5))
    w, errors = net.init(0), {}
    for execution in EXECUTIONS:
        found = {}
        for bf16 in (True, False):
            d = Data(Task(net, federation.x, bf16, stack), federation.labels, (0,))
            items = [Item(0, (), ([rows],)) for rows in federation.support[:2]]
            mapped = ClientMap(d, execution, most_padding=math.inf)
            found[bf16] = mapped(lambda f, s, o, t: f.grad(s, t[0]), [w], items)
        errors[execution] = np.mean([gap(a, b) for a, b in zip(found[True], found[False], strict=True)])
    assert errors["vectorized"] < 2 * errors["loop"]


def test_double_precision_stays_double_in_bf16() -> None:
    """Parameters, losses and gradients are as wide as the parameters."""
    net = tiny_network()
    d = data(net, True)
    f, w = LoopObjective(d.task), net.init(0).double()
    b = Batch(torch.arange(8), torch.from_numpy(d.labels[:8]))
    assert {t.dtype for t in (f(w, b), f.grad(w, b), f.hvp(w, b, w), f.logits(w, b))} == {torch.float64}


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_run_in_bf16_learns_as_in_float32(execution: Any) -> None:
    federation, method = tiny_federation(0), FedAvg(epochs=1, lr=0.05)

    def run(precision: str, rounds: int) -> tuple[Tensor, float]:
        spec = tiny_spec(rounds=rounds)
        scoring = spec.scoring.model_copy(update={"clients": "all"})
        spec = spec.model_copy(update={"precision": precision, "scoring": scoring})
        setup = Setup(execution=execution, graphs=True)
        (outcome,) = Simulation([spec], [federation], method, tiny_network(), setup).run()
        assert outcome.failure is None
        scores = [s for s in outcome.scores if s.stage == "global"]
        return outcome.server, sum(s.loss_sum for s in scores) / sum(s.count for s in scores)

    (_, start), (server, end), (exact, expected) = run("bf16", 1), run("bf16", 12), run("fp32", 12)
    assert server.dtype == torch.float32 and not torch.equal(server, exact)
    assert end < 0.9 * start and end == pytest.approx(expected, rel=0.1)


def test_precisions_are_different_runs() -> None:
    spec = tiny_spec()
    names = ("fp32", "bf16", "tf32", "fp64")
    assert len({spec.model_copy(update={"precision": name}).id for name in names}) == len(names)
