"""Equalities between methods, given the same minibatches (each is promised in a method's docstring)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from one_round import one_round
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from pflbench.data.federation import Federation
from pflbench.engine.batches import query_batches, support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import arrived, sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Draw, Method, Round
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedper import FedPer
from pflbench.methods.fedprox import FedProx
from pflbench.methods.fedrep import FedRep
from pflbench.methods.fedrep_averaged import FedRepAveraged
from pflbench.methods.ifca import IFCA
from pflbench.methods.local import Local
from pflbench.methods.per_fedavg import PerFedAvg
from pflbench.methods.pfedme import PFedMe
from pflbench.methods.scaffold import Scaffold
from pflbench.models.mlp import perceptron
from pflbench.models.network import Network
from pflbench.optim import Adam
from pflbench.spec import Finetune, Scoring
from pflbench.testing import tiny_federation, tiny_network, tiny_spec
from pflbench.vector import Parameter

NOW = Round(0)
FEDERATION = tiny_federation(0)
CLIENT = 3
FEATURED = perceptron((1, 8, 8), 3, hidden=(16,))
STRAGGLING = tiny_spec(cohort=6, rounds=3).model_copy(
    update={
        "arrival": 0.5,
        "batches": "reshuffled",
        "weights": "examples",
        "scoring": Scoring(clients="training", stages=("personalized",), moment="before-aggregation"),
    }
)
"""All clients are asked, half of the uploads arrive, personal models are scored as training leaves them."""
GLOBAL = STRAGGLING.model_copy(update={"scoring": Scoring(clients="training")})
"""The same, for methods without personal models."""
ModuleOf = Callable[[Tensor], nn.Module]


def objective(network: Network | None = None) -> LoopObjective:
    return LoopObjective(Task(network or tiny_network(), FEDERATION.x))


def start(network: Network | None = None) -> Tensor:
    return (network or tiny_network()).init(0).double()


def batches(rows: Sequence[Any]) -> Batches:
    return tuple(Batch(torch.from_numpy(r), torch.from_numpy(FEDERATION.labels[r])) for r in rows)


def drawn(method: Method) -> list[Batches]:
    taken, _ = support_streams(FEDERATION, tiny_spec())[CLIENT].draw(method.draws(Round(0)), 0)
    return [batches(rows) for rows in taken]


def redrawn(draws: Sequence[Draw]) -> list[Batches]:
    """Reshuffled minibatches, with their places where they are asked for."""
    taken, _ = support_streams(FEDERATION, STRAGGLING)[CLIENT].draw(draws, 0, "round", 0)
    return [
        tuple(
            b._replace(places=torch.from_numpy(r[1])) for b, r in zip(batches([r[0] for r in rows]), rows, strict=True)
        )
        if draw.indexed
        else batches(rows)
        for draw, rows in zip(draws, taken, strict=True)
    ]


def sgd(f: LoopObjective, w: Tensor, taken: Batches, lr: float) -> Tensor:
    for b in taken:
        w = w - lr * f.grad(w, b)
    return w


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ["hf", "first", "exact"])
def test_per_fedavg_without_inner_step_is_sgd_on_every_second_of_four(order: Any) -> None:
    method, f, w = PerFedAvg(steps=3, inner_lr=0.0, outer_lr=0.1, order=order), objective(), start()
    (taken,) = drawn(method)
    upload, _ = method.client(f, w, (), taken, round=NOW)
    close(upload, sgd(f, w, taken[1::4], 0.1))
    (fedavg, _) = FedAvg(lr=0.1).client(f, w, (), taken[1::4], round=NOW)
    close(upload, fedavg)


@pytest.mark.parametrize("shared", [None, "base"])
@pytest.mark.parametrize("weights", ["uniform", "examples"])
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_ifca_with_one_cluster_is_fedavg(weights: Any, shared: Any, momentum: float | None) -> None:
    spec = tiny_spec(rounds=3).model_copy(update={"weights": weights})
    options = {"epochs": 2, "lr": 0.02, "momentum": momentum, "weight_decay": momentum and 0.1}
    (ifca,) = Simulation([spec], [FEDERATION], IFCA(clusters=1, shared=shared, **options), tiny_network()).run()
    (fedavg,) = Simulation([spec], [FEDERATION], FedAvg(**options), tiny_network()).run()
    close(ifca.server[0], fedavg.server)
    for a, b in zip(ifca.scores, fedavg.scores, strict=True):
        assert a[:6] == b[:6] and a.accuracy == b.accuracy and a.loss_sum == pytest.approx(b.loss_sum, rel=1e-12)


def test_ifcas_clusters_keep_one_base_where_they_share_it() -> None:
    method = IFCA(clusters=3, epochs=2, lr=0.05, shared="base")
    (outcome,) = Simulation([STRAGGLING], [FEDERATION], method, tiny_network()).run()
    base, head = (outcome.server[:, tiny_network().layout.part(part)] for part in ("base", "head"))
    assert torch.equal(base[0], base[1]) and torch.equal(base[0], base[2])
    assert not torch.equal(base[0], start()[tiny_network().layout.part("base")])
    assert len({row.sum().item() for row in head}) == 3


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_fedprox_without_pull_is_fedavg(momentum: float | None, execution: Any) -> None:
    options = {"epochs": 2, "lr": 0.02, "momentum": momentum, "weight_decay": momentum and 0.1, "batch": 4}
    found = [
        Simulation([GLOBAL], [FEDERATION], method, tiny_network(), Setup(execution=execution)).run()[0].server
        for method in (FedProx(mu=0.0, **options), FedAvg(**options), FedProx(mu=1.0, **options))
    ]
    assert torch.equal(found[0], found[1]) and not torch.allclose(found[1], found[2])


def test_per_fedavg_without_inner_step_is_sgd_on_the_second_draws_and_its_personal_model_the_global_one() -> None:
    method, f, w = PerFedAvg(steps=3, inner_lr=0.0, outer_lr=0.1, batch=4, personal_epochs=2), objective(), start()
    (taken,) = redrawn(method.draws(Round(0)))
    upload, _ = method.client(f, w, (), taken, round=NOW)
    close(upload, sgd(f, w, taken[1::4], 0.1))
    assert torch.equal(method.personal_model(f, w, (), *redrawn(method.personal_draws()), round=NOW), w)


@pytest.mark.parametrize("method", [PerFedAvg(), FedAvg(), PFedMe(), FedProx()], ids=lambda m: type(m).__name__)
def test_without_anything_that_makes_them_there_are_no_personal_models(method: Method) -> None:
    with pytest.raises(UsageError, match=f"{type(method).__name__} has no personal models"):
        Simulation([tiny_spec(scoring=Scoring(stages=("personalized",)))], [FEDERATION], method, tiny_network()).run()


def test_ifcas_personal_model_is_the_one_that_it_deploys() -> None:
    method, f = IFCA(clusters=3), objective()
    server = torch.stack([start() + 0.1 * k for k in range(3)])
    (once,) = redrawn(method.personal_draws())
    made = method.personal_model(f, server, (), once, round=NOW)
    assert torch.equal(made, method.deploy(f, server, once))


@pytest.mark.parametrize(
    "method",
    [FedAvg, FedProx, Scaffold, FedPer, FedRep, IFCA, PerFedAvg, PFedMe, Local],
    ids=lambda m: m.__name__,
)
def test_a_methods_own_batch_size_is_that_of_all_its_minibatches(method: Callable[..., Method]) -> None:
    for options in ({}, {"shared": "base"}) if method is IFCA else ({},):
        sizes = [take.batch for take in method(batch=4, **options).draws(Round(0)) if not take.whole]
        assert set(sizes[-1:]) == {4} and set(sizes[:-1]) <= ({None} if method is IFCA else {4})


# Local, FedPer, FedRep.


def test_one_round_of_local_is_torchs_sgd(tiny_module: ModuleOf) -> None:
    method, w = Local(epochs=3, lr=0.02, momentum=0.9), start()
    (taken,) = drawn(method)
    sent, state = method.client(objective(), start() + 1, w, taken, round=NOW)  # it never sees the server's model
    close(state, torch_sgd(tiny_module(w), taken, lr=0.02, momentum=0.9))
    assert sent.shape == () and method.server(w, torch.ones(2), torch.ones(2) / 2, NOW) is w
    assert method.personal_model(objective(), w, state, round=NOW) is state


def test_two_rounds_of_local_are_one_of_twice_the_epochs() -> None:
    spec = tiny_spec(cohort=6, rounds=2)
    two = Simulation([spec], [FEDERATION], Local(epochs=2, lr=0.02), tiny_network())
    one = Simulation([spec], [FEDERATION], Local(epochs=4, lr=0.02), tiny_network())
    for simulation, rounds in ((two, 2), (one, 1)):
        for _ in range(rounds):
            simulation.step()
    assert sorted(two.runs[0].states) == np.flatnonzero(FEDERATION.training).tolist()
    for client, state in one.runs[0].states.items():
        close(two.runs[0].states[client], state)
    assert torch.equal(one.runs[0].server, start())


def test_fedper_with_one_client_is_sgd() -> None:
    spec, federation = tiny_spec(clients=3, cohort=1, rounds=3), tiny_federation(0, sizes=(20, 23, 17))
    simulation = Simulation([spec], [federation], FedPer(epochs=2, lr=0.05), tiny_network())
    for _ in range(3):
        simulation.step()
    (run,) = simulation.runs
    (sgd,) = Simulation([spec], [federation], FedAvg(epochs=2, lr=0.05), tiny_network()).run()
    base, head = (tiny_network().layout.part(part) for part in ("base", "head"))
    close(run.server[base], sgd.server[base])
    (state,) = run.states.values()
    close(state, sgd.server[head])
    assert torch.equal(run.server[head], start()[head])  # the global model's head stays the initial one


def test_fedper_without_a_base_is_local() -> None:
    options = {"epochs": 2, "lr": 0.02, "momentum": 0.9, "batch": 4}
    fedper = Simulation([STRAGGLING], [FEDERATION], FedPer(**options), all_in("head"))
    local = Simulation([STRAGGLING], [FEDERATION], Local(**options), all_in("head"))
    for simulation in (fedper, local):
        simulation.run()
    assert len(local.runs[0].states) == FEDERATION.training.sum()
    for client, state in local.runs[0].states.items():
        assert torch.equal(fedper.runs[0].states[client], state)
    losses = [{s.client: s.loss_sum for s in simulation.runs[0].scores} for simulation in (fedper, local)]
    assert losses[0] == losses[1] and len(losses[0]) == FEDERATION.training.sum()


def test_a_network_of_other_parts_is_refused() -> None:
    for method in (FedPer(), IFCA(shared="base")):
        with pytest.raises(UsageError, match="a base and then a head"):
            method.network(CAFeMe().network(tiny_network()))


def test_fedrep_without_head_epochs_never_changes_a_head() -> None:
    method = FedRep(head_epochs=0, base_epochs=2, lr=0.05)
    simulation = Simulation([STRAGGLING], [FEDERATION], method, FEATURED)
    simulation.run()
    head = FEATURED.layout.part("head")
    for state in simulation.runs[0].states.values():
        assert torch.equal(state, start(FEATURED)[head])
    assert torch.equal(simulation.runs[0].server[head], start(FEATURED)[head])
    assert not torch.equal(simulation.runs[0].server, start(FEATURED))


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_fedrep_without_base_epochs_trains_a_head_on_features(momentum: float | None) -> None:
    method = FedRep(head_epochs=3, base_epochs=0, lr=0.1, momentum=momentum, batch=4)
    f, w = objective(FEATURED), start(FEATURED)
    taken = redrawn(method.draws(Round(0)))
    base, head = method.client(f, w, method.init_client(w, _Featured()), *taken, round=NOW)
    assert torch.equal(base, w[f.part("base")])
    linear = nn.Linear(16, 3).double()
    vector_to_parameters(w[f.part("head")].clone(), linear.parameters())
    z = f.features(w, taken[0][0])
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=momentum or 0)
    for b in taken[1]:
        optimizer.zero_grad()
        F.cross_entropy(linear(z[b.places]), b.labels).backward()
        optimizer.step()
    close(head, flat(linear))


# pFedMe.


def test_one_iteration_of_pfedme_moves_the_local_model_toward_the_personal_one() -> None:
    method, f, w = PFedMe(steps=1, inner_steps=3, lr=0.02, inner_lr=0.05, lam=4.0), objective(), start()
    (taken,) = drawn(method)
    upload, _ = method.client(f, w, (), taken, round=NOW)
    close(upload.model, w + 0.02 * 4.0 * (upload.personal - w))
    assert (upload.personal - w).norm() > 1e-3
    close(replace(method, lam=50.0).client(f, w, (), taken, round=NOW)[0].model, upload_of(f, w, taken, lam=50.0))


def upload_of(f: LoopObjective, w: Tensor, taken: Batches, lam: float) -> Tensor:
    """With eta·lambda = 1 the local model becomes the personal one."""
    theta = w
    for _ in range(3):
        theta = theta - 0.05 * (f.grad(theta, taken[0]) + lam * (theta - w))
    return theta


def test_pfedme_without_pull_uploads_what_it_received() -> None:
    method, f, w = PFedMe(steps=3, inner_steps=2, lr=0.02, lam=0.0), objective(), start()
    (taken,) = drawn(method)
    upload, _ = method.client(f, w, (), taken, round=NOW)
    assert torch.equal(upload.model, w)
    close(upload.personal, sgd(f, w, tuple(b for b in taken for _ in range(2)), 0.02))


# SCAFFOLD.


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_scaffolds_client_controls_sum_to_n_times_the_servers(execution: Any) -> None:
    spec = STRAGGLING.model_copy(update={"rounds": 5})
    simulation = Simulation([spec], [FEDERATION], Scaffold(epochs=2), tiny_network(), Setup(execution=execution))
    (run,) = simulation.runs
    assert run.server.clients == FEDERATION.training.sum() == 6
    for index in range(5):
        before = {client: state.clone() for client, state in run.states.items()}
        simulation.step()
        there = set(arrived(spec, sample_cohort(spec, FEDERATION.training, index), index).tolist())
        assert (
            2 <= len(there)
            and {c for c, s in run.states.items() if c not in before or not torch.equal(s, before[c])} == there
        )
        close(torch.stack(list(run.states.values())).sum(0), run.server.clients * run.server.c)
    assert run.server.c.norm() > 0.1


def test_scaffold_with_one_client_is_sgd() -> None:
    spec, federation = tiny_spec(clients=3, cohort=1, rounds=3), tiny_federation(0, sizes=(20, 23, 17))
    (ours,) = Simulation([spec], [federation], Scaffold(epochs=2, lr=0.05), tiny_network()).run()
    (sgd,) = Simulation([spec], [federation], FedAvg(epochs=2, lr=0.05), tiny_network()).run()
    torch.testing.assert_close(ours.server.x, sgd.server, rtol=1e-10, atol=1e-10)


def test_scaffold_counts_real_steps_only() -> None:
    """A short client padded to a long one's steps has the control variate (x - y) / (K lr) of its own K."""
    method = Scaffold(epochs=2)
    for execution in ("loop", "vectorized"):
        results = one_round(method, execution)
        for client in (6, 3):
            upload, state = results[client]
            made = 2 * len(support_streams(FEDERATION, tiny_spec())[client].batches)
            torch.testing.assert_close(state, -upload.model / (made * method.lr), rtol=1e-9, atol=1e-12)


# Ditto, FedRep with averaged heads, FedAvg, CAFeMe.


def test_ditto_without_pull_trains_its_personal_model_alone() -> None:
    method, f, w = Ditto(steps=4, personal_lr=0.1, lam=0.0), objective(), start()
    mine, shared = drawn(method)
    personal = start() + 0.1  # another place than the server's model
    state = method.init_client(w, _New())._replace(v=personal)
    sent, after = method.client(f, w, state, mine, shared, round=NOW)
    close(after.v, sgd(f, personal, mine, 0.1))
    assert method.personal_model(f, w, after, round=NOW) is after.v
    assert method.personal_model(None, None, after, round=Round(0), upload=sent) is after.v and not torch.equal(
        after.v, sent
    )


def test_dittos_personal_model_never_touches_the_global_one() -> None:
    f, w = objective(), start()
    uploads = []
    for lam in (0.0, 5.0):
        method = Ditto(steps=3, lam=lam)
        uploads.append(method.client(f, w, method.init_client(w, _New()), *drawn(method), round=NOW)[0])
    assert torch.equal(*uploads)


class _New:
    """An initializer, for methods whose clients start from the server's state alone."""

    classes, width = 3, 0

    def __call__(self, k: int = 0) -> Tensor:
        return tiny_network().init(0, k).double()

    def part(self, name: str) -> slice:
        return tiny_network().layout.part(name)

    def last(self, layers: int) -> slice:
        return tiny_network().layout.last(layers)

    def entries(self, kind: Any) -> Tensor:
        raise NotImplementedError

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError


class _Featured(_New):
    """An initializer for the network with features."""

    def part(self, name: str) -> slice:
        return FEATURED.layout.part(name)


def all_in(part: str) -> Network:
    """The tiny network with everything in the base and a head of no entries, or the reverse."""
    plain = tiny_network()
    parameters = [replace(p, name=f"{part}.{p.name}") for p in plain.parameters]
    if part == "head":
        parameters.insert(0, Parameter("base.none", (0,)))
    else:
        parameters.append(Parameter("head.none", (0,)))

    def forward(ops: Any, p: dict[str, Tensor], x: Tensor, gate: Any) -> Tensor:
        return plain.forward(ops, {name.removeprefix(f"{part}."): value for name, value in p.items()}, x, gate)

    return Network(tuple(parameters), forward, plain.shape, plain.classes)


def test_fedrep_averaged_without_a_head_is_fedavg() -> None:
    method = FedRepAveraged(head_steps=0, base_steps=4, base_lr=0.05, optimizer="sgd")
    f, w = objective(all_in("base")), start()
    for_head, for_base = drawn(method)
    upload, _ = method.client(f, w, method.init_client(w, _New()), for_head, for_base, round=NOW)
    close(upload, FedAvg(lr=0.05).client(f, w, (), for_base, round=NOW)[0])


def test_fedrep_averaged_moves_one_part_at_a_time() -> None:
    f, w = objective(), start()
    for steps, moved, frozen in (((3, 0), "head", "base"), ((0, 3), "base", "head")):
        method = FedRepAveraged(head_steps=steps[0], base_steps=steps[1])
        upload, _ = method.client(f, w, method.init_client(w, _New()), *drawn(method), round=NOW)
        assert torch.equal(upload[f.part(frozen)], w[f.part(frozen)])
        assert not torch.equal(upload[f.part(moved)], w[f.part(moved)])


def test_fedavg_with_one_client_and_one_step_is_sgd(tiny_module: ModuleOf) -> None:
    federation = tiny_federation(0, sizes=(6, 6, 6))  # 5 support rows each: one minibatch
    spec = tiny_spec(clients=3, cohort=1, rounds=1)
    (outcome,) = Simulation([spec], [federation], FedAvg(epochs=1, lr=0.1), tiny_network()).run()
    rows = federation.support[int(federation.training.argmax())]
    module = tiny_module(start())
    one = (Batch(torch.from_numpy(rows), torch.from_numpy(federation.labels[rows])),)
    close(outcome.server, torch_sgd(module, one, federation, lr=0.1))


def test_a_participation_in_fedavg_is_torchs_sgd_with_momentum(tiny_module: ModuleOf) -> None:
    method, w = FedAvg(epochs=3, lr=0.02, momentum=0.9, batch=4), start()
    (taken,) = redrawn(method.draws(Round(0)))
    assert {len(b.rows) for b in taken} == {4} and len(taken) == 18
    upload, _ = method.client(objective(), w, (), taken, round=NOW)
    close(upload, torch_sgd(tiny_module(w), taken, lr=0.02, momentum=0.9))


@pytest.mark.parametrize("decay", [None, 0.1])
def test_a_participation_in_fedavg_or_local_is_torchs_adam_with_adam(
    tiny_module: ModuleOf, decay: float | None
) -> None:
    options: dict[str, Any] = {"epochs": 3, "lr": 0.02, "optimizer": "adam", "batch": 4, "weight_decay": decay}
    method, w = FedAvg(**options), start()
    (taken,) = redrawn(method.draws(Round(0)))
    upload, _ = method.client(objective(), w, (), taken, round=NOW)
    module = tiny_module(w)
    weights = [p for p in module.parameters() if p.ndim > 1]  # what decays: not biases and normalizations
    groups = [
        {"params": weights, "weight_decay": decay or 0.0},
        {"params": [p for p in module.parameters() if p.ndim == 1]},
    ]
    # Adam divides by a gradient's size, so that rounding of gradients near 0 (biases before a normalization) shows.
    expected = trained(module, torch.optim.Adam(groups, lr=0.02), taken)
    torch.testing.assert_close(upload, expected, rtol=1e-6, atol=1e-7)
    _, state = Local(**options).client(objective(), start() + 1, w, taken, round=NOW)
    assert torch.equal(state, upload)


def torch_sgd(module: nn.Module, taken: Batches, federation: Federation = FEDERATION, **options: float) -> Tensor:
    """The module's parameters after one pass of torch's own SGD over minibatches."""
    return trained(module, torch.optim.SGD(module.parameters(), **options), taken, federation)  # type: ignore[arg-type]


def trained(
    module: nn.Module, optimizer: torch.optim.Optimizer, taken: Batches, federation: Federation = FEDERATION
) -> Tensor:
    """The module's parameters after one pass of an optimizer over minibatches."""
    for b in taken:
        optimizer.zero_grad()
        F.cross_entropy(module(federation.x[b.rows].double() / 255), b.labels).backward()
        optimizer.step()
    return flat(module)


def flat(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def test_cafeme_with_open_gates_is_first_order_maml(tiny_module: ModuleOf) -> None:
    """Gates of exactly 1: the modulator's last layer says 50 for every input, and sigmoid(50) is 1 in float64."""
    method = CAFeMe(steps=3, outer_batches=2, inner_lr=0.1, outer_lr=0.01)
    network = method.network(tiny_network())
    theta = start(network)
    views = network.layout.views([theta])  # they share theta's memory
    last = max(name for name in views if name.startswith("modulator.after"))
    layer = last.rsplit(".", 1)[0]
    views[f"{layer}.weight"].zero_()
    views[f"{layer}.bias"].fill_(50.0)
    n = tiny_network().layout.size
    assert (theta == 50).sum() == sum(network.gated) and torch.equal(theta[-n:], start())

    # First-order MAML on the base alone, over three participations with one Adam state.
    module = tiny_module(theta[-n:])
    meta = torch.optim.Adam(module.parameters(), lr=0.01)
    state, w = Adam(0.0).init(theta), theta
    for _ in range(3):
        inner, (outer,) = drawn(method)
        w, state = method.client(objective(network), w, state, inner, (outer,), round=NOW)
        adapted = tiny_module(flat(module))
        optimizer = torch.optim.SGD(adapted.parameters(), lr=0.1)
        for b in (*inner, outer):
            adapted.zero_grad()
            F.cross_entropy(adapted(FEDERATION.x[b.rows].double() / 255), b.labels).backward()
            if b is not outer:
                optimizer.step()
        for mine, theirs in zip(module.parameters(), adapted.parameters(), strict=True):
            mine.grad = theirs.grad
        meta.step()
        moved = determined()
        torch.testing.assert_close(w[-n:][moved], flat(module)[moved], rtol=1e-9, atol=1e-9)
        assert torch.equal(w[:-n], theta[:-n])  # nothing flows through a gate that does not give


def determined() -> Tensor:
    """All but biases in front of a normalization, whose gradients are rounding that Adam blows up."""
    names = {p.name for p in tiny_network().parameters}
    keep = [
        torch.full((p.size,), f"{p.name.removesuffix('.bias')}.norm.scale" not in names)
        for p in tiny_network().parameters
    ]
    return torch.cat(keep)


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_local_fine_tuned_is_sgd_from_the_initial_model(tiny_module: ModuleOf, execution: Any) -> None:
    """A held-out client of a federation in which nothing is trained: torch's SGD from new(0), score by score."""
    rule = Finetune(steps=4, lr=0.1, decay=0.5, every=2)
    spec = tiny_spec(rounds=1, scoring=Scoring(stages=("finetuned",), average="examples", finetune=rule))
    setup = Setup(execution=execution)
    (outcome,) = Simulation([spec], [FEDERATION], Local(epochs=0), tiny_network(), setup).run()
    found = {(score.client, score.step): (score.correct, score.loss_sum) for score in outcome.scores}
    held_out = np.flatnonzero(~FEDERATION.training).tolist()
    assert found.keys() == {(client, step) for client in held_out for step in range(5)}
    for client in held_out:
        module = tiny_module(start())
        (rows,), _ = support_streams(FEDERATION, spec)[client].draw((Draw(steps=4),), 0)
        for step, taken in enumerate([(), *((b,) for b in batches(rows))]):
            torch_sgd(module, taken, lr=0.1 * 0.5 ** ((step - 1) // 2))
            correct = loss = 0.0
            for b in batches(query_batches(FEDERATION, client, spec)):
                with torch.no_grad():
                    logits = module(FEDERATION.x[b.rows].double() / 255)
                correct += int((logits.argmax(1) == b.labels).sum())
                loss += F.cross_entropy(logits, b.labels, reduction="sum").item()
            assert found[client, step] == (correct, pytest.approx(loss, rel=1e-9))


def test_fedrep_on_static_minibatches_is_as_on_reshuffled_ones_where_each_pass_is_one_minibatch() -> None:
    def models(batches: str, batch: int) -> Tensor:
        spec = tiny_spec(cohort=6, rounds=2).model_copy(update={"batches": batches, "batch": batch})
        (outcome,) = Simulation([spec], [FEDERATION], FedRep(lr=0.1, head_epochs=3), FEATURED).run()
        assert isinstance(outcome.server, Tensor)
        return outcome.server

    static = models("static", 100)
    torch.testing.assert_close(static, models("reshuffled", 100), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(models("static", 5), static), "several minibatches give another model"
