"""Which clients share a stack: of like length, so that little is padded, and so few that their memory suffices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_PADDING = 1.25
"""Padded cells of a stack over real ones, at most."""


class Shape(NamedTuple):
    """What one client needs of one `Draw`: minibatches, rows of the largest one, and rows in all."""

    steps: int
    rows: int
    total: int


def real(client: Sequence[Shape]) -> int:
    """Rows that a client's minibatches hold in all."""
    return sum(shape.total for shape in client)


@dataclass
class Chunk:
    """Clients of one stack, by number."""

    members: list[int] = field(default_factory=list)
    real_rows: int = 0
    widest: tuple[Shape, ...] = ()
    """Per `Draw`, the largest number of minibatches and of rows; every client of the stack gets as many."""

    def with_(self, number: int, client: tuple[Shape, ...]) -> Chunk:
        """This chunk and one more client."""
        widest = tuple(
            Shape(max(a.steps, b.steps), max(a.rows, b.rows), 0) for a, b in zip(self.widest, client, strict=True)
        )
        return Chunk([*self.members, number], self.real_rows + real(client), widest if self.members else client)

    @property
    def padded_rows(self) -> int:
        """Rows that the stack computes."""
        return len(self.members) * sum(shape.steps * shape.rows for shape in self.widest)


def plan(
    clients: Sequence[tuple[Shape, ...]], most: int | None = None, most_padding: float = MOST_PADDING
) -> list[Chunk]:
    """Chunks of clients, longest clients first, each as large as `most_padding` and `most` (None: any) allow.

    A client whose own minibatches are ragged may be above that alone; it then shares with none that make it worse.
    The order inside a chunk is that of the clients' numbers.
    """
    chunks: list[Chunk] = []
    for i in sorted(range(len(clients)), key=lambda i: (-real(clients[i]), i)):
        if chunks and (most is None or len(chunks[-1].members) < most):
            together = chunks[-1].with_(i, clients[i])
            if together.padded_rows <= most_padding * together.real_rows:
                chunks[-1] = together
                continue
        chunks.append(Chunk([i], real(clients[i]), clients[i]))
    for chunk in chunks:
        chunk.members.sort()
    return chunks
