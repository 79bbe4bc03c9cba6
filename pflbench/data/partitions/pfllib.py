"""PFLlib's two splits (arXiv:2312.04992, `dataset/utils/dataset_utils.py`), draw by draw, with its seed of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pflbench.data.partition import Hand, Rows, check_clients, legacy_stream
from pflbench.data.partitions.cafeme import dirichlet_split
from pflbench.errors import UsageError
from pflbench.hyper import hyper


@dataclass(frozen=True)
class PFLlib:
    """The pool dealt as support and query by a seed that is not the run's, in the order of PFLlib's files.

    "dirichlet": each class divided by a Dirichlet draw, as by the partition "dirichlet", without its shuffle at the
    end. "pathological": the rows of a class, in the order of the pool, among the first clients that still lack classes;
    all but the last of these hold uniformly drawn numbers of them, and the last one what is left. A class that comes
    when no client lacks one is nobody's. Then each client's rows are permuted: what `train_ratio` leaves, the first
    ones, is the query. One stream of NumPy's legacy generator draws all. A Dirichlet draw whose shares all vanish is
    begun anew, where PFLlib goes on with undefined numbers.

    PFLlib's minimum of 40 rows is batch / (1 - train_ratio), or less with few rows. A pathological client has at least
    that share of a class: one over the number of classes.
    """

    kind: Literal["dirichlet", "pathological"] = hyper("dirichlet", "Kind of the split.")
    alpha: float = hyper(0.1, "Concentration of a Dirichlet draw.", above=0)
    classes: int = hyper(2, "Classes of a pathological client.", least=1)
    split_seed: int = hyper(1, "Seed of the stream; the published splits have 1.", least=0)
    minimum: int = hyper(40, "Rows that a Dirichlet client has at least.", least=1)
    train_ratio: float = hyper(0.75, "Share of a client's rows that is support.", above=0, below=1)
    first: int | None = hyper(
        None, "Most support rows of a client, its first ones; query rows in proportion. none: all.", least=1
    )

    shares: ClassVar[bool] = False
    ordered: ClassVar[bool] = True

    def divided(self, examples: int, clients: int) -> int:
        """Number of support rows that all clients hold together, out of a pool of `examples`; nothing is dealt."""
        return min(math.floor(examples * self.train_ratio), clients * (self.first or examples))

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises `UsageError`, too, for a dataset with a test split of its own: PFLlib merges the two."""
        if test:
            raise UsageError("pfllib divides training and test rows alike: use a dataset with merged = true.")
        check_clients(len(labels), clients)
        random = legacy_stream(self.split_seed)
        if self.kind == "dirichlet":
            split = dirichlet_split("PFLlib", labels, clients, self.alpha, self.minimum, random)
        else:
            split = self._pathological(labels, clients, random)
        return [self._hand(rows, random) for rows in split]

    def _pathological(self, labels: Rows, clients: int, random: np.random.RandomState) -> list[Rows]:
        names = int(labels.max()) + 1
        most = math.ceil(clients / names * self.classes)
        lacking = np.full(clients, self.classes)
        owned = [np.empty(0, dtype=np.int64)] * clients
        for k in range(names):
            rows, holders = np.flatnonzero(labels == k), np.flatnonzero(lacking)[:most].tolist()
            if not holders:  # clients have their classes, and the others are nobody's
                break
            each = len(rows) / len(holders)
            low, high = int(max(each / 10, self.minimum / names)), int(each)
            if len(holders) > 1 and low >= high:
                raise UsageError(
                    f"PFLlib: {len(holders)} clients share the {len(rows)} rows of class {k}, too few for sizes from "
                    f"{low} on: use fewer clients, more classes, or a smaller minimum."
                )
            sizes = random.randint(low, max(high, low + 1), len(holders) - 1)
            for client, piece in zip(holders, np.split(rows, np.cumsum(sizes)), strict=True):
                owned[client] = np.concatenate([owned[client], piece])
            lacking[holders] -= 1
        return owned

    def _hand(self, rows: Rows, random: np.random.RandomState) -> Hand:
        order = rows[random.permutation(len(rows))]
        scored = len(rows) - math.floor(self.train_ratio * len(rows))
        support, query = order[scored:], order[:scored]
        if self.first is None:
            return support, query
        tested = int(self.first * (1 - self.train_ratio) / self.train_ratio + 1e-9)
        return support[: self.first], query[: max(1, tested)]
