"""What `pflbench speed` is asked to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pflbench.errors import UsageError, unknown

NETWORKS = ("cnn2", "lenet", "mlp", "cnn3")
PEERS = ("pfl",)
PRECISIONS = ("fp32", "bf16", "tf32")
SCALES = ("full", "tiny")
EXECUTIONS = ("loop", "vectorized")


@dataclass(frozen=True)
class Options:
    """What is measured, and for how long.

    Attributes:
        networks: The networks, one after the other.
        device: `cpu`, `cuda` or `cuda:0`.
        cores: Processor cores to use.
        precision: `fp32`; another one is timed beside it.
        peers: Other programs to time as well.
        passes: How often the contenders take turns.
        seconds: About how long one turn is.
        scale: `full`; `tiny` is for tests and never for numbers.
        execution: How the engine runs a client: None for `loop` on a processor and `vectorized` on a GPU.

    Raises:
        UsageError: One of these does not exist, or does not exist on this device.
    """

    networks: tuple[str, ...] = NETWORKS
    device: str = "cpu"
    cores: int = 1
    precision: str = "fp32"
    peers: tuple[str, ...] = ()
    passes: int = 5
    seconds: float = 3.0
    scale: str = "full"
    execution: str | None = None

    def __post_init__(self) -> None:
        chosen: list[tuple[str, str, Sequence[str]]] = [("network", name, NETWORKS) for name in self.networks]
        chosen += [("peer", name, PEERS) for name in self.peers]
        chosen += [("precision", self.precision, PRECISIONS), ("scale", self.scale, SCALES)]
        chosen += [("execution", self.execution, EXECUTIONS)] if self.execution else []
        for kind, value, known in chosen:
            if value not in known:
                raise unknown(kind, value, known)
        if self.precision == "tf32" and self.device == "cpu":
            raise UsageError("tf32 is a format of GPUs; on a processor there are fp32 and bf16.")

    @property
    def stacked(self) -> bool:
        """Whether the engine runs seeds as a stack on one device, instead of one process per core."""
        return (self.execution or ("loop" if self.device == "cpu" else "vectorized")) == "vectorized"

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread counts that programs which use threads are given. Small batches seldom scale past four."""
        return tuple(sorted({1, min(4, self.cores), self.cores})) if not self.stacked else (1,)

    @property
    def rehearsal(self) -> bool:
        """Whether the numbers say nothing about this machine, so that `pflbench plan` must not know of them."""
        return self.scale != "full" or self.execution is not None
