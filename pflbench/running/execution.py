"""`Execution`: where and how to train. None of it is part of a run's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pflbench.commands import option
from pflbench.errors import UsageError
from pflbench.units import Interval, Shard, interval, pairs, parse_shard, size

Redo = Literal["missing", "failed", "always"]
Executor = Literal["local", "slurm", "ray"]


@dataclass(frozen=True)
class Execution:
    """Where and how to train. Fields are the options of `pflbench run`, with their help.

    Attributes:
        memory_limit: Bytes that one process may use on the device. None: no limit.
        keep_models: Keep the global and personalized models of the last scores (`pflbench.load_models` reads them). A
            finished run is trained again for them only with `redo="always"`, which replaces its result.
        checkpoint_every: None: a stopped run starts from round 0 again.
        data_dir: Folder of the datasets. None: the data root.
        shard: The same part on every machine, whatever is stored. None: everything.
        slurm: Settings by submitit's names.
        results: The results folder; `run` sets it.
        stacked: Train stacks of clients and seeds instead of one client after the other. None: on GPUs.

    Raises:
        UsageError: A value is unknown, or goes with another executor.
    """

    device: str = option("auto", "auto (default), cpu, cuda, or cuda:0,cuda:1.")
    jobs: int | None = option(
        None,
        "Cores, one run on each; the last run's clients share them (default: all; 1 a GPU).",
        *("--jobs", "-j"),
        min=1,
    )
    memory_limit: int | None = option(None, "Memory of one process: 16GB (GPU default: all).", read=size)
    deterministic: bool = option(False, "Bitwise reproducible algorithms; slower on a GPU.")
    fresh: bool = option(False, "Train also what came with pflbench as a finished run.")
    redo: Redo = option("missing", "missing (default), failed (these too), or always.")
    evaluate_every: int | None = option(None, "Score every N rounds, not only at the end.", min=1)
    checkpoint_every: Interval | None = option(
        None, "Write a checkpoint every N rounds (50) or every interval (10m).", read=interval
    )
    keep_models: bool = option(False, "Keep the last scored models in results/models/.")
    follow: str | Path | None = option(None, "File that gets a line of JSON per round, or tensorboard:FOLDER.")
    fail_fast: bool = option(False, "Start nothing more after a run that fails.")
    unchecked: bool = option(
        False, "Train user-supplied methods without holding them against the contract; every report says so."
    )
    data_dir: str | Path | None = None
    shard: Shard | None = option(None, "Only part K/N of the runs, alike everywhere: 1/3.", read=parse_shard)
    wait: bool = option(
        True, "Wait for runs that others train (default), and take them over if these die.", "--wait/--no-wait"
    )
    executor: Executor = option("local", "local (default), slurm (jobs), or ray (tasks).")
    slots: int | None = option(None, "Slurm jobs (8) or Ray tasks (all fitting).", min=1)
    gpus_per_task: float | None = option(None, "GPUs of a Slurm job or Ray task (Ray: or 0.5).", min=0.0)
    slurm_partition: str | None = option(None, "Partition where Slurm jobs run.")
    slurm: Mapping[str, str] = option({}, "More options of Slurm jobs: time=240 (minutes), account=…", read=pairs)
    ray_address: str | None = option(None, "Ray cluster's address, auto (default: a new one).")
    results: Path = Path("results")
    stacked: bool | None = None

    def __post_init__(self) -> None:
        """Reject unknown values, and what belongs to another executor."""
        if self.follow:
            from pflbench.running.follow import destination

            destination(str(self.follow))
        if self.redo not in get_args(Redo):
            raise UsageError(f"Unknown --redo {self.redo!r}; known: {', '.join(get_args(Redo))}.")
        if self.executor not in get_args(Executor):
            raise UsageError(f"Unknown --executor {self.executor!r}; known: {', '.join(get_args(Executor))}.")
        for name in ("jobs", "evaluate_every", "slots"):
            number = getattr(self, name)
            if number is not None and not (isinstance(number, int) and number >= 1):
                raise UsageError(f"`{name}` is {number!r}; expected a whole number from 1.")
        executors = {
            "slots": ("slurm", "ray"),
            "gpus_per_task": ("slurm", "ray"),
            "slurm_partition": ("slurm",),
            "slurm": ("slurm",),
            "ray_address": ("ray",),
        }
        for name, takers in executors.items():
            if getattr(self, name) and self.executor not in takers:
                raise UsageError(f"--{name.replace('_', '-')} goes with --executor {' or '.join(takers)}.")

    @property
    def client_map(self) -> Literal["loop", "vectorized"]:
        """Way in which several clients are trained (`engine.client_map`)."""
        stacked = self.device.startswith("cuda") if self.stacked is None else self.stacked
        return "vectorized" if stacked else "loop"


def choose_devices(names: str) -> list[str]:
    """The devices of a list with commas. Raises `UsageError` for a missing one, or a CPU among several."""
    devices = [choose_device(name.strip()) for name in names.split(",")]
    if len(devices) > 1 and not (
        all(name.startswith("cuda") for name in devices) and len(set(devices)) == len(devices)
    ):
        raise UsageError(f"--device {names}: several devices are several GPUs, each named once: cuda:0,cuda:1.")
    return devices


def choose_device(name: str) -> str:
    """`auto` → the first GPU, else the CPU; `cuda` → `cuda:0`, since PyTorch makes no other the current one.

    Raises:
        UsageError: There is no such device.
    """
    import torch

    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"Unknown device {name!r}; known: auto, cpu, cuda, cuda:0, …")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"There is no device {name!r}; this machine has {torch.cuda.device_count()} CUDA devices.")
    return f"cuda:{device.index or 0}" if device.type == "cuda" else name
