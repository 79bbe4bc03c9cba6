"""The uploads and states of one round, looped or stacked."""

from __future__ import annotations

import math
from typing import Any

from torch.utils import _pytree as pytree

from pflbench.engine.client_map import Execution
from pflbench.engine.simulate import Setup, Simulation
from pflbench.testing import tiny_federation, tiny_network, tiny_spec


def one_round(method: Any, execution: Execution) -> dict[int, tuple[Any, Any]]:
    """(upload, state) of each training client of `tiny_federation(0)` after round 0."""
    stacked = []

    def server(state: Any, uploads: Any, n: Any, round: Any) -> Any:
        stacked.append(uploads)
        return state

    vars(method)["server"] = server
    setup = Setup(execution=execution, most_padding=math.inf)
    simulation = Simulation([tiny_spec(cohort=6)], [tiny_federation(0)], method, tiny_network(), setup)
    simulation.step()
    (run,) = simulation.runs
    return {
        client: (pytree.tree_map(lambda u, i=i: u[i], stacked[-1]), run.state(client))
        for i, client in enumerate(run.latest)
    }
