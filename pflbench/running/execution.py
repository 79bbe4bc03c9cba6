"""`Execution`: where and how to train. None of it is part of a run's identity."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pflbench.commands import option
from pflbench.errors import UsageError
from pflbench.spec import Precision
from pflbench.units import Interval, Shard, interval, pairs, parse_shard, size

Redo = Literal["missing", "failed", "always"]
Executor = Literal["local", "slurm", "ray"]


@dataclass(frozen=True)
class Execution:
    """Where and how to train. Fields are the options of `pflbench run`, with their help.

    Attributes:
        memory_limit: Bytes that one process may hold on the device. None: all there are.
        keep_models: Keep the global and personalized models that the last scores are of beside the results
            (`pflbench.load_models` reads them). A finished run is trained again for them only with `redo="always"`,
            which replaces its result.
        checkpoint_every: None: a stopped run begins anew.
        data_dir: Folder of the datasets. None: the data root.
        shard: The same part on every machine, whatever is stored. None: everything.
        slurm: Settings by submitit's names.

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

    def __post_init__(self) -> None:
        """Reject unknown values, and what belongs to another executor."""
        if self.redo not in get_args(Redo):
            raise UsageError(f"Unknown --redo {self.redo!r}; known: {', '.join(get_args(Redo))}.")
        if self.executor not in get_args(Executor):
            raise UsageError(f"Unknown --executor {self.executor!r}; known: {', '.join(get_args(Executor))}.")
        for name in ("jobs", "evaluate_every", "slots"):
            number = getattr(self, name)
            if number is not None and not (isinstance(number, int) and number >= 1):
                raise UsageError(f"`{name}` is {number!r}; expected a whole number from 1.")
        theirs = {
            "--slots": (self.slots, ("slurm", "ray")),
            "--gpus-per-task": (self.gpus_per_task, ("slurm", "ray")),
            "--slurm-partition": (self.slurm_partition, ("slurm",)),
            "--slurm": (self.slurm, ("slurm",)),
            "--ray-address": (self.ray_address, ("ray",)),
        }
        for name, (value, executors) in theirs.items():
            if value and self.executor not in executors:
                raise UsageError(f"{name} goes with --executor {' or '.join(executors)}.")

    def check(self, precision: Precision | None) -> None:
        """Check that the devices exist here and have the precision, and that `follow` can be. Raises `UsageError`."""
        if self.follow:
            from pflbench.running import follow

            follow.check(str(self.follow))
        if self.executor != "local":
            return  # whose machines may have others
        if self.device != "auto" or precision == "tf32":
            for device in choose_devices(self.device):
                if precision == "tf32":
                    check_on_device(precision, device)


def choose_devices(names: str) -> list[str]:
    """The devices of a list with commas. Raises `UsageError` for one that is not there, or a CPU among several."""
    devices = [choose_device(name.strip()) for name in names.split(",")]
    if len(devices) > 1 and (any(not name.startswith("cuda") for name in devices) or len(set(devices)) < len(devices)):
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
    except RuntimeError as error:
        raise UsageError(f"Unknown device {name!r}; known: auto, cpu, cuda, cuda:0, …") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"Device {name!r} is not supported; known: auto, cpu, cuda, cuda:0, …")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"There is no device {name!r}; this machine has {torch.cuda.device_count()} CUDA devices.")
    return f"cuda:{device.index or 0}" if device.type == "cuda" else name


def check_on_device(precision: Precision, device: str) -> None:
    """Warn of a precision that is slow on this device.

    Raises:
        UsageError: The device does not have it.
    """
    from pflbench.running.provenance import bf16_rate, has_bf16

    if precision == "tf32" and not device.startswith("cuda"):
        raise UsageError("--precision tf32 needs a GPU; on a CPU there are fp32, bf16 and fp64.")
    if precision != "bf16" or device != "cpu":
        return
    if not has_bf16():
        warnings.warn("this processor has no bf16 instructions, so --precision bf16 is slower than fp32.", stacklevel=2)
    elif (rate := bf16_rate()) < 1:
        warnings.warn(
            f"this processor multiplies in bf16 {rate:.1f} times as fast as in fp32, so --precision bf16 is slower.",
            stacklevel=2,
        )
