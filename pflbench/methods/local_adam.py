"""State of a client's Adam between local updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from pflbench.hyper import hyper
from pflbench.methods.base import Empty
from pflbench.optim import Optimizer, State
from pflbench.typing import Part

Memory = TypeVar("Memory")
"""State of an optimizer."""


@dataclass(frozen=True)
class LocalAdam:
    """Hyperparameter `optimizer_state`: clients keep Adam's state over rounds (CAFeMe's code), or reset it."""

    optimizer_state: Literal["kept", "reset"] = hyper(
        "kept", "A client's Adam state over rounds: kept, or reset in each local update.", added=True
    )

    def kept(self, state: Memory) -> Memory | Empty:
        """Part of an optimizer's state that a client keeps until its next local update; `()` for nothing."""
        return () if self.optimizer_state == "reset" else state

    def begun(self, by: Optimizer, w: Part, kept: State) -> State:
        """The state that a local update of w begins with, from what was kept."""
        return by.init(w) if self.optimizer_state == "reset" else kept
