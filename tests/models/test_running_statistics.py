"""A user's batch normalization: training, averaging and scoring are those of a plain torch loop."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pflbench.engine.batches import support_streams
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedbn import FedBN
from pflbench.models.module import STATISTICS, wrap
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_federation, tiny_spec

SHAPE, CLASSES, LR = (1, 8, 8), 5, 0.1
SIZES = (30, 21, 15, 26, 18, 24)
FEDERATION = tiny_federation(0, SIZES)
SPEC = {"batches": "reshuffled", "rounds": 3, "cohort": 3, "clients": 6, "training_clients": 5, "weights": "examples"}


def convolutions(momentum: float | None, affine: bool = True) -> Any:
    def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum, affine=affine), nn.ReLU(), nn.Flatten(),
            nn.Linear(144, 8), nn.BatchNorm1d(8, momentum=momentum, affine=affine), nn.ReLU(), nn.Linear(8, classes),
        )  # fmt: skip

    return make


def loop(module: nn.Module, method: FedAvg, spec: RunSpec, stays: bool) -> tuple[nn.Module, dict[int, Any]]:
    """The server's module and clients' states after the rounds; with FedBN normalizations stay at the clients."""
    norms = {n for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    server, states = copy.deepcopy(module.state_dict()), dict[int, Any]()

    def received(client: int) -> Any:
        kept = {n: v for n, v in states.get(client, {}).items() if stays and n.rpartition(".")[0] in norms}
        return {**server, **kept}

    for index in range(spec.rounds):
        cohort = sample_cohort(spec, FEDERATION.training, index).tolist()
        sent, sizes = [], []
        for client in cohort:
            module.load_state_dict(received(client))
            module.train()
            optimizer = torch.optim.SGD(module.parameters(), LR, momentum=method.momentum or 0)
            stream = support_streams(FEDERATION, spec)[client]
            (rows,), _ = stream.draw(method.draws(Round(index)), 0, "round", index)
            for r in rows:
                optimizer.zero_grad()
                F.cross_entropy(
                    module(FEDERATION.x[r].double() / 255), torch.from_numpy(FEDERATION.labels[r])
                ).backward()
                optimizer.step()
            states[client] = copy.deepcopy(module.state_dict())
            sent.append(states[client])
            sizes.append(len(FEDERATION.support[client]))
        share = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
        server = {n: sum(s * one[n] for s, one in zip(share, sent, strict=True)) for n in server}
        if stays:  # the server has the initial ones
            server |= {n: v for n, v in FIRST.items() if n.rpartition(".")[0] in norms}
    module.load_state_dict(server)
    return module, {client: received(client) for client in range(spec.clients)}


FIRST: dict[str, Tensor] = {}


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("momentum", [0.1, None, 0.3])
@pytest.mark.parametrize("stays", [False, True], ids=["fedavg", "fedbn"])
def test_rounds_and_scores_are_those_of_a_torch_loop(stays: bool, momentum: float | None, execution: Any) -> None:
    net = wrap(convolutions(momentum), SHAPE, CLASSES, "nets.py:net")
    method = (FedBN if stays else FedAvg)(epochs=2, lr=LR, momentum=0.5, batch=7)
    stages = ("personalized",) if stays else ("global",)
    spec = tiny_spec(**SPEC, scoring=Scoring(clients="training", stages=stages, average="examples"))
    simulation = Simulation([spec], [FEDERATION], method, net, Setup(execution=execution))
    start = simulation.runs[0].server.clone()
    (outcome,) = simulation.run()
    module = convolutions(momentum)(SHAPE, CLASSES).double()
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.num_batches_tracked = m.num_batches_tracked.double()  # a mean of counts is no integer
    module.load_state_dict(named(net, start, module))
    FIRST.clear()
    FIRST.update(copy.deepcopy(module.state_dict()))
    module, received = loop(module, method, spec, stays)
    expected = module.state_dict()
    for n, v in named(net, outcome.server, module).items():
        torch.testing.assert_close(v, expected[n], rtol=1e-10, atol=1e-10, msg=n)
    for score in outcome.scores:
        module.load_state_dict(received[score.client])
        module.eval()
        rows = FEDERATION.query[score.client]
        logits = module(FEDERATION.x[rows].double() / 255)
        labels = torch.from_numpy(FEDERATION.labels[rows])
        assert score.loss_sum == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), abs=1e-9)
        assert score.correct == (logits.argmax(1) == labels).sum()


def named(net: Any, w: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """The model's values by their names in the module; counts that the vector lacks as they are."""
    values = {n.partition(".")[2]: v for n, v in net.layout.views([w.double()]).items()}
    state = module.state_dict()
    return {n: values[n].view(old.shape) if n in values else old for n, old in state.items()}


def test_statistics_have_their_role_and_place() -> None:
    for affine in (True, False):
        net = wrap(convolutions(None, affine), SHAPE, CLASSES, "nets.py:net")
        kinds = {p.name: p.kind for p in net.parameters}
        assert [n for n, kind in kinds.items() if kind == "statistic"] == [
            f"base.{layer}.{one}" for layer in (1, 5) for one in STATISTICS
        ]
        assert net.layout.entries("statistic").sum() == 2 * 4 + 1 + 2 * 8 + 1
        assert net.batchwise and not net.scored_batchwise
    untracked = wrap(lambda *_: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False),
                                              nn.Linear(64, CLASSES)), SHAPE, CLASSES, "n")  # fmt: skip
    assert untracked.statistics is None and untracked.scored_batchwise
    assert replace(untracked, statistics=None) == untracked
