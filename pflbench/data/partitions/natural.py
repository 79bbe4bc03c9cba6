"""The partition that the data come with: one client for each writer, owner, or other kind of examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflbench import rng
from pflbench.data.partition import Hand, Rows
from pflbench.errors import UsageError


@dataclass(frozen=True)
class Natural:
    """One kind of examples (a writer, an owner) for each client: kinds large enough, as many as clients, drawn.

    The draw is that of the stream `(seed, "natural")`, and clients are numbered as drawn. Where all kinds that are
    large enough take part, they are numbered in the order of kinds, and nothing is drawn.

    With `query = "partition"` a client adapts on its kind's training rows and is scored on its kind's test rows, and
    kinds without a test row are left out.

    Attributes:
        minimum: Training rows that a kind must have to take part.
    """

    minimum: int = 1

    shares: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise UsageError(f"Natural: minimum must be at least 1, not {self.minimum}.")

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. A client's rows stand in the order of the dataset."""
        return [own for own, _ in self._drawn(kind, 0, clients, seed)]

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises `UsageError`, too, if there is no test split."""
        if not test:
            raise UsageError("natural deals a test split, too: use a dataset that has one, or a share as query.")
        return self._drawn(kind, test, clients, seed)

    def _drawn(self, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """Each client's training and test rows; `test` of them in all, none if 0."""
        if kind is None:
            raise UsageError("The partition 'natural' needs a dataset whose examples have kinds, such as femnist.")
        own = len(kind) - test
        names, every = np.unique(kind, return_inverse=True)
        sizes, tested = (np.bincount(part, minlength=len(names)) for part in (every[:own], every[own:]))
        fit = np.flatnonzero((sizes >= self.minimum) & (tested > 0 if test else True))
        if not 1 <= clients <= len(fit):
            and_tested = " and a test row" if test else ""
            raise UsageError(
                f"natural: {clients} clients are not possible, as {len(fit)} of {len(names)} kinds have at least "
                f"{self.minimum} training rows{and_tested}."
            )
        if clients < len(fit):
            fit = rng.stream(seed, "natural").permutation(fit)[:clients]
        order = np.argsort(every, kind="stable")
        held = np.split(order, np.cumsum(sizes + tested)[:-1])
        return [(held[k][: sizes[k]], held[k][sizes[k] :]) for k in fit.tolist()]
