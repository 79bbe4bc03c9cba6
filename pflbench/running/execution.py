"""`Execution`: where and how to train. None of it is part of a run's identity."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pflbench.errors import UsageError
from pflbench.spec import Precision
from pflbench.units import Interval, Shard

Redo = Literal["missing", "failed", "always"]
Executor = Literal["local", "slurm", "ray"]


@dataclass(frozen=True)
class Execution:
    """Where and how to train.

    Attributes:
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda` or `cuda:0`, or several GPUs: `cuda:0,cuda:1`.
        jobs: Processor cores to use, one run on each; a last run's clients share them. None: all; one for each GPU.
        memory_limit: Bytes that one process may hold on the device. None: all there are.
        deterministic: Only algorithms that give the same bits every time.
        fresh: Train also runs that came with pflbench and that the results folder has no other copy of.
        redo: What is trained besides runs without a result: nothing (`missing`), what failed before (`failed`), or
            everything (`always`).
        evaluate_every: Score after every so many rounds, too.
        checkpoint_every: How often a run under way is written down, so that it can be gone on with. None: never.
        keep_models: Whether the global and personalized models that the last scores are of are kept beside the results
            (`pflbench.load_models` reads them). A finished run is trained again for them only with `redo="always"`,
            and its result stays: where the scores are not the same to the last bit, no models are kept.
        follow: A file to which every round of every run adds a line of JSON, or `tensorboard:FOLDER`. None: none.
        fail_fast: Start nothing more after a run that fails.
        unchecked: Train methods of the user's own that were not held against the contract; every report says so.
        data_dir: Where the datasets are. None: the data root.
        shard: Only this part of what is asked for, the same on every machine whatever is stored. None: everything.
        wait: Whether to wait for what others train, and take it over if they die.
        executor: Who trains: this process and those that it starts (`local`), jobs of a Slurm cluster (`slurm`), or
            actors of a Ray cluster (`ray`).
        slots: How many jobs or actors train at a time. None: Slurm: 8; Ray: as many as the cluster has room for.
        gpus_per_task: GPUs, or of Ray the share of one, for each of them. None: none.
        slurm_partition: Where Slurm jobs run. None: the cluster's default.
        slurm: What else they are submitted with, by submitit's names: time (minutes), account, mem, constraint, ….
        ray_address: Of the Ray cluster; None: one on this machine, for this command only.

    Raises:
        UsageError: A value is none of those that there are.
    """

    device: str = "auto"
    jobs: int | None = None
    memory_limit: int | None = None
    deterministic: bool = False
    fresh: bool = False
    redo: Redo = "missing"
    evaluate_every: int | None = None
    checkpoint_every: Interval | None = None
    keep_models: bool = False
    follow: str | Path | None = None
    fail_fast: bool = False
    unchecked: bool = False
    data_dir: str | Path | None = None
    shard: Shard | None = None
    wait: bool = True
    executor: Executor = "local"
    slots: int | None = None
    gpus_per_task: float | None = None
    slurm_partition: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    ray_address: str | None = None

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
            "--follow": (self.follow, ("local", "slurm")),
            "--keep-models": (self.keep_models, ("local", "slurm")),
        }
        for option, (value, executors) in theirs.items():
            if value and self.executor not in executors:
                raise UsageError(f"{option} goes with --executor {' or '.join(executors)}.")

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
