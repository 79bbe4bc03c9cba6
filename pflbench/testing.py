"""The contract every method keeps, public: `pflbench check`, or in your own tests `contract("my/fedfoo.py:FedFoo")`.

The checks run on a tiny generated federation in float64: unequal clients, ragged last batches, a client smaller than
a batch, two seeds, and a network with batch normalization. Two results are the same if logits and parameters agree
to 1e-5, except biases in front of a normalization: their true gradient is 0, so that Adam turns rounding into steps.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import names, noise
from pflbench.data.federation import Federation, split_clients
from pflbench.engine.batches import Drawn, Stream, support_streams
from pflbench.engine.client_map import ClientMap, Data, Execution, Item
from pflbench.engine.cohort import sample_cohort
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.simulate import Outcome, Setup, simulate
from pflbench.errors import UsageError
from pflbench.methods.base import Batch, Batches, Method, Objective, Round
from pflbench.models.convnet import ConvNet
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops
from pflbench.rng import stream
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring, Stage

TOLERANCE = 1e-5
"""Batch normalization over two rows amplifies rounding, to 1e-6 in ten epochs; a mistake is worth much more."""
CLASSES = 3
SHAPE = (1, 8, 8)
SIZES = (13, 26, 9, 31, 18, 22, 5, 15)
"""Rows per client: with batches of 5 the numbers of minibatches differ, most last ones are ragged."""

Tree = Any
AnyMethod = Method[Any, Any, Any]


def tiny_network() -> Network:
    """A few hundred parameters, with every kind of layer the built-in networks have, and a modulator."""
    return ConvNet((4,), kernel=3, padding=1, flat=64, hidden=(8,), before=(6, 5), after=(5,)).network(SHAPE, CLASSES)


def tiny_features(dropout: float = 0.0) -> Network:
    """A network whose head is one linear layer, for methods that need one; with a convolution and a dense layer."""

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.pool(ops.conv(ops.images(x), p["base.conv.weight"], p["base.conv.bias"], 1)).relu()
        return ops.linear(ops.flatten(h), p["base.dense.weight"], p["base.dense.bias"]).relu()

    base = (*conv_parameters("base.conv", 1, 4, 3), *linear_parameters("base.dense", 64, 6))
    return with_linear_head(base, features, 6, SHAPE, CLASSES, dropout=dropout)


def tiny_federation(seed: int, sizes: Sequence[int] = SIZES) -> Federation:
    """Noisy pictures of three patterns, `sizes` rows per client; a quarter of each client's rows is query."""
    rng = stream(seed, "contract")
    total = sum(sizes)
    labels = rng.integers(CLASSES, size=total)
    patterns = np.random.RandomState(0).randint(0, 200, (CLASSES, *SHAPE))
    images = (patterns[labels] + rng.integers(55, size=(total, *SHAPE))).astype(np.uint8)
    held = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])
    cuts = [max(1, len(rows) // 4) for rows in held]
    return Federation(
        x=torch.from_numpy(images),
        support=tuple(rows[cut:] for rows, cut in zip(held, cuts, strict=True)),
        query=tuple(rows[:cut] for rows, cut in zip(held, cuts, strict=True)),
        labels=labels.astype(np.int64),
        training=split_clients(len(sizes), len(sizes) - 2, seed),
        kind=None,
        classes=CLASSES,
        hash="generated",
    )


def tiny_spec(seed: int = 0, *, clients: int = len(SIZES), cohort: int = 3, rounds: int = 2, batch: int = 5) -> RunSpec:
    """The spec that goes with `tiny_federation`; dataset, partition and model are names only."""
    return RunSpec(
        method=MethodSpec(name="checked", version="0"),
        dataset=Named(name="generated"),
        partition=Named(name="generated"),
        model="tiny",
        clients=clients,
        training_clients=clients - 2,
        cohort=cohort,
        query=0.25,
        batch=batch,
        tail="keep",
        rounds=rounds,
        scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=3, lr=0.05)),
        precision="fp64",
        seed=seed,
    )


def contract(method: str | AnyMethod) -> Iterator[tuple[str, str | None]]:
    """Run every check on a method (an object, a name, or a reference); yields (check, None or what went wrong).

    Raises:
        UsageError: The method cannot be found or imported.
    """
    built: AnyMethod = names.resolve("methods", method)() if isinstance(method, str) else method
    case = Case(built)
    for name, check in CHECKS.items():
        try:
            check(case)
        except AssertionError as error:
            yield name, str(error)
        except Exception as error:
            yield name, f"{type(error).__name__}: {error}"
        else:
            yield name, None


@dataclass
class Case:
    """One method on the tiny federation."""

    method: AnyMethod

    @cached_property
    def plain(self) -> Network:
        """A tiny network that the method can train."""
        return tiny_features() if self.method.needs_features else tiny_network()

    @cached_property
    def dropping(self) -> Network:
        """A tiny network with dropout, if the method can train one whose head is a linear layer; else without."""
        found = tiny_features(dropout=0.4)
        try:
            self.method.network(found)
        except UsageError:
            return self.plain
        return found

    @cached_property
    def network(self) -> Network:
        """The network the method trains."""
        return self.method.network(self.plain)

    def spec(self, seed: int = 0, **changes: Any) -> RunSpec:
        """A tiny run in the kind of minibatches that the method asks for."""
        own = any(take.batch or take.indexed for take in (*self.method.takes(), *self.method.adapts()))
        return tiny_spec(seed).model_copy(update={"batches": "reshuffled" if own else "static"} | changes)

    def stragglers(self, seed: int = 0) -> RunSpec:
        """A run in which all clients are asked, half of the uploads arrive, and personal models are scored."""
        scoring = Scoring(clients="all", stages=("global", "personalized"), moment="before-aggregation")
        return self.spec(seed, batches="reshuffled", cohort=len(SIZES) - 2, arrival=0.5, scoring=scoring)

    def noisy(self, seed: int = 0) -> RunSpec:
        """A run on augmented images, scored after two rounds at every stage that the method has."""
        leaves = type(self.method).trained is not Method.trained
        stages: tuple[Stage, ...] = ("global", "personalized", *(("stored", "sampled") if leaves else ()))
        scoring = Scoring(clients="all", stages=stages, last=2)
        return self.spec(seed, batches="reshuffled", rounds=3, augment="crop-flip", scoring=scoring)

    def run(
        self,
        specs: Sequence[RunSpec],
        execution: Execution,
        chunk: int | None = None,
        network: Network | None = None,
    ) -> list[Outcome]:
        """Whole runs of these specs as one group."""
        federations = [tiny_federation(spec.seed) for spec in specs]
        setup = Setup(execution=execution, chunk=chunk, most_padding=math.inf)
        outcomes = simulate(specs, federations, self.method, network or self.plain, setup)
        for outcome in outcomes:
            assert outcome.failure is None, f"the run failed: {outcome.failure}"
        return outcomes

    @cached_property
    def looped(self) -> list[Outcome]:
        """Seeds 0 and 1, one client at a time."""
        return self.run([self.spec(0), self.spec(1)], "loop")

    def start(self, seed: int = 0) -> tuple[Tree, Tree]:
        """Server state and a fresh client's state before round 0, float64."""
        new = _Initial(self.network, seed)
        server = self.method.init(new, len(SIZES) - 2)
        return server, self.method.init_client(server, new)

    def map(self, execution: Execution, federation: Federation) -> ClientMap:
        """A client map over one federation."""
        data = Data(Task(self.network, federation.x), federation.labels, (0,))
        return ClientMap(data, execution, most_padding=math.inf)

    def once(
        self, execution: Execution, federation: Federation, clients: Sequence[int]
    ) -> tuple[list[Tree], ClientMap]:
        """One participation of each client from the initial state: [(upload, state)], and the map that did it."""
        server, own = self.start()
        streams = support_streams(federation, self.spec(clients=len(federation.support)))
        items = [Item(0, (own, _key(c)), self.drawn(streams[c])) for c in clients]
        mapped = self.map(execution, federation)
        return mapped(self.participate, [server], items), mapped

    def participate(self, f: Objective, server: Tree, own: Tree, *taken: Batches) -> Tree:
        """One participation in round 0; `own` is (state, key)."""
        return self.method.client(f, server, own[0], *taken, round=Round(0, own[1], self.phase))

    def drawn(self, stream: Stream) -> tuple[Drawn, ...]:
        """What one participation in round 0 is fed."""
        return tuple(stream.draw(self.method.takes(), 0, phase=self.phase)[0])

    @cached_property
    def phases(self) -> list[str | None]:
        """The method's phases."""
        return list(dict.fromkeys(self.method.phase(i / 100) for i in range(100)))

    @cached_property
    def phase(self) -> str | None:
        """The phase in which clients draw the most."""
        return max(self.phases, key=lambda p: sum(take.phase in (None, p) for take in self.method.takes()))

    def compare(self, a: Tree, b: Tree, what: str) -> None:
        """Two trees of tensors, entry by entry, apart from what a normalization makes arbitrary."""
        leaves = zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True)
        for x, y in leaves:
            if not isinstance(x, Tensor):
                continue
            if x.shape and x.shape[-1] == self.network.layout.size:
                x, y = x[..., self.determined], y[..., self.determined]
            gap = (x - y).abs().max().item() if x.numel() else 0.0
            scale = max(1.0, x.abs().max().item() if x.numel() else 1.0)
            assert gap <= TOLERANCE * scale, f"{what}: they differ by {gap:.2e}"

    @cached_property
    def determined(self) -> Tensor:
        """Which entries of the vector a gradient determines: all but biases in front of a normalization."""
        named = {p.name for p in self.network.parameters}
        free = [f"{p.name.removesuffix('.bias')}.norm.scale" in named for p in self.network.parameters]
        sizes = [p.size for p in self.network.parameters]
        return torch.cat([torch.full((n,), not f) for n, f in zip(sizes, free, strict=True)])

    def same_runs(self, a: Sequence[Outcome], b: Sequence[Outcome], what: str) -> None:
        """Server states and scores of two lists of runs."""
        for x, y in zip(a, b, strict=True):
            self.compare(x.server, y.server, what)
            for p, q in zip(sorted(x.scores), sorted(y.scores), strict=True):
                assert p[:4] == q[:4] and p.count == q.count, f"{what}: other moments are scored"
                gap = abs(p.loss_sum - q.loss_sum)
                assert gap <= TOLERANCE * max(1, abs(p.loss_sum)), f"{what}: losses differ by {gap:.2e}"


class _Initial:
    def __init__(self, network: Network, seed: int):
        self.network, self.seed = network, seed

    def __call__(self, k: int = 0) -> Tensor:
        return self.network.init(self.seed, k).double()

    def part(self, name: str) -> slice:
        return self.network.layout.part(name)

    def last(self, layers: int) -> slice:
        return self.network.layout.last(layers)

    def noise(self, *name: str | int, shape: tuple[int, ...]) -> Tensor:
        return noise.normal(torch.tensor(noise.key(self.seed, "initial")), name, shape, torch.float64)


def _key(client: int) -> Tensor:
    return torch.tensor(noise.key(0, client, 0))


def _vectorized(case: Case) -> None:
    stacked = case.run([case.spec(0), case.spec(1)], "vectorized")
    case.same_runs(case.looped, stacked, "looped and vectorized clients")


def _stragglers(case: Case) -> None:
    specs = [case.stragglers(0), case.stragglers(1)]
    looped, stacked = (case.run(specs, execution) for execution in ("loop", "vectorized"))
    case.same_runs(looped, stacked, "looped and vectorized clients, where half of the uploads arrive")


def _noisy(case: Case) -> None:
    specs = [case.noisy(0), case.noisy(1)]
    looped, stacked = (case.run(specs, execution, network=case.dropping) for execution in ("loop", "vectorized"))
    case.same_runs(looped, stacked, "looped and vectorized clients with augmented images and dropout")


def _chunks(case: Case) -> None:
    small = case.run([case.spec(0), case.spec(1)], "vectorized", chunk=2)
    case.same_runs(case.looped, small, "stacks of two clients and whole stacks")


def _alone(case: Case) -> None:
    case.same_runs(case.looped[1:], case.run([case.spec(1)], "vectorized"), "a seed alone and together with another")


def _calls(case: Case) -> None:
    federation = tiny_federation(0, sizes=(20,) * 8)
    few, many = (case.once("vectorized", federation, range(n))[1].gradient_calls for n in (1, 6))
    assert few == many, f"1 client takes {few} stacked gradient calls, 6 clients take {many}"


def _pure(case: Case) -> None:
    server, own = case.start()
    before = pytree.tree_map(_copy, (server, own))
    federation = tiny_federation(0)
    drawn = case.drawn(support_streams(federation, case.spec())[3])
    clients = case.map("loop", federation)
    ((upload, _),) = clients(case.participate, [server], [Item(0, (own, _key(3)), drawn)])
    stacked = pytree.tree_map(lambda u: torch.stack([u, u]), upload)
    kept = pytree.tree_map(_copy, stacked)
    case.method.server(server, stacked, torch.full((2,), 0.5, dtype=torch.float64), Round(0))
    for was, now in zip(pytree.tree_leaves((before, kept)), pytree.tree_leaves(((server, own), stacked)), strict=True):
        same = torch.allclose(was, now, rtol=0, atol=0, equal_nan=True) if isinstance(was, Tensor) else was == now
        assert same, "client() or server() changes its arguments in place; return new values instead"


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else x


def _exchangeable(case: Case) -> None:
    server, _ = case.start()
    results, _ = case.once("loop", tiny_federation(0), [0, 1, 3, 4])
    uploads = [upload for upload, _ in results]
    n = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    order = [2, 0, 3, 1]
    states = [
        case.method.server(server, pytree.tree_map(lambda *u: torch.stack(u), *[uploads[i] for i in o]), n[o], Round(0))
        for o in ([0, 1, 2, 3], order)
    ]
    case.compare(states[0], states[1], "the server's state for two orders of the cohort")


def _masked(case: Case) -> None:
    federation = tiny_federation(0)
    long, short = 3, 6  # the short client is padded to the long one's steps and rows
    alone, _ = case.once("vectorized", federation, [short])
    beside, _ = case.once("vectorized", federation, [short, long])
    case.compare(alone[0], beside[0], "a client alone and padded to the length of a larger one")


def _learns(case: Case) -> None:
    own = case.method.personal_from == "training"  # then the server may learn nothing, as with local training alone
    stages = ("personalized",) if own else ("finetuned",)
    # All clients, as the few query rows of the two held-out clients alone would be noise.
    scoring = tiny_spec().scoring.model_copy(update={"clients": "training" if own else "all", "stages": stages})
    # Rounds of all kinds should come.
    spec = case.spec(rounds=12 if len(case.phases) == 1 else 60, scoring=scoring)
    (outcome,) = simulate([spec], [tiny_federation(0)], case.method, case.plain)
    assert outcome.failure is None, f"the run failed: {outcome.failure}"
    (start,) = simulate([spec.model_copy(update={"rounds": 1})], [tiny_federation(0)], _Idle(case.method), case.plain)
    before, after = (
        sum(s.loss_sum for s in last) / sum(s.count for s in last)
        for last in ([s for s in o.scores if s.step == max(t.step for t in o.scores)] for o in (start, outcome))
    )
    kind = f"the loss of {'personal' if own else 'fine-tuned'} models on easy data"
    assert after < before, f"{spec.rounds} rounds raise {kind} from {before:.4f} to {after:.4f}"


class _Idle(Method[Any, Any, Any]):
    """A method's initial state, never trained."""

    def __init__(self, method: AnyMethod):
        self.method = method

    def network(self, base: Network) -> Network:
        return self.method.network(base)

    def takes(self) -> tuple[Any, ...]:
        return ()

    def init(self, new: Any, clients: int) -> Any:
        return self.method.init(new, clients)

    def client(self, f: Any, server: Any, state: Any, *taken: Any, round: Round) -> Any:
        return torch.zeros(()), state

    def server(self, server: Any, uploads: Any, n: Any, round: Round) -> Any:
        return server

    def deploy(self, f: Any, server: Any, support: Any) -> Any:
        return self.method.deploy(f, server, support)

    def init_client(self, server: Any, new: Any) -> Any:
        return self.method.init_client(server, new)

    def adapts(self) -> tuple[Any, ...]:
        return self.method.adapts()

    def personalize(self, f: Any, server: Any, state: Any, sent: Any, *taken: Any, round: Round) -> Any:
        return self.method.personalize(f, server, state, sent, *taken, round=round)


def _held_out(case: Case) -> None:
    server, _ = case.start()
    federation = tiny_federation(0)
    before = pytree.tree_map(_copy, server)
    f = LoopObjective(Task(case.network, federation.x))
    for client in np.flatnonzero(~federation.training):
        rows = federation.support[client]
        batch = Batch(torch.from_numpy(rows), torch.from_numpy(federation.labels[rows]))
        w = case.method.deploy(f, server, (batch,))
        size = case.network.layout.size
        assert w.shape == (size,), f"deploy() returns {tuple(w.shape)} instead of one model, ({size},)"
        assert torch.isfinite(f.logits(w - 0.1 * f.grad(w, batch), batch)).all(), "a fine-tuned model is not finite"
    for was, now in zip(pytree.tree_leaves(before), pytree.tree_leaves(server), strict=True):
        assert not isinstance(was, Tensor) or torch.equal(was, now), "deploy() changes the server's state"


def _personal(case: Case) -> None:
    federation = tiny_federation(0)
    server, _ = case.start()
    ((sent, state),), mapped = case.once("loop", federation, [3])
    before = pytree.tree_map(_copy, (server, state, sent))
    drawn, _ = support_streams(federation, case.spec())[3].draw(case.method.adapts(), 0)

    def models(f: Objective, server: Tree, own: Tree, *taken: Batches) -> Tree:
        now = Round(0, _key(3))
        alone = case.method.personalize(f, server, own[0], None, *taken, round=now)
        return alone, case.method.personalize(f, server, own[0], own[1], *taken, round=now)

    (found,) = mapped(models, [server], [Item(0, (state, sent), tuple(drawn))])
    for made in found:
        assert "personalized" in made, f"personalize() returns the stages {', '.join(made)} without 'personalized'"
        for stage, w in made.items():
            shape = (case.network.layout.size,)
            assert w.shape == shape, f"personalize() returns {tuple(w.shape)} instead of one model {shape} for {stage}"
    for was, now in zip(pytree.tree_leaves(before), pytree.tree_leaves((server, state, sent)), strict=True):
        assert not isinstance(was, Tensor) or torch.equal(was, now), "personalize() changes its arguments in place"


def _saved(case: Case) -> None:
    _, own = case.start()
    results, _ = case.once("loop", tiny_federation(0), [0])
    for name, tree in (("server", case.looped[0].server), ("fresh client", own), ("client", results[0][1])):
        leaves, spec = pytree.tree_flatten(tree)
        file = io.BytesIO()
        torch.save([leaf for leaf in leaves if isinstance(leaf, Tensor)], file)
        file.seek(0)
        back = pytree.tree_unflatten(torch.load(file, weights_only=True), spec) if leaves else tree
        for was, now in zip(leaves, pytree.tree_leaves(back), strict=True):
            assert torch.equal(was, now), f"the {name} state does not survive saving and loading"


def _cohorts(case: Case) -> None:
    spec, federation = case.spec(), tiny_federation(0)
    for index in range(3):
        cohort = sample_cohort(spec, federation.training, index)
        assert len(set(cohort)) == spec.cohort and federation.training[cohort].all()
    assert case.method.takes() == case.method.takes(), "takes() must not change between calls"


CHECKS: dict[str, Callable[[Case], None]] = {
    "vectorized = loop": _vectorized,
    "vectorized = loop with stragglers": _stragglers,
    "vectorized = loop with augmentation and dropout": _noisy,
    "gradient calls do not grow with clients": _calls,
    "chunk size changes nothing": _chunks,
    "a seed alone = together with others": _alone,
    "a masked step is no step": _masked,
    "arguments survive": _pure,
    "clients are exchangeable": _exchangeable,
    "it learns": _learns,
    "a held-out client can be personalized": _held_out,
    "a client has a model of its own": _personal,
    "state survives saving": _saved,
    "draws are stable": _cohorts,
}

__all__ = ["CHECKS", "Case", "contract", "tiny_federation", "tiny_network", "tiny_spec"]
