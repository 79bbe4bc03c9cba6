"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.fedadam import FedAdam


@dataclass(frozen=True)
class Mine(FedAdam):
    """FedAdam of another lab."""

    mine: float = 0.5
