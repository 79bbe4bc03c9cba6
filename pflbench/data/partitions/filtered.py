"""pFedVEM's concept drift with the filter of test images that the authors' code has by mistake."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflbench.data.partition import Hand, Rows
from pflbench.data.partitions.slicing import RandomSlicing
from pflbench.errors import UsageError


@dataclass(frozen=True)
class FilteredSlicing:
    """`random-slicing` by concepts; of a client's test rows those whose superclass is the number of a subclass it has.

    So does pFedVEM's code, which compares superclasses (0 to 19 on CIFAR-100) with the client's list of subclasses (0
    to 99). About a fifth of the test rows of the client's subclasses is left. Where none is, which stops that code by a
    division by zero, the client keeps them all.

    Attributes:
        rows: As `random-slicing` has it.
    """

    rows: int | None = None

    shares: ClassVar[bool] = True

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`: supports are those of `RandomSlicing` with `query = "test-split"`. Clients share test rows.

        Raises:
            UsageError: As `RandomSlicing`, or there is no test split, or it has none of a client's subclasses.
        """
        if not test:
            raise UsageError("filtered-slicing leaves out test rows: use a dataset that has a test split.")
        own = len(labels) - test
        held = RandomSlicing("concepts", rows=self.rows)(
            labels[:own], kind if kind is None else kind[:own], clients, seed
        )
        assert kind is not None  # or there was no such slicing
        tested = np.arange(own, len(labels), dtype=np.int64)
        hands = []
        for rows in held:
            mine = tested[np.isin(kind[tested], kind[rows])]
            left = mine[np.isin(labels[mine], kind[rows])]
            hands.append((rows, left if len(left) else mine))
        return hands
