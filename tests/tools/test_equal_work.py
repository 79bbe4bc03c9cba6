"""The contenders of `tools/speed/measure.py` do equal work: the same parameters after the same batches, and as many steps."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from pflbench.engine.batches import support_streams
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.fedavg import FedAvg
from pflbench.models.network import Network
from pflbench.testing import assert_same, nudged

pytestmark = pytest.mark.slow

SCRIPTS = ("workloads", "protocol", "careful", "engine", "matmul", "pfl_research")
NETWORKS = ("cnn2", "lenet", "mlp", "cnn3")


@pytest.fixture(scope="module")
def scripts() -> dict[str, ModuleType]:
    """The contenders' files as modules."""
    return {name: importlib.import_module(name) for name in SCRIPTS}


def parameters(network: Network, w: Tensor) -> list[Tensor]:
    """A vector's parameters in the order of a module's."""
    return [v.detach().clone() for v in network.layout.views([w]).values()]


def fill(module: nn.Module, values: list[Tensor]) -> None:
    for p, value in zip(module.parameters(), values, strict=True):
        assert p.shape == value.shape
        p.data.copy_(value)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_equal_parameters(scripts: dict[str, ModuleType], name: str) -> None:
    work = scripts["workloads"].workload(name)
    network = scripts["engine"].network(name, work)
    module = scripts["careful"].module(name)
    sizes = {work.parameters, network.layout.size, sum(p.numel() for p in module.parameters())}
    assert len(sizes) == 1
    assert [p.shape for p in network.layout.parameters] == [tuple(p.shape) for p in module.parameters()]


@pytest.mark.parametrize("name", NETWORKS)
def test_operations_are_those_of_the_layers(scripts: dict[str, ModuleType], name: str) -> None:
    """By hand: the products of every layer forward, for its weights, and but for the first one for its inputs."""
    work = scripts["workloads"].workload(name)
    products: list[int] = []

    def note(layer: nn.Module, _: object, out: Tensor) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            places = out[0, 0].numel() if isinstance(layer, nn.Conv2d) else 1
            products.append(layer.weight.numel() * places)

    module = scripts["careful"].module(name)
    for layer in module:
        layer.register_forward_hook(note)
    module(torch.zeros(2, *work.shape))
    expected = 2 * work.batch * (2 * products[0] + 3 * sum(products[1:]))
    assert scripts["careful"].operations(name, work) == expected


@pytest.mark.parametrize("patched", [False, True], ids=["plain", "patched"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_round_gives_equal_parameters(scripts: dict[str, ModuleType], name: str, patched: bool) -> None:
    """One round of the careful loop = one round of the engine, float64: cohort of two, two local steps each."""
    work = scripts["workloads"].workload(name, "tiny")
    engine, careful = scripts["engine"], scripts["careful"]
    network, federation = engine.network(name, work), engine.federation(work, 0)
    spec = engine.spec(work, name, 0, "fp64")
    sim = Simulation([spec], [federation], FedAvg(epochs=1, lr=scripts["workloads"].LR), network, Setup())
    before = sim.runs[0].server.clone()

    module = careful.module(name).double()
    fill(module, parameters(network, before))
    if patched:
        module = module.to(memory_format=torch.channels_last)
    clients = []
    for stream in support_streams(federation, spec):
        batches = [
            (federation.x[rows].double() / 255, torch.from_numpy(federation.labels[rows])) for rows in stream.batches
        ]
        clients.append(batches)
    fedavg = careful.FedAvg(module, clients)
    fedavg.round(list(sample_cohort(spec, federation.training, 0)))
    sim.step()

    ours = parameters(network, sim.runs[0].server)
    assert max((a - b).abs().max().item() for a, b in zip(ours, parameters(network, before), strict=True)) > 1e-6
    for a, b in zip(fedavg.server, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_client_has_one_epoch_of_the_workload(scripts: dict[str, ModuleType], name: str) -> None:
    work = scripts["workloads"].workload(name)
    federation = scripts["engine"].federation(work, 0)
    streams = support_streams(federation, scripts["engine"].spec(work, name, 0))
    assert len(streams) == scripts["workloads"].POPULATION
    assert {(len(s.batches), len(rows)) for s in streams for rows in s.batches} == {(work.steps, work.batch)}
    clients = scripts["careful"].made_up(scripts["workloads"].workload(name, "tiny"), "cpu", 0)
    assert {(len(batches), len(x), len(y)) for batches in clients for x, y in batches} == {(2, 4, 4)}


def test_the_engine_steps_once_per_client_and_batch(scripts: dict[str, ModuleType]) -> None:
    work = scripts["workloads"].workload("mlp", "tiny")
    sim = scripts["engine"].simulation("mlp", work, Setup(), seeds=range(2))
    scripts["engine"].rounds(sim)(3)
    assert sim.clients.gradient_calls == 3 * 2 * work.client_steps


def test_patching_keeps_batches_channels_last(scripts: dict[str, ModuleType]) -> None:
    work = scripts["workloads"].workload("lenet", "tiny")
    for batches in scripts["careful"].made_up(work, "cpu", 0, channels_last=True):
        assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in batches)


@pytest.mark.skipif(importlib.util.find_spec("pfl") is None, reason="pfl-research is not installed")
def test_pfl_research_does_the_same_round(scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model after a round of all users is the careful loop's."""
    work = scripts["workloads"].workload("mlp", "tiny")
    pfl, careful = scripts["pfl_research"], scripts["careful"]
    monkeypatch.setattr(pfl, "POPULATION", work.clients)
    clients = careful.made_up(work, "cpu", 0)[: work.clients]
    monkeypatch.setattr(pfl, "made_up", lambda *_: clients)
    monkeypatch.setattr(pfl, "SAMPLER", "minimize_reuse")  # every user once
    net = pfl.Net("mlp")
    start = [p.detach().clone() for p in net.parameters()]

    def trained(start: list[Tensor]) -> list[Tensor]:
        module = careful.module("mlp")
        fill(module, start)
        fedavg = careful.FedAvg(module, clients)
        for _ in range(2):
            fedavg.round(range(work.clients))
        return [p.detach().clone() for p in fedavg.server]

    rounds = pfl.training(net, work, "cpu", 0)
    for _ in range(2):
        net.losses = 0
        rounds(1)
    assert net.losses == work.client_steps
    assert_same([p.detach() for p in net.parameters()], trained(start), trained(nudged(start)))


def test_the_careful_loop_knows_nothing_of_pflbench() -> None:
    for name in ("workloads.py", "protocol.py", "careful.py", "pfl_research.py"):
        text = (Path(__file__).parents[2] / "tools" / "speed" / name).read_text()
        assert "import pflbench" not in text and "from pflbench" not in text
