"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.pfedvem import PFedVEM


@dataclass(frozen=True)
class Mine(PFedVEM):
    """PFedVEM of another lab."""

    mine: float = 0.5
