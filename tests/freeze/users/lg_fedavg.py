"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.lg_fedavg import LGFedAvg


@dataclass(frozen=True)
class Mine(LGFedAvg):
    """LGFedAvg of another lab."""

    mine: float = 0.5
