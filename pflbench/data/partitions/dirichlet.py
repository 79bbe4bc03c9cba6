"""Classes divided by Dirichlet draws, as in CAFeMe's code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflbench.data.partition import Rows, check_clients, legacy_stream
from pflbench.errors import UsageError


@dataclass(frozen=True)
class Dirichlet:
    """Each class divided by a Dirichlet draw; clients at the mean size get no more (CAFeMe's code).

    Follows FedLab's `hetero_dir` draw by draw: a client that already holds rows / clients rows gets none of the next
    class, and the whole assignment is drawn again while a client has fewer than `minimum` rows.
    """

    alpha: float = 0.3
    minimum: int = 10
    attempts: ClassVar[int] = 1000

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise UsageError(f"Dirichlet: alpha must be positive and finite, not {self.alpha}.")
        if self.minimum < 1:
            raise UsageError(f"Dirichlet: minimum must be at least 1, not {self.minimum}.")

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Gives up with `UsageError` after `attempts` draws."""
        check_clients(len(labels), clients)
        if clients * self.minimum > len(labels):
            raise UsageError(
                f"Dirichlet: {clients} clients with at least {self.minimum} rows each need {clients * self.minimum} "
                f"rows; there are {len(labels)}. Use fewer clients or a smaller minimum."
            )
        random = legacy_stream(seed)
        for _ in range(self.attempts):
            held = self._attempt(labels, clients, random)
            if held is not None and min(len(rows) for rows in held) >= self.minimum:
                for rows in held:
                    random.shuffle(rows)
                return held
        raise UsageError(
            f"Dirichlet: with alpha = {self.alpha}, {self.attempts} draws over {len(labels)} rows never gave each of "
            f"{clients} clients {self.minimum} rows. Use fewer clients, a larger alpha or a smaller minimum."
        )

    def _attempt(self, labels: Rows, clients: int, random: np.random.RandomState) -> list[Rows] | None:
        """One assignment, or None where every client with a share of some class is already full."""
        pieces: list[list[Rows]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients, dtype=np.int64)
        for k in range(int(labels.max()) + 1):
            rows = np.flatnonzero(labels == k)
            random.shuffle(rows)
            share = random.dirichlet(np.repeat(self.alpha, clients)) * (sizes < len(labels) / clients)
            total = share.sum()
            if not total > 0:  # also NaN, from a draw that underflowed
                return None
            # Truncation and the last client taking the rest are part of the published partition.
            cuts = (np.cumsum(share / total) * len(rows)).astype(np.int64)[:-1]
            for client, piece in enumerate(np.split(rows, cuts)):
                pieces[client].append(piece)
                sizes[client] += len(piece)
        return [np.concatenate(mine) for mine in pieces]
