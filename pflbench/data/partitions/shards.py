"""Shards of rows sorted by label, as in CAFeMe's code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pflbench.data.partition import Rows, check_clients, legacy_stream
from pflbench.errors import UsageError


@dataclass(frozen=True)
class Shards:
    """Rows sorted by label, cut into equal shards; each client gets equally many at random (CAFeMe's code).

    Shards have floor(rows / shards) rows; what is left over, with the highest labels, belongs to nobody.
    """

    shards: int = 200

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Uses one draw, `RandomState(seed).permutation(shards)`."""
        check_clients(len(labels), clients)
        if self.shards < clients or self.shards % clients:
            raise UsageError(f"{self.shards} shards cannot be dealt evenly to {clients} clients: use a multiple of it.")
        if self.shards > len(labels):
            raise UsageError(f"{len(labels)} rows cannot be cut into {self.shards} shards.")
        size = len(labels) // self.shards
        in_order = np.argsort(labels, kind="stable")
        shards = in_order[: size * self.shards].reshape(self.shards, size)
        hands = legacy_stream(seed).permutation(self.shards).reshape(clients, -1)
        return [shards[hand].reshape(-1) for hand in hands]
