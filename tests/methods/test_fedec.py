"""FedEC: its loss, its first and second participations, and two rounds against a slow version of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pflbench import noise
from pflbench.engine.augment import crop_flip
from pflbench.engine.batches import support_streams
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import sample_cohort
from pflbench.engine.simulate import Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedec import FedEC, Memory, constrained_loss
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_features, tiny_federation, tiny_spec

FEDERATION = tiny_federation(0)
KEY = torch.tensor(noise.key(0, "here"))
CONSTRAINTS = ("kl", "l2", "none")
EXECUTIONS = ("loop", "vectorized")
NET, DROPPING = tiny_features(), tiny_features(dropout=0.6)
SGD = {"epochs": 2, "inner_lr": 0.05, "momentum": 0.5, "weight_decay": 0.01}
ROUNDS = 3


def spec(**changes: Any) -> RunSpec:
    """Reshuffled minibatches, all six training clients in every round, no scores that train anything."""
    plain = {"batches": "reshuffled", "cohort": 6, "rounds": ROUNDS, "scoring": Scoring(clients="all")}
    return tiny_spec().model_copy(update=plain | changes)


def drawn_numbers(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).normal(0, 3, shape))


# The loss.

LOGITS = st.integers(0, 2**31 - 1)
WEIGHTS = st.floats(0, 10, allow_subnormal=False)


@given(seed=LOGITS, weight=WEIGHTS, rows=st.integers(1, 6), classes=st.integers(2, 5))
def test_the_loss_is_a_cross_entropy_with_soft_labels_and_a_constant(
    seed: int, weight: float, rows: int, classes: int
) -> None:
    z, z_hat = drawn_numbers(seed, 2, rows, classes)
    y = torch.arange(rows) % classes
    z.requires_grad_()
    loss = constrained_loss(z, y, None, z_hat, torch.tensor(weight, dtype=torch.float64))
    p, p_hat = z.detach().softmax(1), z_hat.softmax(1)
    q = (F.one_hot(y, classes) + weight * p_hat) / (1 + weight)
    constant = weight * (p_hat * p_hat.log()).sum(1).mean()
    torch.testing.assert_close(
        loss.detach(), -(1 + weight) * (q * p.log()).sum(1).mean() + constant, rtol=1e-6, atol=1e-6
    )
    (g,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(g, (1 + weight) * (p - q) / rows, rtol=1e-9, atol=1e-12)


@given(seed=LOGITS, weight=WEIGHTS, rows=st.integers(1, 4), padding=st.integers(0, 3))
def test_the_loss_is_torchs_and_padded_rows_are_not_there(seed: int, weight: float, rows: int, padding: int) -> None:
    z, z_hat = drawn_numbers(seed, 2, rows + padding, 7)
    y, mask = torch.arange(rows + padding) % 7, torch.arange(rows + padding) < rows
    kl = F.kl_div(z[:rows].log_softmax(1), z_hat[:rows].softmax(1), reduction="batchmean")  # over rows, not entries
    expected = F.cross_entropy(z[:rows], y[:rows]) + weight * kl
    found = constrained_loss(z, y, mask, z_hat, torch.tensor(weight, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("teacher", [0.0, torch.nan, torch.inf, 1e308])
def test_without_weight_the_gradient_has_the_bits_of_the_cross_entropys(teacher: float) -> None:
    z, y = drawn_numbers(0, 5, 3).requires_grad_(), torch.arange(5) % 3
    zero = torch.zeros((), dtype=torch.float64)
    weighted = constrained_loss(z, y, None, torch.full((5, 3), teacher, dtype=torch.float64), zero)
    (found,), (expected,) = (torch.autograd.grad(x, z) for x in (weighted, constrained_loss(z, y, None)))
    assert torch.equal(found, expected) and torch.isfinite(weighted)


def task(dropout: float = 0.0, augment: bool = False) -> tuple[LoopObjective, Tensor, Batch]:
    rows = FEDERATION.support[3][:5]
    b = Batch(torch.from_numpy(rows), torch.from_numpy(FEDERATION.labels[rows]), key=KEY)
    return LoopObjective(Task(tiny_features(dropout), FEDERATION.x, augment=augment)), NET.init(0).double(), b


@pytest.mark.parametrize("constraint", ["kl", "l2"])
def test_a_model_is_not_drawn_anywhere_at_its_own_memory(constraint: Any) -> None:
    f, w, b = task()
    method = FedEC(epochs=1, inner_lr=0.1, alpha=5.0, constraint=constraint)
    (there, _), (elsewhere, _), (free, _) = (
        method.client(f, w, Memory(memory, w.new_tensor(seen)), (b,), round=Round(0))
        for memory, seen in ((w, 1.0), (NET.init(0, 1).double(), 1.0), (w, 0.0))
    )
    torch.testing.assert_close(there, free, rtol=1e-13, atol=1e-14)
    assert (there - elsewhere).norm() > 1e-3


def test_the_teacher_sees_the_augmented_images_without_dropout_and_without_a_gradient() -> None:
    f, w, b = task(dropout=0.6, augment=True)
    method = FedEC(epochs=1, inner_lr=0.1, alpha=5.0)
    theta, _ = method.client(f, w, Memory(w, w.new_ones(())), (b,), round=Round(0))
    x = crop_flip(FEDERATION.x[b.rows], KEY).double() / 255

    def expected(detached: bool, teacher_key: Tensor | None, images: Tensor) -> Tensor:
        leaf = w.clone().requires_grad_()
        student = DROPPING.logits([leaf], x, KEY)
        teacher = DROPPING.logits([w if detached else leaf], images, teacher_key)
        kl = F.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="batchmean")
        return w - 0.1 * torch.autograd.grad(F.cross_entropy(student, b.labels) + 5.0 * kl, leaf)[0]

    torch.testing.assert_close(theta, expected(True, None, x), rtol=1e-12, atol=1e-14)
    plain = FEDERATION.x[b.rows].double() / 255
    for other in (expected(False, None, x), expected(True, KEY, x), expected(True, None, plain)):
        assert (theta - other).norm() > 1e-4


def test_l2_adds_twice_alpha_times_the_way_back_to_the_memory() -> None:
    f, w, b = task()
    memory, alpha = NET.init(0, 1).double(), 0.3
    method = FedEC(epochs=1, inner_lr=0.1, alpha=alpha, constraint="l2")
    theta, _ = method.client(f, w, Memory(memory, w.new_ones(())), (b,), round=Round(0))
    torch.testing.assert_close(theta, w - 0.1 * (f.grad(w, b) + 2 * alpha * (w - memory)), rtol=1e-12, atol=1e-14)


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(UsageError, match="alpha must be at least 0"):
        FedEC(alpha=-0.5)


# Rounds.


def rounds(method: FedEC, spec: RunSpec, execution: Any = "loop", network: Any = DROPPING) -> list[Tensor]:
    """The server's model after each round."""
    simulation = Simulation([spec], [FEDERATION], method, network, Setup(execution=execution))
    found = []
    for _ in range(spec.rounds):
        simulation.step()
        found.append(simulation.runs[0].server)
    return found


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("constraint", ["kl", "l2"])
def test_a_first_participation_is_unconstrained_bit_for_bit_and_a_second_is_not(
    constraint: Any, execution: Any
) -> None:
    augmented = spec(augment="crop-flip")
    free = rounds(FedEC(**SGD, constraint="none"), augmented, execution)
    held = rounds(FedEC(**SGD, constraint=constraint), augmented, execution)
    assert torch.equal(free[0], held[0])
    assert (free[1] - held[1]).norm() > 1e-4


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("constraint", ["kl", "l2"])
def test_without_strength_no_participation_is_constrained(constraint: Any, execution: Any) -> None:
    free = rounds(FedEC(**SGD, constraint="none"), spec(), execution)
    held = rounds(FedEC(**SGD, constraint=constraint, alpha=0.0), spec(), execution)
    assert all(torch.equal(a, b) for a, b in zip(free, held, strict=True))


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_unconstrained_with_a_server_step_of_1_it_is_fedavg(momentum: float | None) -> None:
    federation = tiny_federation(0, sizes=(20,) * 8)
    options = {"epochs": 2, "momentum": momentum, "weight_decay": 0.01}
    by_size = spec(weights="examples", cohort=3)
    (ours,), (fedavg,) = (
        Simulation([by_size], [federation], method, NET).run()
        for method in (FedEC(inner_lr=0.05, constraint="none", **options), FedAvg(lr=0.05, **options))
    )
    torch.testing.assert_close(ours.server, fedavg.server, rtol=1e-12, atol=1e-12)


def test_the_servers_mean_is_plain() -> None:
    by_size, alike = (
        rounds(FedEC(**SGD), spec(weights=weights, cohort=3), network=NET)[-1] for weights in ("examples", "uniform")
    )
    assert torch.equal(by_size, alike)


def test_without_a_server_step_it_never_moves() -> None:
    for w in rounds(FedEC(**SGD, outer_lr=0.0), spec()):
        assert torch.equal(w, NET.init(0).double())


EVERYTHING = Scoring(clients="all", stages=("global", "personalized", "stored", "sampled"), last=ROUNDS)


def test_a_memory_is_replaced_when_its_client_takes_part_and_never_by_a_test() -> None:
    scored = spec(cohort=3, rounds=4, scoring=EVERYTHING)
    simulation = Simulation([scored], [FEDERATION], FedEC(**SGD), DROPPING)
    (run,) = simulation.runs
    for index in range(4):
        before = {c: state.model.clone() for c, state in run.states.items()}
        simulation.step()
        trained = {c: state.model.clone() for c, state in run.states.items()}
        cohort = set(sample_cohort(scored, FEDERATION.training, index).tolist())
        changed = {c for c, w in trained.items() if c not in before or not torch.equal(w, before[c])}
        assert changed == cohort and all(state.exists == 1 for state in run.states.values())
        server = run.server.clone()
        simulation.score(last=False)
        assert torch.equal(run.server, server) and run.states.keys() == trained.keys()
        assert all(torch.equal(run.states[c].model, w) for c, w in trained.items())
    assert len(run.states) > 3


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_tests_move_neither_the_server_nor_what_training_draws(constraint: Any) -> None:
    augmented = spec(augment="crop-flip", cohort=3)
    method = FedEC(**SGD, constraint=constraint)
    (bare,) = Simulation([augmented], [FEDERATION], method, DROPPING).run()
    scored = augmented.model_copy(update={"scoring": EVERYTHING})
    (tested,) = Simulation([scored], [FEDERATION], method, DROPPING, Setup(evaluate_every=1)).run()
    assert torch.equal(bare.server, tested.server)
    assert {s.stage for s in tested.scores} == set(EVERYTHING.stages) and len(bare.scores) < len(tested.scores)


# A slow version: modules, torch's optimizer and divergence, one client after the other.


def module_of(w: Tensor) -> nn.Module:
    """`tiny_features` as a torch module."""
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.ReLU(),
        nn.Linear(6, 3),
    ]
    module = nn.Sequential(*layers).double()
    vector_to_parameters(w.clone(), module.parameters())
    return module


def images(rows: np.ndarray) -> tuple[Tensor, Tensor]:
    return FEDERATION.x[rows].double() / 255, torch.from_numpy(FEDERATION.labels[rows])


def inner_update(method: FedEC, phi: Tensor, memory: Tensor | None, batches: list[np.ndarray]) -> Tensor:
    student = module_of(phi)
    teacher = None if memory is None else module_of(memory).requires_grad_(False)
    decayed, plain = ([p for p in student.parameters() if (p.dim() > 1) == big] for big in (True, False))
    groups = [{"params": decayed, "weight_decay": method.weight_decay}, {"params": plain}]
    optimizer = torch.optim.SGD(groups, lr=method.inner_lr, momentum=method.momentum or 0.0)
    for rows in batches:
        x, y = images(rows)
        out = student(x)
        loss = F.cross_entropy(out, y)
        if teacher is not None and method.constraint == "kl":
            kl = F.kl_div(F.log_softmax(out, 1), F.log_softmax(teacher(x), 1), reduction="batchmean", log_target=True)
            loss = loss + method.alpha * kl
        if teacher is not None and method.constraint == "l2":
            pairs = zip(student.parameters(), teacher.parameters(), strict=True)
            loss = loss + method.alpha * sum((a - b).square().sum() for a, b in pairs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters_to_vector(student.parameters()).detach()


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_rounds_and_tests_are_those_of_a_slow_version(constraint: Any, execution: Any) -> None:
    method = FedEC(**SGD, outer_lr=0.7, alpha=0.8, constraint=constraint)
    scoring = EVERYTHING.model_copy(update={"average": "examples", "last": 1})
    scored = spec(cohort=4, scoring=scoring)
    (outcome,) = Simulation([scored], [FEDERATION], method, NET, Setup(execution=execution, most_padding=100.0)).run()
    streams = support_streams(FEDERATION, scored)
    phi, memory = NET.init(0).double(), {}
    again = 0
    for index in range(ROUNDS):
        sent = {}
        for client in sample_cohort(scored, FEDERATION.training, index).tolist():
            (batches,), _ = streams[client].draw(method.draws(Round(0)), 0, "round", index)
            sent[client] = inner_update(method, phi, memory.get(client), batches)
            again += client in memory
        phi = phi + 0.7 * sum(theta - phi for theta in sent.values()) / len(sent)
        memory |= sent
    assert again and len(set(map(len, FEDERATION.support))) > 1
    torch.testing.assert_close(outcome.server, phi, rtol=1e-10, atol=1e-10)

    def adapted(client: int) -> Tensor:
        (batches,), _ = streams[client].draw(method.personal_draws(), 0, "personalize", ROUNDS)
        return inner_update(method, phi, memory.get(client), batches)

    stages: dict[str, tuple[set[int], Callable[[int], Tensor]]] = {
        "global": (set(range(8)), lambda client: phi),
        "personalized": (set(range(8)), adapted),
        "stored": (set(memory), lambda client: memory[client]),
        "sampled": (set(sent), lambda client: sent[client]),
    }
    for stage, (clients, model) in stages.items():
        scores = {s.client: s for s in outcome.scores if s.stage == stage}
        assert scores.keys() == clients
        for client, score in scores.items():
            x, y = images(FEDERATION.query[client])
            logits = module_of(model(client))(x).detach()
            assert score.loss_sum == pytest.approx(F.cross_entropy(logits, y, reduction="sum").item(), rel=1e-9)
            assert score.correct == (logits.argmax(1) == y).sum()
