"""Partitions by one kind of skew: mixes of labels at equal sizes, sizes at equal mixes, or few classes for each client.

All draw from the streams `(seed, NAME, …)`, NAME being the partition's, and depend on nothing else but labels, clients
and the options. None needs a test split, or kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pflbench import rng
from pflbench.data.partition import Rows, check_clients
from pflbench.errors import UsageError
from pflbench.hyper import hyper


@dataclass(frozen=True)
class DirichletEqual:
    """Clients of equal sizes, each with another mix of labels from a Dirichlet draw (Acar et al., FedDyn).

    A client's mix of the C classes is one draw from the symmetric Dirichlet distribution of C parameters `alpha`, and
    each of its rows has a class drawn from that mix. Where more rows of a class are drawn than there are, who gets
    one is drawn from all requests, and the others draw again from their mix without that class. Source:
    arXiv:2111.04263 and its code, which deals one row after the other, each to a random client that still lacks some.
    Every row belongs to somebody; sizes differ by at most one, the first clients having the larger ones. (The
    partition "dirichlet" divides each class by a draw, which gives clients unequal sizes.)
    """

    alpha: float = hyper(0.3, "Concentration of a mix: a small one gives clients few classes each.", above=0)

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. A client's rows stand by class."""
        check_clients(len(labels), clients)
        names, remaining = np.unique(labels, return_counts=True)
        each, larger = divmod(len(labels), clients)
        lacking = np.where(np.arange(clients) < larger, each + 1, each)
        mixes = rng.stream(seed, "dirichlet-equal", "mixes").dirichlet(np.full(len(names), self.alpha), clients)
        random = rng.stream(seed, "dirichlet-equal", "counts")
        counts = np.zeros((clients, len(names)), dtype=np.int64)
        while lacking.any():  # a pass that leaves somebody lacking exhausts a class
            weights = mixes * (remaining > 0)
            lost = ~(weights.sum(1) > 0)  # mixes that underflowed for all classes that are left
            weights[lost] = remaining
            wanted = random.multinomial(lacking, weights / weights.sum(1, keepdims=True))
            for c in np.flatnonzero(wanted.sum(0) > remaining):
                wanted[:, c] = random.multivariate_hypergeometric(wanted[:, c], remaining[c])
            counts += wanted
            remaining = remaining - wanted.sum(0)
            lacking = lacking - wanted.sum(1)
        return _dealt(labels, names, counts, seed, "dirichlet-equal")


@dataclass(frozen=True)
class QuantitySkew:
    """Labels alike for all clients, sizes from a Dirichlet draw (NIID-Bench's quantity skew, arXiv:2102.02079).

    Rows are shuffled and cut into blocks, whose sizes are `minimum` and a share of what is left; the shares are one
    draw from the symmetric Dirichlet distribution of `beta`. NIID-Bench draws anew until every party has ten rows
    instead, which does not end with many clients. Every row belongs to somebody.
    """

    beta: float = hyper(0.5, "Concentration of the sizes: a small one gives few clients most of the rows.", above=0)
    minimum: int = hyper(10, "Rows that every client has.", least=1)

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. A client's rows stand in random order."""
        check_clients(len(labels), clients)
        free = len(labels) - clients * self.minimum
        if free < 0:
            raise UsageError(
                f"QuantitySkew: {clients} clients with at least {self.minimum} rows each need "
                f"{clients * self.minimum} rows; there are {len(labels)}. Use fewer clients or a smaller minimum."
            )
        shares = rng.stream(seed, "quantity-skew", "sizes").dirichlet(np.full(clients, self.beta))
        if not np.isfinite(shares).all():
            raise UsageError(f"QuantitySkew: no sizes can be drawn with beta = {self.beta}: use a smaller one.")
        cuts = np.minimum(np.cumsum(shares) * free, free).astype(np.int64)[:-1]
        cuts += self.minimum * np.arange(1, clients)
        order = rng.stream(seed, "quantity-skew", "rows").permutation(len(labels))
        return np.split(order, cuts)


@dataclass(frozen=True)
class ClassesPerClient:
    """Each client so many different classes, each class divided equally among its holders (NIID-Bench, "#C = k").

    Client i holds class i mod C, in the order of the C labels, and others drawn without replacement, all equally
    likely (arXiv:2102.02079 and its code). With fewer clients than classes, where NIID-Bench may leave classes to
    nobody, clients first deal all classes among themselves in turn, as far as each may hold so many. The rows of a
    class are shuffled and cut into blocks as equal as possible. Rows of classes that nobody holds are not used. (The
    partition "class-shards" deals a test split, too, and may give a client a class twice.)
    """

    classes: int = hyper(2, "Classes that a client has.", least=1)

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. A client's rows stand by class."""
        check_clients(len(labels), clients)
        names, sizes = np.unique(labels, return_counts=True)
        if self.classes > len(names):
            raise UsageError(
                f"ClassesPerClient: a client cannot hold {self.classes} classes, there are {len(names)}: use fewer."
            )
        owned = self._hands(len(names), clients, rng.stream(seed, "classes-per-client", "classes"))
        holders = owned.sum(0)
        counts = np.zeros(owned.shape, dtype=np.int64)
        for c in np.flatnonzero(holders):
            if sizes[c] < holders[c]:
                raise UsageError(
                    f"ClassesPerClient: {holders[c]} clients hold class {names[c]}, which has {sizes[c]} rows: use "
                    "fewer clients, or fewer classes each."
                )
            each, larger = divmod(int(sizes[c]), int(holders[c]))
            counts[owned[:, c], c] = np.where(np.arange(holders[c]) < larger, each + 1, each)
        return _dealt(labels, names, counts, seed, "classes-per-client")

    def _hands(self, classes: int, clients: int, random: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Classes that each client holds, bool ["clients", "classes"]."""
        owned = np.zeros((clients, classes), dtype=np.bool_)
        for client in range(clients):
            owned[client, list(range(client, classes, clients))[: self.classes] or [client % classes]] = True
            others = np.flatnonzero(~owned[client])
            owned[client, random.choice(others, self.classes - owned[client].sum(), replace=False)] = True
        return owned


def _dealt(labels: Rows, names: Sequence[int] | Rows, counts: Rows, seed: int, partition: str) -> list[Rows]:
    """The rows of each client, drawn at random. `counts`: its rows of each class, int64 ["clients", "classes"]."""
    owned: list[list[Rows]] = [[] for _ in counts]
    for name, of_clients in zip(np.asarray(names).tolist(), counts.T, strict=True):
        rows = rng.stream(seed, partition, "class", name).permutation(np.flatnonzero(labels == name))
        for part, block in zip(owned, np.split(rows, np.cumsum(of_clients)), strict=False):
            part.append(block)
    return [np.concatenate(part) for part in owned]
