"""One kind of examples per client, as in CAFeMe's Figure 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pflbench.data.partition import Rows, check_clients, shuffled
from pflbench.errors import UsageError


@dataclass(frozen=True)
class Kinds:
    """Each kind (rotation group) divided among equally many clients: one kind per client (CAFeMe, Fig. 3, "None").

    Clients 0, 1, … share kind 0, the next ones kind 1, and so on. Within a kind, rows stand in the order of
    `shuffled(rows, seed)`: for rotation groups of the same seed, the order of the chunk itself.
    """

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Parts differ by at most one row where a kind does not divide evenly."""
        check_clients(len(labels), clients)
        if kind is None:
            raise UsageError("The partition 'kinds' needs a dataset whose samples have kinds, such as rmnist.")
        kinds = np.unique(kind)
        if clients % len(kinds):
            raise UsageError(f"{clients} clients cannot share {len(kinds)} kinds evenly: use a multiple of it.")
        each = clients // len(kinds)
        order = shuffled(len(labels), seed)
        held = [part for k in kinds for part in np.array_split(order[kind[order] == k], each)]
        if min(len(rows) for rows in held) == 0:
            raise UsageError(f"A kind has fewer rows than the {each} clients that share it: use fewer clients.")
        return held
