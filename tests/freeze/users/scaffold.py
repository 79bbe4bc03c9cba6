"""A built-in method with one other value."""

from dataclasses import dataclass

from pflbench.methods.scaffold import Scaffold


@dataclass(frozen=True)
class Mine(Scaffold):
    """Scaffold of another lab."""

    mine: float = 0.5
