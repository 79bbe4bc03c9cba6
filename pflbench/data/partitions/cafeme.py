"""CAFeMe's partitions: shards of rows sorted by label, Dirichlet draws, one kind of examples each, natural clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflbench import rng
from pflbench.data.partition import Hand, Rows, check_clients, legacy_stream, shuffled
from pflbench.errors import UsageError
from pflbench.hyper import hyper


@dataclass(frozen=True)
class Shards:
    """Rows sorted by label, cut into equal shards; each client gets equally many at random (CAFeMe's code).

    Shards have floor(rows / shards) rows; what is left over, with the highest labels, belongs to nobody.
    """

    shards: int = hyper(200, "Number of shards, a multiple of the clients.", least=1)

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Uses one draw, `RandomState(seed).permutation(shards)`."""
        check_clients(len(labels), clients)
        if self.shards < clients or self.shards % clients:
            raise UsageError(
                f"{self.shards} shards cannot be dealt evenly to {clients} clients: use a multiple of {clients}."
            )
        if self.shards > len(labels):
            raise UsageError(f"{len(labels)} rows cannot be cut into {self.shards} shards.")
        size = len(labels) // self.shards
        in_order = np.argsort(labels, kind="stable")
        shards = in_order[: size * self.shards].reshape(self.shards, size)
        hands = legacy_stream(seed).permutation(self.shards).reshape(clients, -1)
        return [shards[hand].reshape(-1) for hand in hands]


@dataclass(frozen=True)
class Dirichlet:
    """Each class divided by a Dirichlet draw; clients at the mean size get no more (CAFeMe's code).

    Follows FedLab's `hetero_dir` draw by draw: a client that already holds rows / clients rows gets none of the next
    class, and the whole assignment is drawn again while a client has fewer than `minimum` rows.
    """

    alpha: float = hyper(0.3, "Concentration of a draw: a small one gives clients few classes each.", above=0)
    minimum: int = hyper(10, "Rows that every client has.", least=1)

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Raises `UsageError` where draws give no such partition, see `dirichlet_split`."""
        check_clients(len(labels), clients)
        random = legacy_stream(seed)
        split = dirichlet_split("Dirichlet", labels, clients, self.alpha, self.minimum, random)
        for rows in split:
            random.shuffle(rows)
        return split


ATTEMPTS = 1000
"""Most draws of a Dirichlet split."""
WORK, PER_CLASS = 10**8, 1000
"""Most work of all draws of a split, some seconds: each of its rows and shares counts one, each class 1000 besides."""


def dirichlet_split(
    partition: str, labels: Rows, clients: int, alpha: float, minimum: int, random: np.random.RandomState
) -> list[Rows]:
    """Rows of each client: each class divided by a Dirichlet draw, drawn anew until all have `minimum` rows.

    The number of draws depends on the number of rows, classes and clients alone. `partition` is its name in messages.

    Raises:
        UsageError: There are too few rows, or no draw gave each client enough of them.
    """
    if clients * minimum > len(labels):
        raise UsageError(
            f"{partition}: {clients} clients with at least {minimum} rows each need {clients * minimum} rows; there "
            f"are {len(labels)}. Use fewer clients or a smaller minimum."
        )
    attempts = max(1, min(ATTEMPTS, WORK // (len(labels) + (int(labels.max()) + 1) * (clients + PER_CLASS))))
    for _ in range(attempts):
        if (split := _divided(labels, clients, alpha, minimum, random)) is not None:
            return split
    raise UsageError(
        f"{partition}: with alpha = {alpha}, {attempts} draws over {len(labels)} rows never gave each of {clients} "
        f"clients {minimum} rows. Use fewer clients, a larger alpha or a smaller minimum."
    )


def _divided(
    labels: Rows, clients: int, alpha: float, minimum: int, random: np.random.RandomState
) -> list[Rows] | None:
    """Rows of each client by one draw; None where a client has fewer than `minimum`, or no client can have a class."""
    pieces: list[tuple[Rows, Rows]] = []
    sizes = np.zeros(clients, dtype=np.int64)
    for k in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == k)
        random.shuffle(rows)
        with np.errstate(invalid="ignore"):  # a draw of a small alpha underflows to infinite shares
            share = random.dirichlet(np.repeat(alpha, clients)) * (sizes < len(labels) / clients)
            total = share.sum()
        if not 0 < total < np.inf:  # also NaN
            return None
        # Truncation and the last client taking the rest are part of the published partition.
        cuts = (np.cumsum(share / total) * len(rows)).astype(np.int64)[:-1]
        sizes += np.diff(cuts, prepend=0, append=len(rows))
        pieces.append((rows, cuts))
    if sizes.min() < minimum:
        return None
    return [np.concatenate(parts) for parts in zip(*(np.split(rows, cuts) for rows, cuts in pieces), strict=True)]


@dataclass(frozen=True)
class Kinds:
    """Each kind (rotation group) divided among equally many clients: one kind per client (CAFeMe, Fig. 3, "None").

    Clients 0, 1, … share kind 0, the next ones kind 1, and so on. Within a kind, rows stand in the order of
    `shuffled(rows, seed)`: for rotation groups of the same seed, the order of the chunk itself.
    """

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Parts differ by at most one row where a kind does not divide evenly."""
        check_clients(len(labels), clients)
        if kind is None:
            raise UsageError("The partition 'kinds' needs a dataset whose samples have kinds, such as rmnist.")
        kinds = np.unique(kind)
        if clients % (number := len(kinds)):
            raise UsageError(f"{clients} clients cannot share {number} kinds evenly: use a multiple of {number}.")
        each = clients // len(kinds)
        order = shuffled(len(labels), seed)
        owned = [part for k in kinds for part in np.array_split(order[kind[order] == k], each)]
        if min(len(rows) for rows in owned) == 0:
            raise UsageError(f"A kind has fewer rows than the {each} clients that share it: use fewer clients.")
        return owned


@dataclass(frozen=True)
class Natural:
    """One kind of examples (a writer, an owner) for each client: kinds large enough, as many as clients, drawn.

    The draw is that of the stream `(seed, "natural")`, and clients are numbered as drawn. Where all kinds that are
    large enough take part, they are numbered in the order of kinds, and nothing is drawn.

    With `query = "partition"` a client adapts on its kind's training rows and is scored on its kind's test rows, and
    kinds without a test row are left out.
    """

    minimum: int = hyper(1, "Training rows that a kind must have to take part.", least=1)

    shares: ClassVar[bool] = False

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. A client's rows stand in the order of the dataset."""
        return [rows for rows, _ in self._drawn(kind, 0, clients, seed)]

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises `UsageError`, too, if there is no test split."""
        if not test:
            raise UsageError("natural deals a test split, too: use a dataset that has one, or a share as query.")
        return self._drawn(kind, test, clients, seed)

    def _drawn(self, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """Each client's training and test rows; `test` of them in all, none if 0."""
        if kind is None:
            raise UsageError("The partition 'natural' needs a dataset whose examples have kinds, such as femnist.")
        training = len(kind) - test
        names, every = np.unique(kind, return_inverse=True)
        sizes, tested = (np.bincount(part, minlength=len(names)) for part in (every[:training], every[training:]))
        fit = np.flatnonzero((sizes >= self.minimum) & (tested > 0 if test else True))
        if not 1 <= clients <= len(fit):
            and_tested = " and a test row" if test else ""
            new = np.count_nonzero(sizes == 0)
            by_client = (
                f" {new} kinds have test rows only: clients without training rows are not supported. Split each kind's "
                "rows in two (LEAF: -t sample instead of -t user)."
            )
            raise UsageError(
                f"natural: {clients} clients are not possible, as {len(fit)} of {len(names)} kinds have at least "
                f"{self.minimum} training rows{and_tested}.{by_client if new else ''}"
            )
        if clients < len(fit):
            fit = rng.stream(seed, "natural").permutation(fit)[:clients]
        order = np.argsort(every, kind="stable")
        owned = np.split(order, np.cumsum(sizes + tested)[:-1])
        return [(owned[k][: sizes[k]], owned[k][sizes[k] :]) for k in fit.tolist()]
