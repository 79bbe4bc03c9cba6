"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.fedec import FedEC


@dataclass(frozen=True)
class Mine(FedEC):
    """FedEC of another lab."""

    mine: float = 0.5
