"""Uploads as they came, handed to all clients, which choose among others' models (FedFomo, FedAMP, FedPAC)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Stack(NamedTuple):
    """A row ["params"] for each training client: the last round's uploads in the order of their sums, then empty rows.

    `present` ["clients"] is 1 for an upload's row, 0 for an empty one. No row names its client: a client that needs
    its row compares with its state.
    """

    rows: Tensor
    present: Tensor

    @classmethod
    def full(cls, row: Tensor, clients: int) -> Stack:
        """The same row for each client."""
        return cls(row.expand(clients, -1).clone(), row.new_ones(clients))

    def replaced(self, uploads: Tensor) -> Stack:
        """These uploads ["cohort", "params"] in place of the rows."""
        empty, order = len(self.rows) - len(uploads), uploads.sum(-1).argsort()
        return Stack(
            torch.cat([uploads[order], uploads.new_zeros(empty, uploads.shape[-1])]),
            torch.cat([uploads.new_ones(len(uploads)), uploads.new_zeros(empty)]),
        )
