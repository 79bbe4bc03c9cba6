"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.ditto import Ditto


@dataclass(frozen=True)
class Mine(Ditto):
    """Ditto of another lab."""

    mine: float = 0.5
