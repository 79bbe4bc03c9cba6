"""A user's batch normalization: training, averaging and scoring are those of a plain torch loop."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pflbench import names, trust
from pflbench.data.federation import Federation
from pflbench.engine.batches import support_streams
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedbn import FedBN
from pflbench.methods.fedrep import FedRep
from pflbench.models.module import STATISTICS, wrap
from pflbench.models.network import Network
from pflbench.running import build
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import Case, tiny_federation, tiny_spec

SHAPE, CLASSES = (1, 8, 8), 5
SIZES = (30, 21, 15, 26, 18, 24)
FEDERATION = tiny_federation(0, SIZES)
SPEC = {"batches": "reshuffled", "rounds": 3, "cohort": 3, "clients": 6, "training_clients": 4, "weights": "examples"}


def convolutions(momentum: float | None, affine: bool = True, tracks: bool = True) -> Any:
    norm = {"momentum": momentum, "affine": affine, "track_running_stats": tracks}

    def make(shape: tuple[int, int, int], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, **norm), nn.ReLU(), nn.Flatten(),
            nn.Linear(144, 8), nn.BatchNorm1d(8, **norm), nn.ReLU(), nn.Linear(8, classes),
        )  # fmt: skip

    return make


def loop(
    module: nn.Module, method: FedAvg, spec: RunSpec, stays: bool, federation: Federation = FEDERATION
) -> tuple[nn.Module, dict[int, Any]]:
    """The server's module and clients' states after the rounds; with FedBN normalizations stay at the clients."""
    norms = {n for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    first = copy.deepcopy(module.state_dict())
    server, states = first, dict[int, Any]()

    def received(client: int) -> Any:
        kept = {n: v for n, v in states.get(client, {}).items() if stays and n.rpartition(".")[0] in norms}
        return {**server, **kept}

    for index in range(spec.rounds):
        cohort = sample_cohort(spec, federation.training, index).tolist()
        sent, sizes = [], []
        for client in cohort:
            module.load_state_dict(received(client))
            module.train()
            optimizer = torch.optim.SGD(module.parameters(), method.lr, momentum=method.momentum or 0)
            stream = support_streams(federation, spec)[client]
            (rows,), _ = stream.draw(method.draws(Round(index)), 0, "round", index)
            for r in rows:
                optimizer.zero_grad()
                labels = torch.from_numpy(federation.labels[r])
                F.cross_entropy(module(federation.x[r].double() / 255), labels).backward()
                optimizer.step()
            states[client] = copy.deepcopy(module.state_dict())
            sent.append(states[client])
            sizes.append(len(federation.support[client]))
        share = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
        server = {n: sum(s * one[n] for s, one in zip(share, sent, strict=True)) for n in server}
        if stays:  # the server has the initial ones
            server |= {n: v for n, v in first.items() if n.rpartition(".")[0] in norms}
    module.load_state_dict(server)
    return module, {client: received(client) for client in range(spec.clients)}


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("momentum", [0.1, None, 0.3])
@pytest.mark.parametrize("stays", [False, True], ids=["fedavg", "fedbn"])
def test_rounds_and_scores_are_those_of_a_torch_loop(stays: bool, momentum: float | None, execution: Any) -> None:
    net = wrap(convolutions(momentum), SHAPE, CLASSES, "nets.py:net")
    method = (FedBN if stays else FedAvg)(epochs=2, lr=0.1, momentum=0.5, batch=7)
    stages = ("personalized",) if stays else ("global",)
    spec = tiny_spec(**SPEC, scoring=Scoring(clients="training", stages=stages, average="examples"))
    simulation = Simulation([spec], [FEDERATION], method, net, Setup(execution=execution))
    start = simulation.runs[0].server.clone()
    (outcome,) = simulation.run()
    check(convolutions(momentum)(SHAPE, CLASSES), net, start, outcome, method, spec, stays, FEDERATION)


class Twice(nn.Module):
    """A batch normalization that is called twice, with the count of its calls, and a parameter of a statistic's name."""

    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4, momentum=None, affine=False)
        self.running_mean = nn.Parameter(torch.zeros(4, 1, 1))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x) + self.running_mean).relu()
        return self.head(self.norm(self.second(h)).relu().flatten(1))


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("stays", [False, True], ids=["fedavg", "fedbn"])
def test_a_layer_that_is_called_twice_has_both_batches(stays: bool, execution: Any) -> None:
    net = wrap(Twice, SHAPE, CLASSES, "nets.py:Twice")
    method = (FedBN if stays else FedAvg)(epochs=1, lr=0.1, batch=7)
    stages = ("personalized",) if stays else ("global",)
    spec = tiny_spec(**SPEC, scoring=Scoring(clients="training", stages=stages, average="examples"))
    simulation = Simulation([spec], [FEDERATION], method, net, Setup(execution=execution))
    start = simulation.runs[0].server.clone()
    (outcome,) = simulation.run()
    check(Twice(SHAPE, CLASSES), net, start, outcome, method, spec, stays, FEDERATION)


def test_a_layer_that_stays_out_of_training_is_refused() -> None:
    class Frozen(Twice):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self.norm.eval()
            return self

    with pytest.raises(UsageError, match="norm"):
        wrap(Frozen, SHAPE, CLASSES, "nets.py:Frozen")


def check(
    module: nn.Module,
    net: Network,
    start: Tensor,
    outcome: RunOutcome,
    method: FedAvg,
    spec: RunSpec,
    stays: bool,
    federation: Federation,
) -> None:
    """Compare a run's server state and scores with a loop's that begins at `start`."""
    module.double()
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.num_batches_tracked = m.num_batches_tracked.double()  # a mean of counts is no integer
    module.load_state_dict(named(net, start, module))
    module, received = loop(module, method, spec, stays, federation)
    expected = module.state_dict()
    for n, v in named(net, outcome.server, module).items():
        torch.testing.assert_close(v, expected[n], rtol=1e-10, atol=1e-10, msg=n)
    for score in outcome.scores:
        module.load_state_dict(received[score.client])
        module.eval()
        rows = federation.query[score.client]
        logits = module(federation.x[rows].double() / 255)
        labels = torch.from_numpy(federation.labels[rows])
        assert score.loss_sum == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), abs=1e-9)
        assert score.correct == (logits.argmax(1) == labels).sum()


RESNET = """
import torch.nn.functional as F
import torchvision


class Net(torchvision.models.ResNet):
    def __init__(self, shape, classes):
        super().__init__(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes)

    def forward(self, x):
        return super().forward(F.interpolate(x, (16, 16)).expand(-1, 3, -1, -1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("stays", [False, True], ids=["fedavg", "fedbn"])
def test_two_rounds_of_resnet18_are_those_of_a_torch_loop(stays: bool, execution: Any, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(RESNET)
    trust.grant(reference := f"{tmp_path / 'nets.py'}:Net")
    method = (FedBN if stays else FedAvg)(epochs=1, lr=0.05, momentum=0.9, batch=20)
    scoring = Scoring(clients="training", stages=("personalized",) if stays else ("global",), average="examples")
    usual = {"dataset": "digits", "partition": "dirichlet", "clients": 3, "training_clients": 3, "cohort": 2}
    spec = tiny_spec(**usual, batches="reshuffled", weights="examples", rounds=2, scoring=scoring)
    federation = build.federation(spec, tmp_path)
    few = tuple(rows[: 20 + 10 * i] for i, rows in enumerate(federation.support))
    federation = dataclasses.replace(federation, support=few, query=tuple(rows[:5] for rows in federation.query))
    net = build.named_network(reference, (1, 28, 28), 10)
    simulation = Simulation([spec], [federation], method, net, Setup(execution=execution))
    start = simulation.runs[0].server.clone()
    (outcome,) = simulation.run()
    module = names.load(reference)((1, 28, 28), 10)
    check(module, net, start, outcome, method, spec, stays, federation)


def named(net: Network, w: Tensor, module: nn.Module) -> dict[str, Tensor]:
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
    untracked = wrap(convolutions(None, tracks=False), SHAPE, CLASSES, "nets.py:net")
    assert untracked.statistics is None and untracked.scored_batchwise


EPOCH: dict[str, Any] = {"epochs": 1}
STEP: dict[str, Any] = {"steps": 1}
FAR = {
    "fedavg": EPOCH | {"momentum": 0.9, "weight_decay": 0.1},
    "fedprox": EPOCH | {"mu": 100.0},
    "ditto": STEP | {"lam": 100.0},
    "moon": EPOCH | {"mu": 10.0},
    "pfedme": STEP | {"lam": 100.0, "beta": 3.0},
    "per-fedavg": STEP | {"outer_lr": 1.0},
    "scaffold": EPOCH | {"server_lr": 50.0},
    "fedadam": EPOCH | {"server_lr": 5.0},
    "feddyn": EPOCH | {"alpha": 1e-3},
    "reptile": EPOCH | {"outer_lr": 50.0},
    "fedec": EPOCH | {"outer_lr": 5.0, "alpha": 100.0},
}
"""Methods whose steps, pulls and servers take weights far, with one step of each client on all of its rows."""


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("name", FAR)
def test_the_server_has_the_mean_of_what_passes_leave(name: str, execution: Any) -> None:
    net = wrap(convolutions(0.1), SHAPE, CLASSES, "nets.py:net")
    method = names.resolve("methods", name)(**FAR[name])
    scoring = Scoring(clients="training", stages=("global",))
    spec = tiny_spec(clients=6, training_clients=4, cohort=4, batch=40, batches="reshuffled", rounds=1, scoring=scoring)
    simulation = Simulation([spec], [FEDERATION], method, net, Setup(execution=execution))
    (run,) = simulation.runs
    module, left = convolutions(0.1)(SHAPE, CLASSES).double(), []
    before = named(net, pytree.tree_leaves(run.server)[0], module)
    for client in FEDERATION.training.nonzero()[0]:
        module.load_state_dict(before)
        module.train()(FEDERATION.x[FEDERATION.support[client]].double() / 255)
        left.append(copy.deepcopy(module.state_dict()))
    simulation.step()
    after = named(net, pytree.tree_leaves(run.server)[0], module)
    for n in ("1.running_mean", "1.running_var", "5.running_mean", "5.running_var"):
        torch.testing.assert_close(after[n], torch.stack([one[n] for one in left]).mean(0), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(after["7.weight"], before["7.weight"])


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_a_head_is_trained_on_features_of_minibatches(execution: Any) -> None:
    """FedRep's head, on a frozen base with batch normalization: features of a row are others in every minibatch."""
    net = wrap(convolutions(0.1), SHAPE, CLASSES, "nets.py:net")
    method = FedRep(head_epochs=2, base_epochs=0, lr=0.1)
    scoring = Scoring(clients="training", stages=("personalized",))
    spec = tiny_spec(clients=6, training_clients=4, cohort=4, batch=7, batches="reshuffled", rounds=1, scoring=scoring)
    simulation = Simulation([spec], [FEDERATION], method, net, Setup(execution=execution))
    (run,) = simulation.runs
    module = convolutions(0.1)(SHAPE, CLASSES).double().train()
    before = named(net, run.server, module)
    simulation.step()
    for client in FEDERATION.training.nonzero()[0]:
        module.load_state_dict(before)
        head = module[7]
        (_, rows, _), _ = support_streams(FEDERATION, spec)[client].draw(method.draws(Round(0)), 0, "round", 0)
        for r, _ in rows:  # and their places
            loss = F.cross_entropy(module(FEDERATION.x[r].double() / 255), torch.from_numpy(FEDERATION.labels[r]))
            for p, g in zip(head.parameters(), torch.autograd.grad(loss, list(head.parameters())), strict=True):
                p.data -= 0.1 * g
        expected = torch.cat([p.detach().flatten() for p in head.parameters()])
        torch.testing.assert_close(run.state(client), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["fedcp", "fo-maml", "gpfl", "per-fedavg-split", "pfedbayes"])
def test_methods_that_train_no_statistics_say_so(name: str) -> None:
    method = names.resolve("methods", name)()
    with pytest.raises(UsageError, match=f"(?i)^{name.replace('-', '')} .*track_running_stats=False"):
        Case(method, wrap(convolutions(0.1), SHAPE, CLASSES, "nets.py:net"))
    Case(method, wrap(convolutions(0.1, tracks=False), SHAPE, CLASSES, "nets.py:net"))
