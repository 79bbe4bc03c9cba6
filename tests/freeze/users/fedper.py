"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.fedper import FedPer


@dataclass(frozen=True)
class Mine(FedPer):
    """FedPer of another lab."""

    mine: float = 0.5
