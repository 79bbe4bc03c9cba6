"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.fedrep import FedRep


@dataclass(frozen=True)
class Mine(FedRep):
    """FedRep of another lab."""

    mine: float = 0.5
