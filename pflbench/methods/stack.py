"""Uploads as they came, handed to all clients: what a client reads that chooses among others' models itself."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pflbench.typing import Float, Tensor


class Stack(NamedTuple):
    """A row for each training client: the last round's uploads in the order of their sums, then empty rows.

    `there` is 1 for an upload's row, 0 for an empty one. No row says whose it is: who needs to know one's own finds it
    by what it has kept.
    """

    rows: Float[Tensor, "clients params"]
    there: Float[Tensor, "clients"]

    @classmethod
    def full(cls, row: Tensor, clients: int) -> Stack:
        """The same row for each client."""
        return cls(row.expand(clients, -1).clone(), row.new_ones(clients))

    def replaced(self, uploads: Float[Tensor, "cohort params"]) -> Stack:
        """These uploads in place of what there was."""
        empty, order = len(self.rows) - len(uploads), uploads.sum(-1).argsort()
        return Stack(
            torch.cat([uploads[order], uploads.new_zeros(empty, uploads.shape[-1])]),
            torch.cat([uploads.new_ones(len(uploads)), uploads.new_zeros(empty)]),
        )
