"""pflbench's engine on the same work: FedAvg, one local epoch, on a made-up federation.

One process is one run, or with `--seeds K` a stack of K runs, as `pflbench run` trains them. `--lanes N`: one run on N
cores. `--method cafeme` is for `gpu.py`, which compares the engine with itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch
from protocol import arguments, fail, prepare, serve
from workloads import CLASSES, LR, POPULATION, Workload, workload

from pflbench import names
from pflbench.data.federation import Federation
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import Method
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.fedavg import FedAvg
from pflbench.models.network import Network
from pflbench.rng import stream
from pflbench.running.allocator import tune_allocator
from pflbench.spec import MethodSpec, Named, RunSpec, Scoring

QUERY = 4
"""Rows per client that are never trained on."""


def federation(work: Workload, seed: int) -> Federation:
    """Random pictures and labels; every client has exactly one epoch's support rows."""
    rng = stream(seed, "speed")
    held = work.examples + QUERY
    rows = np.arange(POPULATION * held).reshape(POPULATION, held)
    return Federation(
        x=torch.from_numpy(rng.integers(256, size=(rows.size, *work.shape), dtype=np.uint8)),
        support=tuple(rows[:, : work.examples]),
        query=tuple(rows[:, work.examples :]),
        labels=rng.integers(CLASSES, size=rows.size),
        training=np.ones(POPULATION, np.bool_),
        kind=None,
        classes=CLASSES,
        hash="made up",
    )


def spec(work: Workload, model: str, seed: int, precision: str = "fp32", rounds: int = 1_000_000) -> RunSpec:
    """The run that goes with it."""
    return RunSpec(
        method=MethodSpec(name="fedavg", version="0"),
        dataset=Named(name="made-up"),
        partition=Named(name="made-up"),
        model=model,
        clients=POPULATION,
        training_clients=POPULATION,
        cohort=work.clients,
        query=0.1,
        batch=work.batch,
        rounds=rounds,
        scoring=Scoring(clients="training", first=1),
        precision=precision,
        seed=seed,
    )


def network(name: str, work: Workload) -> Network:
    """A built-in network for the workload's images."""
    found: Network = names.resolve("models", name)(work.shape, CLASSES)
    return found


def simulation(
    name: str,
    work: Workload,
    setup: Setup,
    *,
    seeds: range = range(1),
    precision: str = "fp32",
    method: Method | None = None,
) -> Simulation:
    """These seeds as one group."""
    specs = [spec(work, name, seed, precision) for seed in seeds]
    federations = [federation(work, seed) for seed in seeds]
    return Simulation(specs, federations, method or FedAvg(epochs=1, lr=LR), network(name, work), setup)


def setup(options: argparse.Namespace) -> Setup:
    """How to compute; `--setup field=value` sets a further field of `Setup`, the value in JSON."""
    more = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in options.setup)}
    device = torch.device(options.device)
    return Setup(execution=options.execution, device=device, lanes=lambda: options.lanes, **more)


def rounds(sim: Simulation) -> Callable[[int], None]:
    """`rounds(n)`: n more."""

    def run(n: int) -> None:
        for _ in range(n):
            sim.step()
        if len(sim.alive) < len(sim.runs):
            raise RuntimeError("a run diverged, so that it costs nothing any more")

    return run


def main() -> None:
    """Build, then serve."""
    options = arguments(__doc__)
    prepare(options)
    tune_allocator()
    work = workload(options.network, options.scale)
    seeds = range(options.seed, options.seed + options.seeds)
    method = CAFeMe(order="first") if options.method == "cafeme" else FedAvg(epochs=1, lr=LR)
    sim = simulation(options.network, work, setup(options), seeds=seeds, precision=options.precision, method=method)
    more = rounds(sim)

    def check() -> None:
        before, expected = sim.clients.gradient_calls, work.client_steps * options.seeds
        more(1)
        calls = sim.clients.gradient_calls - before
        if options.execution == "loop" and options.method == "fedavg" and calls != expected:
            fail(f"The engine computed {calls} gradients in a round instead of {expected}.")

    size = method.network(network(options.network, work)).layout.size
    serve(more, options, work, parameters=size, runs=options.seeds, check=check)


if __name__ == "__main__":
    main()
