"""One method on the tiny federation: what the checks of the contract run and compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import noise
from pflbench.data.federation import Federation
from pflbench.engine import returned
from pflbench.engine.batches import Drawn, Stream, support_streams
from pflbench.engine.client_map import ClientMap, Data, Execution, Item
from pflbench.engine.objective import Task
from pflbench.engine.run import Initial
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Draw, Initializer, Method, Objective, Round
from pflbench.models.network import Network
from pflbench.spec import RunSpec, Scoring, Stage
from pflbench.stages import of_class
from pflbench.testing.rounding import gaps, nudged
from pflbench.testing.tiny import SIZES, tiny_features, tiny_federation, tiny_network, tiny_spec

SMALL = 1e-9
"""A difference in float64 that is not looked into: a mistake is worth much more, rounding mostly a thousandth."""
CONTROLS = 4
"""So many controls are made, one by one, before a difference counts as one."""

Tree = Any


@dataclass
class Case:
    """One method on the tiny federation."""

    method: Method
    remarks: list[str] = field(default_factory=list, init=False)
    """Remarks of the checks so far, on what is not wrong."""
    _again: dict[int, list[RunOutcome]] = field(default_factory=dict, init=False)

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
        own = any(draw.batch or draw.indexed for draw in (*self.draws, *self.method.personal_draws()))
        usual: dict[str, Any] = {"batches": "reshuffled" if own else "static"}
        if not self.deploys:
            usual["scoring"] = Scoring(clients="training", stages=self.stages("after-aggregation", "personalized"))
        return tiny_spec(seed).model_copy(update=usual | changes)

    @property
    def deploys(self) -> bool:
        """True if the method has a global model."""
        return of_class(type(self.method)).global_model != "none"

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
        """Stages among `wanted` that the method has if personal models are scored at this moment."""
        there = of_class(type(self.method)).there(vars(self.method), moment=moment, held_out=False)
        return tuple(stage for stage in wanted if stage in there)

    def run(
        self,
        specs: Sequence[RunSpec],
        execution: Execution,
        chunk: int | None = None,
        network: Network | None = None,
        nudge: int | None = None,
    ) -> list[RunOutcome]:
        """Whole runs of these specs as one group; `nudge`: from states moved by one rounding, as it draws them."""
        federations = [tiny_federation(spec.seed) for spec in specs]
        setup = Setup(execution=execution, chunk=chunk, most_padding=math.inf)
        simulation = Simulation(specs, federations, self.method, network or self.plain, setup)
        if nudge is not None:
            for i, run in enumerate(simulation.runs):
                run.server, run.fresh = nudged((run.server, run.fresh), nudge * len(specs) + i)
        outcomes = simulation.run()
        for outcome in outcomes:
            assert outcome.failure is None, f"the run failed: {outcome.failure}"
        return outcomes

    @cached_property
    def pair(self) -> list[RunSpec]:
        """Seeds 0 and 1."""
        return [self.spec(0), self.spec(1)]

    @cached_property
    def looped(self) -> list[RunOutcome]:
        """Both, one client at a time."""
        return self.run(self.pair, "loop")

    def looped_again(self, nudge: int) -> list[RunOutcome]:
        """The same from states moved by one rounding, as `nudge` draws them."""
        if nudge not in self._again:
            self._again[nudge] = self.run(self.pair, "loop", nudge=nudge)
        return self._again[nudge]

    def initializer(self, seed: int, dtype: torch.dtype) -> Initializer:
        """The initial model that a method starts from."""
        return Initial(self.network, seed, torch.device("cpu"), dtype)

    def start(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tree, Tree]:
        """Server state and a fresh client's state before round 0."""
        new = self.initializer(seed, dtype)
        server = returned.state(self.method.init(new, len(SIZES) - 2), "the server's state", "init()")
        return server, returned.state(self.method.init_client(server, new), "a client's state", "init_client()")

    def map(self, execution: Execution, federation: Federation) -> ClientMap:
        """A client map over one federation."""
        data = Data(Task(self.network, federation.x), federation.labels, (0,))
        return ClientMap(data, execution, most_padding=math.inf)

    def once(
        self, execution: Execution, federation: Federation, clients: Sequence[int], nudge: int | None = None
    ) -> tuple[list[Tree], ClientMap]:
        """One local update of each client from the initial state: [(upload, state)], and the client map used.

        `nudge`: as in `run`.
        """
        server, own = self.start() if nudge is None else nudged(self.start(), nudge)
        streams = support_streams(federation, self.spec(clients=len(federation.support)))
        items = [Item(0, (own, client_key(c)), self.drawn(streams[c])) for c in clients]
        mapped = self.map(execution, federation)
        return mapped(self.local_update, [server], items), mapped

    def local_update(self, f: Objective, server: Tree, own: Tree, *batches: Batches) -> Tree:
        """One local update in round 0; `own` is (state, key)."""
        now = Round(0, own[1])
        return returned.local_update(self.method.client(f, server, own[0], *batches, round=now))

    def drawn(self, stream: Stream) -> tuple[Drawn, ...]:
        """The minibatches of one local update in round 0."""
        return tuple(stream.draw(self.draws, 0)[0])

    @cached_property
    def kinds(self) -> list[tuple[Draw, ...]]:
        """Draws of round 0, by its coin: one entry for a method that ignores the coin."""
        rounds = (Round(0, coin=i / 100) for i in range(100))
        return list(dict.fromkeys(returned.draws(self.method.draws(now), "draws") for now in rounds))

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """The most that they draw."""
        return max(self.kinds, key=len)

    def compare(self, found: Tree, expected: Tree, what: str, again: Callable[[int], Tree] | None = None) -> None:
        """Two trees of tensors, apart from what a normalization makes arbitrary, are the same but for rounding.

        `again`: makes `expected` once more from inputs that are moved by one rounding, as its argument draws them;
        None where nothing amplifies.

        Raises:
            AssertionError: They differ by more than rounding explains.
        """
        a, b = self._comparable(found), self._comparable(expected)
        controls: list[Tree] = []
        while not all(gap.explained or gap.size <= SMALL * gap.scale for gap in gaps(a, b, controls)):
            if again is None or len(controls) == CONTROLS:
                worst = max((gap for gap in gaps(a, b, controls) if not gap.explained), key=lambda gap: gap.excess)
                raise AssertionError(
                    f"{what} differ by {worst.size:.2e}, where inputs moved by one rounding make a difference of "
                    f"{worst.control:.2e}"
                )
            controls.append(self._comparable(again(len(controls))))
        large = [gap for gap in gaps(a, b, controls) if gap.amplified]
        if large:
            by, moved = max(gap.size for gap in large), max(gap.control for gap in large)
            self.remarks.append(
                f"amplifies rounding: {what} differ by {by:.0e}, and inputs moved by one rounding make a difference of "
                f"{moved:.0e}; a mistake of this size would not be seen"
            )

    def _comparable(self, tree: Tree) -> Tree:
        """The tree without those entries of models that no gradient determines."""

        def cut(x: Any) -> Any:
            whole = isinstance(x, Tensor) and x.shape and x.shape[-1] == self.network.layout.size
            return x[..., self.determined] if whole else x

        return pytree.tree_map(cut, tree)

    @cached_property
    def determined(self) -> Tensor:
        """Positions in the vector that a gradient determines: all but biases in front of a normalization."""
        named = {p.name for p in self.network.parameters}
        free = [f"{p.name.removesuffix('.bias')}.norm.scale" in named for p in self.network.parameters]
        sizes = [p.size for p in self.network.parameters]
        return torch.cat([torch.full((n,), not f) for n, f in zip(sizes, free, strict=True)])

    def same_runs(
        self,
        found: Sequence[RunOutcome],
        expected: Sequence[RunOutcome],
        what: str,
        again: Callable[[int], Sequence[RunOutcome]] | None = None,
    ) -> None:
        """Server states and scores of two lists of runs; `again` as in `compare`. Raises AssertionError."""
        moments = [
            [[(*score[:4], score.count) for score in sorted(x.scores)] for x in runs] for runs in (found, expected)
        ]
        assert moments[0] == moments[1], f"{what} score other moments"
        self.compare(_results(found), _results(expected), what, again and (lambda nudge: _results(again(nudge))))


def _results(runs: Sequence[RunOutcome]) -> Tree:
    """Results of runs as tensors: server states, and the losses of all scores, as precise as the parameters."""
    found = []
    for run in runs:
        floating = [x.dtype for x in pytree.tree_leaves(run.server) if x.is_floating_point()]
        losses = torch.tensor([score.loss_sum for score in sorted(run.scores)], dtype=torch.float64)
        found.append((run.server, losses.to(min(floating, key=lambda d: -torch.finfo(d).eps, default=torch.float64))))
    return found


def client_key(client: int) -> Tensor:
    """The key of a client's local update in round 0 of seed 0."""
    return torch.tensor(noise.key(0, client, 0))
