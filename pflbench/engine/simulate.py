"""Rounds: sample a cohort, let each client draw, map the clients, let the server aggregate; score at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pflbench.data.federation import Federation
from pflbench.engine.batches import Stream, support_streams
from pflbench.engine.client_map import ClientMap, Data, Execution, Item
from pflbench.engine.evaluate import evaluate
from pflbench.engine.objective import Task
from pflbench.errors import Diverged, PflbenchError
from pflbench.methods.base import Method, Round
from pflbench.models.network import Network
from pflbench.result import Score
from pflbench.rng import stream
from pflbench.spec import RunSpec
from pflbench.typing import Params

Tree = Any
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True)
class Setup:
    """How to compute, as opposed to what: none of it is part of a run's identity."""

    execution: Execution = "loop"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    chunk: int | None = None
    on_round: Callable[[int], None] | None = None
    """Called with the number of finished rounds."""


@dataclass
class Outcome:
    """What one run of a group came to: its scores, or why it stopped; and its last server state, for the curious."""

    scores: tuple[Score, ...] = ()
    failure: PflbenchError | None = None
    server: Tree = None


@dataclass
class _Run:
    """One seed's moving parts."""

    spec: RunSpec
    federation: Federation
    streams: list[Stream]
    server: Tree
    fresh: Tree
    """The state of a client that has not taken part yet."""
    cursors: np.ndarray
    states: dict[int, Tree] = field(default_factory=dict)
    failure: Diverged | None = None


class _Initial:
    """The `Initializer` of one seed."""

    def __init__(self, network: Network, spec: RunSpec, device: torch.device):
        self.network, self.spec, self.device = network, spec, device

    def __call__(self, k: int = 0) -> Params:
        return self.network.init(self.spec.seed, k).to(self.device, DTYPES[self.spec.precision])

    def part(self, name: str) -> slice:
        return self.network.layout.part(name)


def simulate(
    specs: Sequence[RunSpec],
    federations: Sequence[Federation],
    method: Method[Any, Any, Any],
    network: Network,
    setup: Setup | None = None,
) -> list[Outcome]:
    """Train and score a group of runs that differ by seed only, in lockstep; one outcome per spec.

    `network` is the plain one; the method may wrap it. A run whose server state stops being finite ends with a
    `Diverged` failure; the others go on.
    """
    setup = setup or Setup()
    network = method.network(network)
    clients = ClientMap(_data(network, federations, setup.device), setup.execution, setup.chunk)
    runs = [_start(s, f, method, network, setup.device) for s, f in zip(specs, federations, strict=True)]
    for index in range(specs[0].rounds):
        alive = [run for run in runs if run.failure is None]
        if not alive:
            break
        _round(index, runs, method, clients)
        if setup.on_round:
            setup.on_round(index + 1)
    return _finish(runs, method, clients)


def _data(network: Network, federations: Sequence[Federation], device: torch.device) -> Data:
    """All seeds' pools as one; seeds that share a pool share its rows."""
    pools: list[Federation] = []
    offsets: list[int] = []
    for federation in federations:
        same = next((i for i, other in enumerate(pools) if other.x is federation.x), None)
        if same is None:
            same = len(pools)
            pools.append(federation)
        offsets.append(sum(len(p.x) for p in pools[:same]))
    x = pools[0].x if len(pools) == 1 else torch.cat([p.x for p in pools])
    return Data(Task(network, x.to(device)), np.concatenate([p.labels for p in pools]), tuple(offsets))


def _start(
    spec: RunSpec, federation: Federation, method: Method[Any, Any, Any], network: Network, device: torch.device
) -> _Run:
    new = _Initial(network, spec, device)
    server = method.init(new, spec.training_clients)
    return _Run(
        spec=spec,
        federation=federation,
        streams=support_streams(federation, spec),
        server=server,
        fresh=method.init_client(server, new),
        cursors=np.zeros(spec.clients, np.int64),
    )


def sample_cohort(spec: RunSpec, training: np.ndarray, index: int) -> np.ndarray:
    """The clients of round `index`: `spec.cohort` distinct training clients, uniformly; `training` bool ["clients"]."""
    return stream(spec.seed, "cohort", index).choice(np.flatnonzero(training), spec.cohort, replace=False)


def _round(index: int, runs: list[_Run], method: Method[Any, Any, Any], clients: ClientMap) -> None:
    items, owners = [], []
    for seed, run in enumerate(runs):
        if run.failure is not None:
            continue
        for client in sample_cohort(run.spec, run.federation.training, index):
            taken, run.cursors[client] = run.streams[client].draw(method.takes(), int(run.cursors[client]))
            items.append(Item(seed, run.states.get(int(client), run.fresh), tuple(taken)))
            owners.append((seed, int(client)))
    now = Round(index)
    results = clients(lambda *args: method.client(*args, round=now), [run.server for run in runs], items)
    for seed, run in enumerate(runs):
        mine = [(c, r) for (s, c), r in zip(owners, results, strict=True) if s == seed]
        if mine:
            _aggregate(run, mine, method, now, clients)


def _aggregate(
    run: _Run, results: list[tuple[int, Tree]], method: Method[Any, Any, Any], now: Round, clients: ClientMap
) -> None:
    uploads = pytree.tree_map(lambda *u: torch.stack(u), *[upload for _, (upload, _) in results])
    server = method.server(run.server, uploads, _weights(run, [c for c, _ in results], clients), now)
    before, after = (
        [tuple(getattr(x, "shape", ())) for x in pytree.tree_leaves(tree)] for tree in (run.server, server)
    )
    if before != after:
        raise TypeError(f"server() turned a state of shapes {before} into one of shapes {after}")
    run.server = server
    for client, (_, state) in results:
        # A slice of a stack would keep the whole stack alive.
        run.states[client] = pytree.tree_map(torch.clone, state) if clients.execution == "vectorized" else state
    if not _finite(run.server):
        run.failure = Diverged(
            f"diverged in round {now.index + 1} of {run.spec.rounds}: the server's parameters are not finite any more; "
            "a smaller learning rate may help"
        )


def _weights(run: _Run, cohort: list[int], clients: ClientMap) -> torch.Tensor:
    sizes = [len(run.federation.support[c]) if run.spec.weights == "examples" else 1 for c in cohort]
    n = torch.tensor(sizes, dtype=torch.float64)
    return (n / n.sum()).to(clients.data.device)


def _finite(tree: Tree) -> bool:
    return all(bool(torch.isfinite(leaf).all()) for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _finish(runs: list[_Run], method: Method[Any, Any, Any], clients: ClientMap) -> list[Outcome]:
    """Score the runs that did not fail. A loss that is not finite, at any stage, fails the whole run."""
    outcomes = [Outcome(failure=run.failure, server=run.server) for run in runs]
    numbers = [i for i, run in enumerate(runs) if run.failure is None]
    if not numbers:
        return outcomes
    alive = [runs[i] for i in numbers]
    scored = evaluate(
        method,
        [run.spec for run in alive],
        [run.server for run in alive],
        [run.federation for run in alive],
        [run.streams for run in alive],
        _for_seeds(clients, numbers),
    )
    for i, scores in zip(numbers, scored, strict=True):
        outcomes[i].scores = scores
        if not all(np.isfinite(s.loss_sum) for s in scores):
            outcomes[i].scores = ()
            outcomes[i].failure = Diverged(
                "diverged while scoring: a loss is not finite; a smaller learning rate may help"
            )
    return outcomes


def _for_seeds(clients: ClientMap, numbers: list[int]) -> ClientMap:
    data = clients.data
    kept = Data(data.task, data.labels, tuple(data.offsets[i] for i in numbers))
    return ClientMap(kept, clients.execution, clients.chunk)
