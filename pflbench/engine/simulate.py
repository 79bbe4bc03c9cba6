"""Rounds: sample a cohort, let each client draw, map the clients, let the server aggregate; score at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pflbench.data.federation import Federation
from pflbench.engine import host
from pflbench.engine.batches import support_streams
from pflbench.engine.capture import Graphs
from pflbench.engine.client_map import PORTION, ClientMap, Data, Execution, Item, Owner, Watched, keyed, one_lane
from pflbench.engine.evaluate import OnModel, Scorer, before_aggregation, leaves_models
from pflbench.engine.forms import draws, models, pair, returned
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.run import Initial, Run, arrived, coin, sample_cohort, weights
from pflbench.engine.stack import MOST_PADDING
from pflbench.engine.states import owned_copy
from pflbench.errors import Diverged, PflbenchError, UsageError
from pflbench.methods.base import Batches, Draw, Method, Round
from pflbench.models.network import Network
from pflbench.result import Metric, Score
from pflbench.spec import MOST_METRICS, RunSpec

Tree = Any
Clients = dict[int, list[int]]
"""Clients by the number of their run in the group."""
DTYPES = {"fp64": torch.float64}
"""The type of a run's parameters, where it is not float32: bf16 and tf32 say how float32 ones are multiplied."""
LOOK_EVERY = 16
"""Rounds between two checks that a GPU's numbers are finite; each check waits for the GPU."""


@dataclass(frozen=True)
class Setup:
    """Options of computing, none of which is part of a run's identity.

    `chunk`, `most_padding`, `lanes`: see `ClientMap`. `graphs`: whether repeated stacks are recorded; None: on a GPU.
    `stack`: how they convolve (`models.ops.STACKS`); None: "columns" on a GPU, else "grouped".
    `evaluate_every`: score after every so many rounds, too.
    """

    execution: Execution = "loop"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    chunk: int | None = None
    most_padding: float = MOST_PADDING
    lanes: Callable[[], int] = one_lane
    graphs: bool | None = None
    stack: str | None = None
    evaluate_every: int | None = None
    after_round: Callable[[Simulation], None] | None = None
    """Called with the simulation after each round and its scores; what it raises ends the training."""
    on_model: OnModel | None = None
    """Called with every model that the last round's scores are of."""


@dataclass
class RunOutcome:
    """The outcome of one run: its scores, or why it stopped, and the last server state.

    `costs`: the mean costs of a local update, see `Tally`.
    """

    scores: tuple[Score, ...] = ()
    failure: PflbenchError | None = None
    server: Tree = None
    metrics: tuple[Metric, ...] = ()
    costs: Mapping[str, float] = field(default_factory=dict)


class Simulation:
    """A group of runs that differ by seed only, in lockstep, round by round.

    `network` is the plain one; the method may wrap it. A run whose server state stops being finite ends with a
    `Diverged` failure; the others go on.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        federations: Sequence[Federation],
        method: Method,
        network: Network,
        setup: Setup | None = None,
    ):
        self.setup = setup or Setup()
        self.method = method
        network = method.network(network)
        self.clients = _client_map(network, federations, specs[0], self.setup)
        starts = zip(specs, federations, strict=True)
        self.runs = [_start(s, f, method, network, self.setup.device) for s, f in starts]
        self.rounds = 0
        """Finished rounds."""

    @property
    def alive(self) -> dict[int, Run]:
        """The runs that have not failed, by their indices in the group."""
        return {i: run for i, run in enumerate(self.runs) if run.failure is None}

    def run(self) -> list[RunOutcome]:
        """All rounds, then the scores; one outcome per spec."""
        self.train()
        self.score()
        return [
            RunOutcome((), run.failure, run.server, costs=run.tally.means())
            if run.failure
            else RunOutcome(tuple(run.scores), None, run.server, tuple(run.metrics), run.tally.means())
            for run in self.runs
        ]

    def train(self) -> None:
        """All rounds, with the scores after those before the last that are to be scored."""
        total = self.runs[0].spec.rounds
        while self.rounds < total and self.alive:
            self.step()
            if self._scored_after(self.rounds) and self.rounds < total:
                self.score(last=False)
            if self.setup.after_round:
                self.setup.after_round(self)

    def step(self) -> None:
        """One more round of every run that has not failed: train clients, score what they leave, aggregate."""
        work, senders, keepers = self._work()
        uploads: dict[int, dict[int, Tree]] = {index: {} for index in self.alive}
        # In portions, so that a portion's new states replace its old ones before the next begins.
        for portion in self.clients.portions(work):
            for (index, client), (sent, state) in zip(portion, self._train(portion, senders, keepers), strict=True):
                if client in senders[index]:
                    uploads[index][client] = sent
                if client in keepers[index]:
                    self.clients.outside_graphs(partial(self._keep, self.runs[index], client, sent, state))
        for index, run in self.alive.items():
            run.latest = keepers[index]
            now = Round(self.rounds, statistics=self.clients.data.task.statistics)
            sent = [uploads[index].pop(client) for client in senders[index]]
            share = host.upload(weights(run.spec, run.federation, senders[index]), self.clients.data.device)
            whole = _stacked(sent, self.clients)
            self.clients.outside_graphs(partial(_aggregate, run, whole, share, self.method, now, len(run.latest)))
            if self._scored_after(self.rounds + 1):
                self._diagnose(run)
        self.rounds += 1

    def _diagnose(self, run: Run) -> None:
        for client in sorted(run.states):
            numbers = self.method.diagnose(run.states[client])
            if len(numbers) > MOST_METRICS:
                name, most = type(self.method).__name__, MOST_METRICS
                raise UsageError(f"{name}.diagnose() returned {len(numbers)} numbers of a client: at most {most}.")
            for name, value in numbers.items():
                number = float(host.read(value, "diagnosis")) if isinstance(value, Tensor) else float(value)
                run.metrics.append(Metric(self.rounds + 1, client, name, number))

    def _keep(self, run: Run, client: int, sent: Tree, state: Tree) -> None:
        """Keep a client's new state, and its local model where that is scored."""
        run.states[client] = state
        if leaves_models(run.spec.scoring):
            f = LoopObjective(self.clients.data.task)
            made = self.method.personal_model(f, run.server, state, round=Round(self.rounds), upload=sent)
            size = f.network.layout.size
            run.local_models[client] = owned_copy(models(self.method, "personal_model", made, size)["personalized"])

    def _work(self) -> tuple[list[Owner], Clients, Clients]:
        """Clients of this round as (run, client): training ones, largest first; those that upload; that keep state."""
        work, senders, keepers = [], {}, {}
        for index, run in self.alive.items():
            everyone = self.method.joins == "everyone"
            training = run.federation.training
            joining = np.flatnonzero(training) if everyone else sample_cohort(run.spec, training, self.rounds)
            senders[index] = arrived(run.spec, joining, self.rounds).tolist()
            keepers[index] = joining.tolist() if self.method.commits == "trained" else senders[index]
            trained = keepers[index]
            if self._scores_training():
                trained = [*trained, *run.scored]
            work += [(index, client) for client in dict.fromkeys(trained)]
        if self.clients.execution == "loop" and len(work) > PORTION:
            work.sort(key=lambda owner: -len(self.runs[owner[0]].federation.support[owner[1]]))
        return work, senders, keepers

    def _train(self, portion: Sequence[Owner], senders: Clients, keepers: Clients) -> list[tuple[Tree, Tree]]:
        """Each client's upload and new state. Scores personal models that are to be scored before aggregation."""
        scored = self._scores_training()
        drawn, items = self._draws(), []
        keys = self.clients.keys(dict(enumerate(self.runs)), portion, self.rounds)
        for (index, client), key in zip(portion, keys, strict=True):
            run, used = self.runs[index], scored or client in senders[index]
            start, moment = int(run.cursors[client]), ("round", self.rounds)
            taken, cursor = run.streams[client].draw(drawn[index], start, *moment, used=used)
            self.clients.check_rows(*taken)
            if client in keepers[index]:  # scoring moves nothing
                run.cursors[client] = cursor
            items.append(Item(index, (run.state(client), key), tuple(taken)))
        results: list[tuple[Tree, Tree]] = [((), ())] * len(items)
        for alike in dict.fromkeys(drawn.values()):
            chosen = [i for i, item in enumerate(items) if drawn[item.index] == alike]
            made = self._local_updates([items[i] for i in chosen], alike)
            for i, (sent, state, images, uploadless) in zip(chosen, made, strict=True):
                results[i] = sent, state
                index, client = portion[i]
                if client in keepers[index]:
                    self.runs[index].counted.append(images if client in senders[index] else uploadless)
        if scored:
            trained = {
                (index, client): (state, sent)
                for (index, client), (sent, state) in zip(portion, results, strict=True)
                if client in self.runs[index].scored
            }
            on_model = self.setup.on_model if self.rounds + 1 == self.runs[0].spec.rounds else None
            scorer = Scorer(self.method, self.alive, self.clients, self.rounds + 1, on_model)
            for index, scores in scorer.personal(trained):
                self.runs[index].scores += scores
        return results

    def _draws(self) -> dict[int, tuple[Draw, ...]]:
        """Draws of each run's clients in this round, by the run's index in the group."""
        return {
            index: draws(self.method, "draws", self.method.draws(Round(self.rounds, coin=coin(run.spec, self.rounds))))
            for index, run in self.alive.items()
        }

    def _local_updates(self, items: list[Item], drawn: tuple[Draw, ...]) -> list[tuple[Tree, Tree, Tensor, Tensor]]:
        """Uploads, new states and images of gradients of clients who draw the same; the latter without `for_upload`."""
        requested: set[int] = set()

        def update(f: LoopObjective, server: Tree, private: Tree, *taken: Batches) -> Tree:
            fed, now = keyed(taken, private[1], self.clients.data.task), Watched(self.rounds, private[1], requested)
            sent, state = pair(self.method, self.method.client(f, server, private[0], *fed, round=now), private[0])
            zero = private[1].new_zeros((), dtype=torch.float64)
            free = {id(b.rows) for draw, several in zip(drawn, fed, strict=True) if draw.for_upload for b in several}
            return sent, state, f.images(zero), f.images(zero, free)

        key = None if "training" in self.clients.timely else ("training", drawn)
        results = self.clients(update, [run.server for run in self.runs], items, key=key)
        if requested:
            self.clients.timely.add("training")
        return results

    def _scored_after(self, done: int) -> bool:
        """True if the moment after this number of rounds is one to score."""
        spec, every = self.runs[0].spec, self.setup.evaluate_every
        return done > spec.rounds - spec.scoring.last or bool(every and done % every == 0)

    def _scores_training(self) -> bool:
        """True if this round's training makes personal models to score."""
        return self._scored_after(self.rounds + 1) and before_aggregation(self.method, self.runs[0].spec.scoring)

    def score(self, last: bool = True) -> None:
        """Score every run that has not failed. In the last scores a loss that is not finite fails the whole run."""
        for run in self.runs:
            run.check()
        alive, on_model = self.alive, self.setup.on_model if last else None
        scorer = Scorer(self.method, alive, self.clients, self.rounds, on_model)
        for index, scores in scorer.every_stage() if alive else ():
            alive[index].scores += scores
        for run in alive.values():
            if last and "personalized" in run.spec.scoring.stages:
                run.metrics += [Metric(0, c, "support", float(len(run.federation.support[c]))) for c in run.scored]
            counted = self.rounds - run.spec.scoring.last
            if last and not all(np.isfinite(s.loss_sum) for s in run.scores if s.round > counted):
                run.failure = Diverged("diverged while scoring: a loss is not finite; a smaller learning rate may help")


def _client_map(network: Network, federations: Sequence[Federation], spec: RunSpec, setup: Setup) -> ClientMap:
    """Over all runs' pools as one; runs that share a pool share its rows."""
    pools = [*{id(federation.x): federation for federation in federations}.values()]
    firsts = accumulate((len(pool.x) for pool in pools), initial=0)
    offsets = {id(pool.x): first for pool, first in zip(pools, firsts, strict=False)}
    x = pools[0].x if len(pools) == 1 else torch.cat([p.x for p in pools])
    on_gpu = setup.device.type == "cuda"
    stack = setup.stack or ("columns" if on_gpu else "grouped")
    augment = spec.augment == "crop-flip"
    task = Task(network, x.to(setup.device), spec.precision == "bf16", stack, pools[0].normalization, augment)
    data = Data(task, np.concatenate([p.labels for p in pools]), tuple(offsets[id(one.x)] for one in federations))
    graphs = Graphs(enabled=on_gpu if setup.graphs is None else setup.graphs)
    return ClientMap(data, setup.execution, setup.chunk, setup.most_padding, setup.lanes, graphs)


def _start(spec: RunSpec, federation: Federation, method: Method, network: Network, device: torch.device) -> Run:
    new = Initial(network, spec.seed, device, DTYPES.get(spec.precision, torch.float32))
    server = returned(method, "the state of init()", method.init(new, spec.training_clients))
    fresh = returned(method, "the state of init_client()", method.init_client(server, new))
    return Run(spec, federation, support_streams(federation, spec), server, fresh, np.zeros(spec.clients, np.int64))


def _stacked(trees: list[Tree], clients: ClientMap) -> Tree:
    """Trees with their leaves stacked. Empties the list, so that each leaf is freed as soon as it is in its stack."""
    spec = pytree.tree_structure(trees[0])
    leaves = [pytree.tree_leaves(trees.pop(0)) for _ in range(len(trees))]
    stacks = [clients.outside_graphs(partial(torch.stack, [x.pop(0) for x in leaves])) for _ in range(spec.num_leaves)]
    return pytree.tree_unflatten(stacks, spec)


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context: the ids of all tensors that operations read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ids: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler at the first operation, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The result of one operation."""
        self.ids.update(map(id, pytree.tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def _aggregate(run: Run, uploads: Tree, share: Tensor, method: Method, now: Round, trained: int) -> None:
    if type(method).server is Method.server:  # the mean of the uploads
        returned(method, "the upload of client()", pytree.tree_map(lambda leaf: leaf[0], uploads), run.server)
    with _Reads() as reads:
        server = returned(method, "the state of server()", method.server(run.server, uploads, share, now), run.server)
    finite = [torch.isfinite(leaf).all() for leaf in pytree.tree_leaves(server)]
    # As a tensor, since reading it would wait for the device.
    sound = torch.stack(finite).all() if finite else torch.tensor(True)
    reads.ids.update(map(id, pytree.tree_leaves(server)))
    sent = [leaf[0] for leaf in pytree.tree_leaves(uploads) if id(leaf) in reads.ids]
    run.tally.sizes(sent, "up", len(share))
    run.tally.sizes(pytree.tree_leaves(run.server), "down", trained)
    run.server = server  # from here on nothing runs out of memory, after which all of this would be done again
    run.unchecked.append((now.index, sound))
    if len(run.unchecked) >= (LOOK_EVERY if share.device.type == "cuda" else 1):
        run.check()
