"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.per_fedavg import PerFedAvg


@dataclass(frozen=True)
class Mine(PerFedAvg):
    """PerFedAvg of another lab."""

    mine: float = 0.5
