"""Partitions: they choose the rows of the pool that each client holds; a dealer also those that it is scored on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pflbench.errors import UsageError

Rows = npt.NDArray[np.int64]
Hand = tuple[Rows, Rows]
"""Support and query of a client: row numbers into the whole pool, int64, disjoint."""


class Partition(Protocol):
    """A frozen dataclass whose fields are its options."""

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """One int64 array of row numbers per client, pairwise disjoint; labels and kinds are int64 ["pool"].

        Raises:
            UsageError: No such partition exists.
        """

    def files(self, root: Path) -> Iterable[Path]:
        """The files or folders that it reads, for whatever seed; a user's class may have it.

        What they hold is then part of a run's identity. Without it, what the partition deals with the run's seed is.
        """


@runtime_checkable
class Dealer(Protocol):
    """A partition that deals each client its support and its query, for runs with `query = "partition"`.

    A frozen dataclass whose fields are its options. It is not called as a `Partition` is. With a class variable
    `ordered = True`, a client's support stays in the order in which it is dealt; else the run's seed draws the order.
    """

    @property
    def shares(self) -> bool:
        """True if clients may hold the same rows."""

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """Support and query of every client, neither of them empty, no row twice. Raises as a `Partition`.

        `test`: number of rows at the pool's end that are the dataset's test split; they are nobody's support.
        """


def legacy_stream(seed: int) -> np.random.RandomState:
    """The generator the published partitions were drawn from. Raises `UsageError` for a seed it cannot take."""
    if not 0 <= seed < 2**32:
        raise UsageError(f"Seed {seed} is outside 0..{2**32 - 1}, the range of numpy's legacy generator.")
    return np.random.RandomState(seed)


def shuffled(n: int, seed: int) -> Rows:
    """0..n-1 in the order of `RandomState(seed).shuffle`; int64 ["n"]."""
    order = np.arange(n, dtype=np.int64)
    legacy_stream(seed).shuffle(order)
    return order


def check_clients(rows: int, clients: int) -> None:
    """Raise `UsageError` unless every client can have a row."""
    if not 1 <= clients <= rows:
        raise UsageError(f"{rows} rows cannot be divided among {clients} clients.")
