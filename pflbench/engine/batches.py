"""A client's static minibatches and what a participation draws from them, on the host.

CAFeMe's code shuffles a client's support once and cuts it into minibatches that are visited in the same order forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pflbench.data.federation import Federation
from pflbench.errors import UsageError
from pflbench.methods.base import Take
from pflbench.spec import RunSpec

Drawn = list["np.ndarray"]
"""One `Take`'s minibatches: row numbers, one array per minibatch."""


@dataclass(frozen=True)
class Stream:
    """One client's minibatches of row numbers, visited cyclically."""

    batches: tuple[np.ndarray, ...]

    def draw(self, takes: Sequence[Take], cursor: int) -> tuple[list[Drawn], int]:
        """What one participation is fed, and where the cursor stands afterwards."""
        drawn: list[Drawn] = []
        for take in takes:
            if take.epochs is not None:
                drawn.append(list(self.batches) * take.epochs)
                continue
            assert take.steps is not None
            mine = [self.batches[(cursor + i) % len(self.batches)] for i in range(take.steps)]
            cursor = (cursor + take.steps) % len(self.batches)
            drawn.append([np.concatenate(mine)] if take.merge else mine)
        return drawn, cursor


def support_streams(federation: Federation, spec: RunSpec) -> list[Stream]:
    """Every client's stream: batches of `spec.batch` rows in the client's static order.

    The tail is dropped or kept as `spec.tail` says. A client with less than one full batch gets one batch of all its
    rows (`tiny_client="single-batch"`); with `"error"` it raises `UsageError`.
    """
    found = []
    for client, rows in enumerate(federation.support):
        batches = support_batches(rows, spec)
        if not batches:
            if spec.tiny_client == "error":
                raise UsageError(
                    f"Client {client} has {len(rows)} support rows, fewer than one batch of {spec.batch}; "
                    'set tiny_client = "single-batch", a smaller batch, or another seed.'
                )
            batches = (rows,)
        found.append(Stream(batches))
    return found


def support_batches(rows: np.ndarray, spec: RunSpec) -> tuple[np.ndarray, ...]:
    """One client's support rows in minibatches; none if there is not even one full batch and tails are dropped."""
    return tuple(_cut(rows, spec.batch, keep_tail=spec.tail == "keep"))


def query_batches(federation: Federation, client: int, spec: RunSpec) -> Drawn:
    """A client's query minibatches: the tail is kept, but a lone last example is left out unless it is the only one."""
    batches = list(_cut(federation.query[client], spec.batch, keep_tail=True))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches.pop()
    return batches


def _cut(rows: np.ndarray, size: int, *, keep_tail: bool) -> Iterator[np.ndarray]:
    full = len(rows) // size * size
    yield from (rows[i : i + size] for i in range(0, full, size))
    if keep_tail and full < len(rows):
        yield rows[full:]
