"""Time of a run: its counted work, and the speed of one core, measured in a second or two for each network.

Work that cannot be counted (with a user-supplied dataset, partition or network) is tried: two clients are trained for a
round and scored.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from pflbench import names, trust
from pflbench.engine.batches import stream_of
from pflbench.engine.client_map import Data
from pflbench.engine.evaluate import before_aggregation, leaves_models
from pflbench.engine.objective import FORWARD, LoopObjective, Task
from pflbench.engine.run import Initial, scored_clients
from pflbench.engine.simulate import DTYPES, Setup, Simulation
from pflbench.errors import PflbenchError
from pflbench.methods.base import Batch, Draw, Round
from pflbench.models.convnet import ConvNet
from pflbench.models.mlp import perceptron
from pflbench.models.network import Network
from pflbench.names import Places
from pflbench.running import build
from pflbench.running.again import scored_rounds
from pflbench.running.allocator import tune_allocator
from pflbench.running.machine import Gradient, RunSeconds, file, keep_measurements, processor, trial_key
from pflbench.running.process import cause_of_death, serving
from pflbench.spec import RunSpec
from pflbench.units import count, duration

IMAGES = 2
"""Images in the batch whose operations are counted: a normalization takes no fewer."""
COINS = 100
"""Equally spaced coins that stand for the rounds of a method whose clients draw by them."""


class MeanClient:
    """A client that holds the mean number of rows, and the costs of its local updates, counted on a tiny network."""

    def __init__(self, spec: RunSpec, reference: str, examples: int):
        self.method = build.construct(reference, spec.method.hyper)
        plain = build.network(spec)
        self.growth = self.method.network(plain).layout.size / plain.layout.size
        share = 1.0 if isinstance(spec.query, str) else 1 - spec.query
        support = np.arange(max(1, round(examples / spec.clients * share * (1 - spec.validation))))
        self.stream = stream_of(support, spec, 0)
        network = self.method.network(_tiny(plain))
        self.new = Initial(network, spec.seed, torch.device("cpu"), torch.float32)
        self.server = self.method.init(self.new, spec.training_clients)
        pool = torch.zeros(len(support), *TINY, dtype=torch.uint8)
        self.data = Data(Task(network, pool, augment=spec.augment != "none"), np.zeros(len(support), np.int64), (0,))

    def does(self, draws: Sequence[Draw], part: Callable[..., Any], used: bool = True) -> float:
        """Images that a function of the method takes gradients of on such minibatches; other passes as fractions."""
        f, now = LoopObjective(self.data.task), Round(0, torch.tensor(0))
        drawn, _ = self.stream.draw(draws, 0, used=used)
        taken = [tuple(self.data.batch(rows, 0) for rows in batches) for batches in drawn]
        with torch.no_grad():
            part(f, self.server, self.method.init_client(self.server, self.new), *taken, round=now)
        return float(f.images(torch.zeros((), dtype=torch.float64)))

    def trains(self, used: bool = True) -> float:
        """Count images of a local update: the mean over all coins."""
        kinds = Counter(self.method.draws(Round(0, coin=(i + 0.5) / COINS)) for i in range(COINS))
        return sum(self.does(draws, self.method.client, used) * share / COINS for draws, share in kinds.items())


TINY = (1, 4, 4)
"""Shape of the images that passes are counted on."""


def _tiny(like: Network) -> Network:
    """A network with the parts of another one, and few parameters: the number of passes does not depend on them."""
    if like.features is None:
        sizes = ConvNet((1, 1), kernel=3, padding=1, flat=1, hidden=(1,), before=(1, 1), after=(1,))
        return sizes.network(TINY, 2)
    return replace(perceptron(TINY, 2, hidden=(1, 1, 1)), drops=like.drops)


@lru_cache(maxsize=1024)
def gradient_rows(spec: RunSpec, reference: str, every: int | None = None) -> float | None:
    """Rows that a run takes gradients of, training and scoring together, if every client holds the mean number.

    `every`: the interval of rounds after which it is scored, too; None: its last rounds alone.
    Other passes count by what they cost in gradients; a larger network than the plain one (CAFeMe's) counts by its
    size. None if the dataset does not say how large it is, or the method cannot compute without data.
    """
    if spec.dataset.version or spec.partition.version or spec.model_version:  # user's code, which runs in workers only
        return None
    examples = getattr(build.dataset(spec.dataset), "examples", None)
    if examples is None:
        return None
    try:
        divided = getattr(build.partition(spec.partition), "divided", lambda examples, clients: examples)
        return _rows(spec, reference, examples, divided(examples, spec.clients), every)
    except Exception:  # a user's method may look at its numbers; what is wrong with it the run itself says
        return None


def _rows(spec: RunSpec, reference: str, examples: int, divided: int, every: int | None) -> float:
    """`examples` the dataset has outside of its test split, of which the clients hold `divided`."""
    client = MeanClient(spec, reference, divided)
    method = client.method
    # A test split is usually a fifth or a sixth as large, and a client holds half of the labels.
    shares = {"test-split": examples / 10, "partition": divided / 6 / spec.clients}
    query = round(shares[spec.query] if isinstance(spec.query, str) else divided / spec.clients * spec.query)
    one = 0.0
    if "global" in spec.scoring.stages or "finetuned" in spec.scoring.stages:
        updates = spec.scoring.finetune.steps if spec.scoring.finetune and "finetuned" in spec.scoring.stages else 0
        one += updates * spec.batch + (updates + 1) * query * FORWARD
    if before_aggregation(method, spec.scoring):
        one += client.trains() + query * FORWARD
    elif "personalized" in spec.scoring.stages:
        one += query * FORWARD + client.does(method.personal_draws(), method.personal_model)
    if leaves_models(spec.scoring):
        one += query * FORWARD
    scored = {"held-out": spec.clients - spec.training_clients, "training": spec.training_clients, "all": spec.clients}
    clients = min(scored[spec.scoring.clients], spec.scoring.first or spec.clients)
    total = _training(spec, client) + scored_rounds(spec, every) * clients * one
    return float(total * client.growth)


def _training(spec: RunSpec, client: MeanClient) -> float:
    """Rows that a run's rounds take gradients of."""
    idle = (1 - spec.arrival) * client.trains(used=False) if client.method.commits == "trained" else 0.0
    asked = spec.training_clients if client.method.joins == "everyone" else spec.cohort
    return spec.rounds * asked * (spec.arrival * client.trains() + idle)


def timed_as(spec: RunSpec) -> str:
    """Key of the time of one gradient: the network, its images and classes, the precision, and the batch."""
    data = build.dataset(spec.dataset)
    channels, height, width = data.shape
    return f"{spec.model} {channels}x{height}x{width} {data.classes} {spec.precision} {spec.batch}"


def seconds(spec: RunSpec, reference: str, speeds: Mapping[str, float], every: int | None = None) -> float | None:
    """Seconds of one run on one core; None where nothing that was measured says it.

    Args:
        spec: The run.
        reference: Where the method's code is.
        speeds: Seconds of one example's gradient on this machine, by `timed_as`.
        every: As in `gradient_rows`.
    """
    rows = gradient_rows(spec, reference, every) if speeds else None
    if rows is None:
        return None
    speed = speeds.get(timed_as(spec))
    return None if speed is None else rows * speed


def relative_work(
    references: Mapping[RunSpec, str], every: Mapping[str, int | None] = MappingProxyType({})
) -> dict[str, float] | None:
    """Relative cost of each run, by its id; None if one has a user-supplied method, or cannot be counted.

    `references`: for each run where its method's code is. Own code runs in workers only: it may end its process.
    `every`: by run id, the interval of rounds after which it is scored, too.
    """
    by_kind: dict[tuple[str, int | None], float] = {}
    kinds = {spec.id: (spec.group(), every.get(spec.id)) for spec in references}
    for spec, reference in references.items():
        if (kind := kinds[spec.id]) not in by_kind:
            work = work_of(spec, reference, kind[1])
            if work is None:
                return None
            by_kind[kind] = work
    return {id: by_kind[kind] for id, kind in kinds.items()}


def work_of(spec: RunSpec, reference: str, every: int | None = None) -> float | None:
    """Relative cost of a run; None if it has a user-supplied method, or cannot be counted."""
    if not reference.startswith("pflbench.methods."):
        return None
    rows = gradient_rows(spec, reference, every)
    return rows * flops(build.network(spec)) if rows else None


def flops(network: Network) -> float:
    """Floating-point operations of one image's forward pass: those of products and convolutions, by PyTorch's formulas.

    A convolution uses each of its weights many times, so the number of parameters does not tell the cost of networks.
    """
    counted = _Flops()
    with torch.no_grad(), counted:
        network.logits([torch.zeros(network.layout.size)], torch.zeros(IMAGES, *network.shape))
    return counted.total / IMAGES


class _Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context operations are done, and those that PyTorch has a formula for are counted in `total`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of one operation."""
        result = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func._overloadpacket):
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


SECONDS = 1.0
"""Seconds for which one network's gradients are timed."""
TRIAL = 5.0
"""About how long a trial takes, to say it beforehand: it imports torch, loads the data, and trains two clients."""
LIMIT = 60.0
"""Seconds after which a trial is given up."""
CLIENTS = 2
"""Clients that a trial trains and scores."""


class Unknown(NamedTuple):
    """A run whose time is unknown, where the code is of what in it is the user's own, and why its data are missing."""

    spec: RunSpec
    places: Places
    missing: tuple[str, ...] = ()


def measure(unknown: Sequence[Unknown], root: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Measure what the times of these runs depend on, and keep it for every later plan.

    Args:
        unknown: The runs; those that differ by seed alone once.
        root: The data root, where the data of tried runs are.
        say: Called with a sentence before anything is measured.

    Returns:
        By run id, why a time is still unknown.
    """
    networks: dict[str, RunSpec] = {}
    tried: dict[str, Unknown] = {}
    reasons: dict[str, str] = {}
    for one in unknown:
        spec = one.spec
        if spec.precision == "tf32":
            reasons[spec.id] = "tf32 needs a GPU"
        elif gradient_rows(spec, names.place("methods", spec.method.name, one.places)) is not None:
            networks.setdefault(timed_as(spec), spec)
        elif one.missing:
            reasons[spec.id] = "its data are missing"
        else:
            tried.setdefault(trial_key(spec), one)
    if not networks and not tried:
        return reasons
    what = [", ".join(dict.fromkeys(spec.model for spec in networks.values()))] if networks else []
    what += [f"a round of {count(len(tried), 'run')}"] if tried else []
    about = duration(max(1.0, SECONDS * len(networks) + TRIAL * len(tried)))
    say(f"Measuring on one core how long training takes ({'; '.join(what)}): about {about}.")
    found: dict[str, Gradient | RunSeconds] = _gradients(networks)
    for key, one in tried.items():
        told = _tried(one, root)
        if isinstance(told, str):
            reasons[one.spec.id] = told
        else:
            found[key] = told
    try:
        keep_measurements(processor(), found)
    except OSError as error:
        why = f"what was measured cannot be kept in {str(file())!r} ({error.strerror or error})"
        reasons |= {spec.id: why for spec in (*networks.values(), *(one.spec for one in tried.values()))}
    return reasons


def _gradients(networks: Mapping[str, RunSpec]) -> dict[str, Gradient | RunSeconds]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as runs are trained
    try:
        tune_allocator()
        return {
            key: Gradient(batch=spec.batch, seconds_per_client_step=_gradient(spec)) for key, spec in networks.items()
        }
    finally:
        torch.set_num_threads(threads)


def _gradient(spec: RunSpec) -> float:
    """Seconds of one SGD step of a run's network on a minibatch of made-up images, on one core."""
    data, network = build.dataset(spec.dataset), build.network(spec)
    rows = torch.arange(spec.batch)
    pool = torch.randint(256, (spec.batch, *data.shape), dtype=torch.uint8)
    f = LoopObjective(Task(network, pool, bf16=spec.precision == "bf16"))
    batch = Batch(rows, rows % data.classes)
    w = network.init(0).to(DTYPES.get(spec.precision, torch.float32))
    took: list[float] = []
    end = time.perf_counter() + SECONDS
    while not took or time.perf_counter() < end:
        start = time.process_time()  # which does not count what other programs on this core take
        w = w - 1e-6 * f.grad(w, batch)
        took.append(time.process_time() - start)
    return median(took)


def _tried(one: Unknown, root: Path) -> RunSeconds | str:
    """Cost of a trial, or the reason it is unknown. Measured in a subprocess, because user code may hang or exit."""
    with serving(_serve, one, root) as (pipe, process):
        if not pipe.poll(LIMIT):
            return f"a round of {CLIENTS} clients takes more than {duration(LIMIT)}"
        try:
            told: RunSeconds | str = pipe.recv()
        except (EOFError, OSError):
            process.join()
            return cause_of_death(process.exitcode or 0).rstrip(".")
        return told


def _serve(pipe: Connection, one: Unknown, root: Path) -> None:
    torch.set_num_threads(1)
    tune_allocator()
    warnings.simplefilter("ignore")  # what it warns of is heard when it trains
    trust.grant_places(one.places)
    try:
        pipe.send(try_out(one, root))
    except PflbenchError as error:
        pipe.send(str(error).rstrip("."))
    except Exception as error:  # a user's code
        pipe.send(f"{type(error).__name__}: {error}".rstrip("."))


def try_out(one: Unknown, root: Path) -> RunSeconds:
    """Train a few clients of a run for two rounds, score them, and scale to the run's cohort and scored clients.

    Raises:
        PflbenchError: The data are missing, or something cannot be built.
    """
    spec = one.spec
    clients = min(CLIENTS, spec.cohort)
    scoring = spec.scoring.model_copy(update={"last": 1, "first": CLIENTS})
    short = spec.model_copy(update={"rounds": 2, "cohort": clients, "scoring": scoring})
    begun = time.process_time()
    federation = build.federation(short, root, one.places)
    method, network = build.method(short, one.places), build.network(short, one.places)
    simulation = Simulation([short], [federation], method, network, Setup())
    steps = [time.process_time()]
    for _ in range(2):
        simulation.step()
        steps.append(time.process_time())
    simulation.score()
    ended = time.process_time()
    asked = 1.0 if method.joins == "everyone" else spec.cohort / clients
    scored = [len(scored_clients(s, np.asarray(federation.training))) for s in (spec.scoring, scoring)]
    return RunSeconds(
        loading=steps[0] - begun,
        round=asked * min(steps[1] - steps[0], steps[2] - steps[1]),
        scoring=(ended - steps[2]) * scored[0] / max(1, scored[1]),
    )
