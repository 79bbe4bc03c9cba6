"""FedEC's baselines against rounds written out one client at a time, with torch's own modules and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fedec_kit import (
    BETA,
    DECAY,
    FEDERATION,
    GLOBAL,
    LAST,
    LOCAL,
    LR,
    NETWORK,
    OPTIONS,
    ROUNDS,
    SPEC,
    START,
    TRAINING,
    Models,
    Optimizer,
    batch,
    close,
    cohort,
    draw,
    gradient,
    query_loss,
    same,
    strangers,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pflbench import names, noise
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import keyed
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import coin
from pflbench.engine.simulate import Simulation
from pflbench.errors import UsageError
from pflbench.methods.apfl import APFL
from pflbench.methods.base import Batches, Draw, Round
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.fedper import FedPer
from pflbench.methods.fedrep import FedRep
from pflbench.methods.l2gd import L2GD
from pflbench.methods.lg_fedavg import LGFedAvg
from pflbench.methods.local import Local
from pflbench.methods.pfedme import PFedMe
from pflbench.methods.scaffold import Scaffold
from pflbench.spec import RunSpec, Scoring
from pflbench.testing import tiny_features, tiny_network

# FedAvg.

RELEASED = names.resolve("methods", "fedec/variants/released.py:ScaffoldReleased")
APFL_RELEASED = "fedec/variants/released.py:APFLReleased"


def start(name: str) -> Any:
    """Variant of a method whose clients have the server's private part until they take part."""
    return names.resolve("methods", f"fedec/variants/server_start.py:{name}")


def test_fedavg_with_weight_decay_and_an_adaptation() -> None:
    method = FedAvg(epochs=2, personal_epochs=3, personal_lr=0.02, **OPTIONS)
    w = START
    for index in range(ROUNDS):
        w = sum(
            n * Optimizer().descend(w, draw(c, method.draws(Round(0)), "round", index)[0])
            for c, n in cohort(index).items()
        )
    adapted = {
        c: Optimizer(lr=0.02).descend(w, draw(c, method.personal_draws(), "personalize", ROUNDS)[0]) for c in TRAINING
    }
    same(method, w, adapted)
    same(FedAvg(epochs=2, **OPTIONS), w, dict.fromkeys(TRAINING, w), GLOBAL)
    same(FedAvg(epochs=2, personal_epochs=0, **OPTIONS), w, dict.fromkeys(TRAINING, w))


def test_fedavg_without_a_rate_of_its_own_adapts_at_the_training_rate() -> None:
    methods = [FedAvg(epochs=1, personal_epochs=1, personal_lr=lr, **OPTIONS) for lr in (None, LR, 0.01)]
    f, w = LoopObjective(Task(NETWORK, FEDERATION.x)), START
    taken = draw(TRAINING[0], methods[0].personal_draws(), "personalize", 1)
    made = [m.personal_model(f, w, (), *taken, round=Round(0)) for m in methods]
    assert torch.equal(made[0], made[1]) and not torch.equal(made[1], made[2])


# SCAFFOLD.


@pytest.mark.parametrize("released", [False, True])
def test_scaffold_rounds(released: bool) -> None:
    clip = 1.2
    extra = {"momentum": BETA, "weight_decay": DECAY, "clip": clip, "server_lr": 0.1} if released else {}
    method = (RELEASED if released else Scaffold)(epochs=2, lr=LR, batch=4, **extra)
    norms: list[float] = []
    x, c, own = START, torch.zeros_like(START), {i: torch.zeros_like(START) for i in TRAINING}
    for index in range(ROUNDS):
        moved, changed = [], []
        for client in cohort(index):

            def change(g: Tensor, correction: Tensor = c - own[client]) -> Tensor:
                norms.append((g + correction).norm().item())
                return (g + correction) * (min(1.0, clip / norms[-1]) if released else 1.0)

            (batches,) = draw(client, method.draws(Round(0)), "round", index)
            optimizer = Optimizer() if released else Optimizer(beta=None, decay=0.0)
            y = optimizer.descend(x, batches, change)
            new = own[client] - c + (x - y) / (len(batches) * LR)
            moved.append(y - x)
            changed.append(new - own[client])
            own[client] = new
        x = x + (0.1 if released else 1.0) * sum(moved) / len(moved)
        c = c + sum(changed) / len(TRAINING)
    assert min(norms) < clip < max(norms)
    simulation = same(method, (x, c, torch.tensor(6.0, dtype=torch.float64)), dict.fromkeys(TRAINING, x), GLOBAL)
    for client, state in simulation.runs[0].states.items():
        close(state, own[client])
    close(sum(own.values()), len(TRAINING) * c)


@given(st.floats(1e-3, 1e3), st.lists(st.floats(-100, 100), min_size=1, max_size=5))
def test_a_clipped_gradient_keeps_its_direction_and_a_short_one_everything(clip: float, values: list[float]) -> None:
    g = torch.tensor(values, dtype=torch.float64)
    clipped, norm = RELEASED(clip=clip).limited(g), g.norm()
    if norm <= clip:
        assert torch.equal(clipped, g)
    else:
        close(clipped * norm, g * clip)


# pFedMe.


@pytest.mark.parametrize("adapt", [None, True])
def test_pfedme_rounds(adapt: bool | None) -> None:
    method = PFedMe(
        steps=4, inner_steps=2, lr=0.02, inner_lr=0.1, lam=2.0, batch=8, mu=0.3, epochwise=True, adapt=adapt
    )

    def update(w: Tensor, batches: Batches) -> tuple[Tensor, Tensor]:
        theta = w
        for b in batches:
            for _ in range(2):
                theta = theta - 0.1 * (gradient(theta, b) + 2 * (theta - w) + 0.3 * theta)
            w = w - 0.02 * 2 * (w - theta)
        return w, theta

    w = START
    for index in range(ROUNDS):
        w = sum(n * update(w, draw(c, method.draws(Round(0)), "round", index)[0])[0] for c, n in cohort(index).items())
    adapted = {c: update(w, draw(c, method.draws(Round(0)), "personalize", ROUNDS)[0])[1] for c in TRAINING}
    same(method, w, adapted if adapt else dict.fromkeys(TRAINING, w), SPEC if adapt else GLOBAL)


def test_epochwise_minibatches_of_pfedme_pass_over_all_rows() -> None:
    client = max(TRAINING, key=lambda c: len(FEDERATION.support[c]))
    rows = len(FEDERATION.support[client])
    method = PFedMe(steps=-(-rows // 4), batch=4, epochwise=True)
    (batches,) = draw(client, method.draws(Round(0)), "round", 0)
    assert sorted(torch.cat([b.rows for b in batches]).tolist()) == sorted(FEDERATION.support[client].tolist())


# Private and shared parts.

SPLITS: dict[str, tuple[Any, Any, dict[str, Any], slice]] = {
    "fedper": (FedPer, start("FedPerServer"), {"epochs": 2}, slice(0, LAST[1])),
    "fedrep": (FedRep, start("FedRepServer"), {"head_epochs": 2, "base_epochs": 1}, slice(0, LAST[1])),
    "lg-fedavg": (LGFedAvg, start("LGFedAvgServer"), {"epochs": 2}, slice(LAST[2], len(START))),
    "lg-fedavg 1": (
        *(LGFedAvg, start("LGFedAvgServer")),
        *({"epochs": 2, "shared_layers": 1}, slice(LAST[1], len(START))),
    ),
}


def trained(name: str, w: Tensor, taken: list[Batches]) -> Tensor:
    """What a participation makes of a whole model."""
    if name != "fedrep":
        return Optimizer().descend(w, taken[0])
    w = Optimizer(chosen=slice(4, 6)).descend(w, taken[1])
    return Optimizer(chosen=slice(0, 4)).descend(w, taken[2])


@pytest.mark.parametrize("private_init", [None, "server"])
@pytest.mark.parametrize("name", SPLITS)
def test_rounds_of_methods_with_private_parts(name: str, private_init: Any) -> None:
    own, servers, options, shared = SPLITS[name]
    method = (servers if private_init else own)(**options, **OPTIONS)
    server, left = START, Models()

    def model(client: int) -> Tensor:
        """The client's private part, or what it has in its stead, with the server's shared one."""
        w = server.clone() if private_init else START.clone()
        if client in left:
            w = left[client].clone()
        w[shared] = server[shared]
        return w

    for index in range(ROUNDS):
        mine = {c: trained(name, model(c), draw(c, method.draws(Round(0)), "round", index)) for c in cohort(index)}
        left |= mine
        both = sum(n * mine[c] for c, n in cohort(index).items())
        server = server.clone()
        server[slice(None) if private_init else shared] = both[slice(None) if private_init else shared]
    assert not torch.equal(server[shared], START[shared]) and strangers()
    simulation = same(method, server, {c: model(c) for c in TRAINING})
    (run,) = simulation.runs
    assert set(run.states) == set(left)
    stored = SPEC.model_copy(update={"scoring": Scoring(clients="training", stages=("stored",), average="examples")})
    (outcome,) = Simulation([stored], [FEDERATION], method, NETWORK).run()
    assert {s.client: s.loss_sum for s in outcome.scores} == pytest.approx(
        {c: query_loss(w, c) for c, w in left.items()}, rel=1e-9
    )


def test_where_private_parts_start_matters() -> None:
    """A client that never took part uses other private parts, and one that did starts from others in its first round."""
    for own, servers, options, _ in SPLITS.values():
        runs = [Simulation([SPEC], [FEDERATION], make(**options, **OPTIONS), NETWORK) for make in (own, servers)]
        losses = [{s.client: s.loss_sum for s in run.run()[0].scores} for run in runs]
        assert all(losses[0][c] != losses[1][c] for c in strangers())


# FedRep without cached features.


def test_fedrep_trains_a_head_on_minibatches_as_on_features() -> None:
    class Uncached(LoopObjective):
        cacheable = False

    method, client = FedRep(head_epochs=2, base_epochs=1, **OPTIONS), TRAINING[0]
    draws = method.draws(Round(0))
    drawn, _ = support_streams(FEDERATION, SPEC)[client].draw(draws, 0, "round", 0)
    taken = [
        tuple(batch(r[0])._replace(places=torch.from_numpy(r[1])) if one.indexed else batch(r) for r in rows)
        for one, rows in zip(draws, drawn, strict=True)
    ]
    found = []
    for objective in (LoopObjective, Uncached):
        f = objective(Task(NETWORK, FEDERATION.x))
        state = START[f.part("head")]
        found.append((*method.client(f, START, state, *taken, round=Round(0)), f.gradient_calls))
    assert found[0][2] < found[1][2]
    close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


@pytest.mark.parametrize("epochs", [(2, 0), (0, 2), (2, 1)])
def test_fedrep_under_dropout_moves_one_part_at_a_time(epochs: tuple[int, int]) -> None:
    network, client = tiny_features(dropout=0.4), TRAINING[0]
    method = FedRep(head_epochs=epochs[0], base_epochs=epochs[1], **OPTIONS)
    task = Task(method.network(network), FEDERATION.x)
    f, w = LoopObjective(task), network.init(0).double()
    taken = keyed(draw(client, method.draws(Round(0)), "round", 0), torch.tensor(noise.key(0, client, 0)), task)
    base, head = method.client(f, w, w[f.part("head")], *taken, round=Round(0))
    slow = {"base": w[f.part("base")], "head": w[f.part("head")]}
    for part, batches in (("head", taken[1]), ("base", taken[2])):
        velocity = torch.zeros_like(slow[part])
        rate = f.decay(DECAY, slow[part], wrt=part)
        for b in batches:
            g = f.grad(torch.cat([slow["base"], slow["head"]]), b, wrt=part)
            velocity = BETA * velocity + g + rate * slow[part]
            slow[part] = slow[part] - LR * velocity
    close(base, slow["base"])
    close(head, slow["head"])
    assert torch.equal(head, w[f.part("head")]) == (epochs[0] == 0)
    assert torch.equal(base, w[f.part("base")]) == (epochs[1] == 0)
    unlike = keyed(draw(client, method.draws(Round(0)), "round", 0), torch.tensor(noise.key(1, client, 0)), task)
    others = method.client(f, w, w[f.part("head")], *unlike, round=Round(0))
    assert not (torch.equal(others[0], base) and torch.equal(others[1], head))


def test_fedrep_takes_networks_whose_head_is_no_linear_layer() -> None:
    network = tiny_network()
    assert network.features is None and FedRep().network(network) is network


# L2GD.

FLIPS = {"p": 0.55, "a": 0.6, "lam": 0.5, "epochs": 2, "momentum": BETA, "weight_decay": DECAY, "batch": 4}


def l2gd_spec(rounds: int) -> RunSpec:
    return SPEC.model_copy(update={"rounds": rounds})


def test_l2gd_rounds() -> None:
    method, rounds = L2GD(**FLIPS), 4
    rate = 0.6 / (6 * 0.45)
    x, phases = dict.fromkeys(TRAINING, START), []
    for index in range(rounds):
        phases.append("averaging" if coin(SPEC, index) < 0.55 else "local")
        average = sum(x.values()) / len(x)
        if phases[-1] == "averaging":
            x = {c: w - rate * 0.5 * (w - average) for c, w in x.items()}
        else:
            x = {
                c: Optimizer(lr=rate).descend(w, draw(c, method.draws(LOCAL), "round", index)[0]) for c, w in x.items()
            }
    assert phases == ["local", "averaging", "averaging", "averaging"]
    simulation = same(method, (sum(x.values()) / 6, torch.tensor(6.0, dtype=torch.float64)), x, l2gd_spec(rounds))
    assert set(simulation.runs[0].states) == set(TRAINING)  # whatever the cohort


def test_l2gd_without_pull_is_training_alone_in_the_local_rounds() -> None:
    rounds = 6
    method = L2GD(**FLIPS | {"lam": 0.0, "momentum": None})
    local = [index for index in range(rounds) if coin(SPEC, index) >= 0.55]
    assert 2 <= len(local) < rounds
    alone = {}
    for client in TRAINING:
        batches = [b for index in local for b in draw(client, method.draws(LOCAL), "round", index)[0]]
        alone[client] = Optimizer(lr=0.6 / (6 * 0.45), beta=None).descend(START, tuple(batches))
    server = (sum(alone.values()) / 6, torch.tensor(6.0, dtype=torch.float64))
    same(method, server, alone, l2gd_spec(rounds))


def test_l2gd_where_the_pull_is_whole_leaves_all_at_the_mean() -> None:
    """With a lambda / (N (1 - p)) = 1, whatever the models were."""
    method = L2GD(p=0.5, a=1.5, lam=2.0)
    f, server = LoopObjective(Task(NETWORK, FEDERATION.x)), method.init(_New(), 6)._replace(mean=START + 1)
    sent, state = method.client(f, server, START, round=Round(3))
    close(state, START + 1)
    assert torch.equal(sent, state)


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_l2gd_averages_with_probability_p(p: float, flip: float) -> None:
    assert L2GD(p=p).draws(Round(0, coin=flip)) == (() if flip < p else (Draw(epochs=5),))


class _New:
    classes, width = 3, 0

    def __call__(self, k: int = 0) -> Tensor:
        return NETWORK.init(0, k).double()

    def part(self, name: str) -> slice:
        return NETWORK.layout.part(name)

    def last(self, layers: int) -> slice:
        return NETWORK.layout.last(layers)

    def entries(self, kind: Any) -> Tensor:
        raise NotImplementedError

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError


# APFL.


@pytest.mark.parametrize("momentum", [None, BETA])
@pytest.mark.parametrize(
    ("make", "private_init", "released"),
    [
        (APFL, None, False),
        (start("APFLServer"), "server", False),
        (names.resolve("methods", APFL_RELEASED), None, True),
    ],
)
def test_apfl_rounds(make: Any, private_init: Any, released: bool, momentum: float | None) -> None:
    alpha = 0.7
    method = make(alpha=alpha, epochs=2, **OPTIONS | {"momentum": momentum})
    rates = DECAY * torch.cat([torch.full((p.size,), float(len(p.shape) > 1)) for p in NETWORK.parameters]).double()
    beta = momentum or 0.0
    server, v = START, Models()

    def own(client: int) -> Tensor:
        return v.get(client, server if private_init else START)

    for index in range(ROUNDS):
        sent = []
        for client in cohort(index):
            w, mine, of_w, of_v = server, own(client), torch.zeros_like(START), torch.zeros_like(START)
            for b in draw(client, method.draws(Round(0)), "round", index)[0]:
                m = alpha * mine + (alpha if released else 1 - alpha) * w
                g, of_m = gradient(w, b) + rates * w, gradient(m, b) + rates * m
                of_w = beta * of_w + g
                w = w - LR * of_w
                if released:
                    of_w = of_v = beta * of_w + of_m
                else:
                    of_v = beta * of_v + of_m
                mine = mine - LR * alpha * of_v
            sent.append((client, w, mine))
        v |= {client: mine for client, _, mine in sent}
        server = sum(w for _, w, _ in sent) / len(sent)
    models = {c: alpha * own(c) + (1 - alpha) * server for c in TRAINING}
    assert strangers()
    simulation = same(method, server, models)
    for client, state in simulation.runs[0].states.items():
        close(state.part if private_init else state, v[client])


def test_apfl_of_alpha_0_scores_the_model_of_fedavg() -> None:
    own, shared = (spec.model_copy(update={"weights": "uniform"}) for spec in (SPEC, GLOBAL))
    apfl = Simulation([own], [FEDERATION], APFL(alpha=0.0, epochs=2, **OPTIONS), NETWORK).run()[0]
    fedavg = Simulation([shared], [FEDERATION], FedAvg(epochs=2, **OPTIONS), NETWORK).run()[0]
    close(apfl.server, fedavg.server, 1e-12)
    losses = [{s.client: s.loss_sum for s in o.scores} for o in (apfl, fedavg)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12) and len(losses[0]) == 6


def test_apfl_of_alpha_1_trains_each_client_alone() -> None:
    method, client = APFL(alpha=1.0, epochs=2, **OPTIONS), TRAINING[0]
    f = LoopObjective(Task(NETWORK, FEDERATION.x))
    (batches,) = draw(client, method.draws(Round(0)), "round", 0)
    sent, v = method.client(f, START, START + 0.01, batches, round=Round(0))
    close(v, Optimizer().descend(START + 0.01, batches))
    close(sent, Optimizer().descend(START, batches))
    assert torch.equal(method.personal_model(None, None, v, round=Round(0), upload=sent), v)
    assert torch.equal(APFL(alpha=0.0).personal_model(None, None, v, round=Round(0), upload=sent), sent)


# Local.


@pytest.mark.parametrize("decay", [None, DECAY])
def test_local_training_that_keeps_its_momentum_is_one_training_of_all_clients(decay: float | None) -> None:
    method = Local(epochs=2, lr=LR, momentum=BETA, weight_decay=decay, batch=4, keep_momentum=True)
    assert method.joins == "everyone" and Local(momentum=BETA).joins == "cohort"
    models = {
        c: Optimizer(decay=decay or 0.0).descend(
            START, tuple(b for index in range(ROUNDS) for b in draw(c, method.draws(Round(0)), "round", index)[0])
        )
        for c in TRAINING
    }
    same(method, START, models)


# What participations leave, and what is refused.


def test_what_a_participation_leaves() -> None:
    f, client = LoopObjective(Task(NETWORK, FEDERATION.x)), TRAINING[0]
    for method in (FedAvg(epochs=1, **OPTIONS), PFedMe(steps=3, batch=4)):
        (batches,) = draw(client, method.draws(Round(0)), "round", 0)
        sent, state = method.client(f, START, (), batches, round=Round(0))
        expected = sent if isinstance(method, FedAvg) else sent.personal
        left = method.personal_model(f, START, state, round=Round(0), upload=sent)
        assert (left if isinstance(method, FedAvg) else left["personalized"]) is expected
    x = START + 1
    assert L2GD().personal_model(None, None, x, round=Round(0), upload=x) is x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedAvg(personal_lr=0.1), "personal_lr needs personal_epochs"),
        (lambda: FedAvg(weight_decay=-1.0), "weight_decay must be at least 0"),
        (lambda: Local(keep_momentum=True), "keep_momentum needs a momentum"),
        (lambda: RELEASED(clip=0.0), "clip must be greater than 0"),
        (lambda: PFedMe(mu=-0.1), "mu must be at least 0"),
        (lambda: L2GD(p=1.0), "p must be at least 0 and less than 1, not 1.0"),
        (lambda: L2GD(p=-0.1), "p must be at least 0"),
        (lambda: L2GD(lam=-1.0), "lam must be at least 0"),
        (lambda: L2GD(a=-1.0), "a must be at least 0"),
        (lambda: APFL(alpha=1.5), "alpha must be at least 0 and at most 1, not 1.5"),
        (lambda: APFL(alpha=-0.5), "alpha must be at least 0"),
    ],
)
def test_what_means_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
