"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg of another lab."""

    mine: float = 0.5
