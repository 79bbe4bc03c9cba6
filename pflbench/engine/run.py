"""The state of one run during a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from pflbench.data.federation import Federation
from pflbench.engine.batches import Stream
from pflbench.engine.costs import Tally
from pflbench.errors import Diverged
from pflbench.result import Metric, Score
from pflbench.spec import RunSpec
from pflbench.typing import Params

Tree = Any


@dataclass
class Run:
    """A run under way: its spec and data, the server's and the clients' states, and what it has scored so far."""

    spec: RunSpec
    federation: Federation
    streams: list[Stream]
    server: Tree
    fresh: Tree
    """The state of a client that has not taken part yet."""
    cursors: np.ndarray
    states: dict[int, Tree] = field(default_factory=dict)
    left: dict[int, Params] = field(default_factory=dict)
    """Each client's local model, where it is scored."""
    latest: list[int] = field(default_factory=list)
    """Who took part in the last round."""
    scores: list[Score] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    """The costs of its local updates so far."""
    failure: Diverged | None = None
    unchecked: list[tuple[int, Tensor]] = field(default_factory=list)
    """Rounds whose server state is not checked yet, each with whether it is finite, a tensor."""

    def check(self) -> None:
        """Check the rounds that are unchecked: a server state that is not finite is the run's failure."""
        for index, finite in self.unchecked:
            if self.failure is None and not bool(finite):
                self.failure = Diverged(
                    f"diverged in round {index + 1} of {self.spec.rounds}: the server's parameters are not finite "
                    "any more; a smaller learning rate may help"
                )
        self.unchecked.clear()
