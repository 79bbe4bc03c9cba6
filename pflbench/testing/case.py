"""One method on the tiny federation: what the checks of the contract run and compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import noise
from pflbench.data.federation import Federation
from pflbench.engine.batches import Drawn, Stream, support_streams
from pflbench.engine.client_map import ClientMap, Data, Execution, Item
from pflbench.engine.objective import Task
from pflbench.engine.simulate import Outcome, Setup, simulate
from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Method, Objective, Round
from pflbench.models.network import Network
from pflbench.spec import RunSpec, Scoring, Stage
from pflbench.stages import of_class
from pflbench.testing.tiny import SIZES, tiny_features, tiny_federation, tiny_network, tiny_spec

TOLERANCE = 1e-5
"""Batch normalization over two rows amplifies rounding, to 1e-6 in ten epochs; a mistake is worth much more."""

Tree = Any
AnyMethod = Method[Any, Any, Any]


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
        stages = self.stages("before-aggregation", "global", "personalized")
        scoring = Scoring(clients="all", stages=stages, moment="before-aggregation")
        return self.spec(seed, batches="reshuffled", cohort=len(SIZES) - 2, arrival=0.5, scoring=scoring)

    def noisy(self, seed: int = 0) -> RunSpec:
        """A run on augmented images, scored after two rounds at every stage that the method has."""
        stages = self.stages("after-aggregation", "global", "personalized", "stored", "sampled")
        scoring = Scoring(clients="all", stages=stages, last=2)
        return self.spec(seed, batches="reshuffled", rounds=3, augment="crop-flip", scoring=scoring)

    def stages(self, moment: str, *wanted: Stage) -> tuple[Stage, ...]:
        """Those of these stages that the method has where personal models are scored at this moment."""
        there = of_class(type(self.method)).there(vars(self.method), moment=moment, held_out=False)
        return tuple(stage for stage in wanted if stage in there)

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
        items = [Item(0, (own, key(c)), self.drawn(streams[c])) for c in clients]
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


def key(client: int) -> Tensor:
    """The key of a client's participation in round 0 of seed 0."""
    return torch.tensor(noise.key(0, client, 0))
