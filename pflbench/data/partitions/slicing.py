"""pFedVEM's partitions: rows cut at random places, so that clients have very unequal sizes, and the law of these.

A *type* is what a client holds or does not: a label, or a fine class where labels are superclasses. The rows of every
type are cut at random places into as many blocks as there are clients that hold it, and each of them gets one block.

`RandomSlicing` and `PairSlicing` draw from the streams `(seed, "types")`, which types a client holds, and
`(seed, "slices")`, which rows of them; they depend on nothing else but labels, kind, clients and the options. A
client's rows stand by type, ascending.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from pflbench import rng
from pflbench.data.partition import Rows, check_clients
from pflbench.errors import UsageError
from pflbench.hyper import hyper


@dataclass(frozen=True)
class RandomSlicing:
    """Every type cut at the same random places; clients in groups that share all types (pFedVEM's Tables 1-3, 6).

    The paper's wording would allow cuts drawn anew for every type; its statements about the sizes and its code have
    one set of cuts for all. So a client has equally many rows of each of its types, and the clients of a group, who
    divide the types among themselves, have equal sizes. That takes types of equal counts: where they differ, each
    type keeps as many rows as the smallest one has, the first after the shuffle, and the others belong to nobody.
    Nothing is lost on the paper's datasets.

    Skew "labels": types are labels; two clients share them, half each, divided again for every two. "concepts": labels
    are superclasses, types are their K subclasses (`kind`); K clients share them, one subclass of every superclass
    each. "none": each client has all types, which are the subclasses if there are any (Table 2).

    Cuts "random": different positions, all sets of them equally likely. "equal": evenly spaced (Table 3), so that
    blocks differ by at most one row. Fewer `rows` of the same seed are a subset of more (Table 6).
    """

    skew: Literal["labels", "concepts", "none"] = hyper("labels", "Types that a client lacks.")
    cuts: Literal["random", "equal"] = hyper("random", "Positions at which the rows of a type are cut.")
    rows: int | None = hyper(None, "Rows in all, equally many of every type; none: all.", least=1)

    def divided(self, examples: int, clients: int) -> int:
        """Number of rows that all clients hold together, out of a pool of `examples`; nothing is dealt."""
        return self.rows or examples

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Gives every row of equally frequent types to somebody, unless `rows` limits them."""
        check_clients(len(labels), clients)
        if self.skew == "labels":
            types = labels
            hands = _halves(np.unique(labels), clients, rng.stream(seed, "types"))
        elif self.skew == "concepts":
            if kind is None:
                raise UsageError("Concept drift needs a dataset whose labels have subclasses, such as cifar100.")
            types = kind
            hands = _subclasses(labels, kind, clients, rng.stream(seed, "types"))
        else:
            types = labels if kind is None else kind
            hands = [np.unique(types)] * clients

        piles = rows_by_type(types)
        # Hands are equally large and types equally popular, so this division has no remainder.
        holders = clients * len(hands[0]) // len(piles)
        size = self._size(len(piles), min(map(len, piles.values())), holders)
        random = rng.stream(seed, "slices")
        shuffled = {name: random.permutation(pile)[:size] for name, pile in piles.items()}
        cuts = random_cuts(size, holders, random) if self.cuts == "random" else np.arange(1, holders) * size // holders
        blocks = {name: np.split(pile, cuts) for name, pile in shuffled.items()}
        return [np.concatenate([blocks[name].pop() for name in sorted(hand.tolist())]) for hand in hands]

    def _size(self, types: int, smallest: int, holders: int) -> int:
        """Number of rows of each type that are dealt. Raises `UsageError` where there are too few."""
        size = smallest
        if self.rows is not None:
            size, rest = divmod(self.rows, types)
            if rest or size > smallest:
                raise UsageError(
                    f"rows = {self.rows} is not possible: with {types} types of at least {smallest} rows each it "
                    f"must be a multiple of {types} up to {smallest * types}."
                )
        if holders > size:
            raise UsageError(
                f"{holders} clients share every type, and there are only {size} rows of one: use fewer clients."
            )
        return size

    def lengths(self, types: int, per_type: int, holders: int, seed: int) -> Rows:
        """Number of rows of each of their types that clients have: the holders of a type in order, int64 ["holders"].

        Without dealing any: there are so many types of so many rows each, and so many clients hold each of them.
        """
        size = self._size(types, per_type, holders)
        if self.cuts == "random":
            cuts = random_cuts(size, holders, deepcopy(_after_shuffles(seed, types, per_type)))
        else:
            cuts = np.arange(1, holders) * size // holders
        return np.diff(cuts, prepend=0, append=size)[::-1]


@lru_cache(maxsize=2048)
def _after_shuffles(seed: int, types: int, per_type: int) -> np.random.Generator:
    """The stream of slices once the rows of every type are shuffled, as it is whoever they are cut for."""
    random, pile = rng.stream(seed, "slices"), np.arange(per_type)
    for _ in range(types):
        random.permutation(pile)
    return random


def _halves(names: Rows, clients: int, random: np.random.Generator) -> list[Rows]:
    if len(names) % 2 or clients % 2:
        raise UsageError(
            f"Label skew gives two clients half of the labels each: {clients} clients and {len(names)} labels must "
            "both be even."
        )
    return [half for _ in range(clients // 2) for half in np.split(random.permutation(names), 2)]


def _subclasses(labels: Rows, kind: Rows, clients: int, random: np.random.Generator) -> list[Rows]:
    names, first, where = np.unique(kind, return_index=True, return_inverse=True)
    above = labels[first]
    if not np.array_equal(above[where], labels):
        raise UsageError("Concept drift needs subclasses that lie within one superclass; a kind has several labels.")
    counts = np.unique(above, return_counts=True)[1]
    each = int(counts[0])
    if np.any(counts != each):
        raise UsageError(
            f"Concept drift needs equally many subclasses in every superclass, not {counts.min()} to {counts.max()}."
        )
    if clients % each:
        raise UsageError(
            f"{clients} clients cannot form groups of {each}, one for every subclass of a superclass: use a multiple "
            "of it."
        )
    table = names[np.argsort(above, kind="stable")].reshape(-1, each)
    hands: list[Rows] = []
    for _ in range(clients // each):
        random.permuted(table, axis=1, out=table)  # every superclass by itself
        hands.extend(table.T.copy())
    return hands


@dataclass(frozen=True)
class PairSlicing:
    """Each client half of the labels of one source, in random amounts (pFedVEM's Table 7, Digit-Five).

    `kind` is source * (number of labels) + label, so it names a pair of both. A client's source is uniform, its
    labels are drawn without replacement. The rows of a pair that M clients hold are shuffled and cut at M - 1 random
    places, which differ as M does from pair to pair; holders get the blocks in client order. Pairs that nobody
    holds are not used. The paper leaves the amounts open; cutting like this is pflbench's choice.
    """

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Also impossible: an odd number of labels, or a pair with fewer rows than holders."""
        check_clients(len(labels), clients)
        if kind is None:
            raise UsageError("This partition needs a dataset from several sources, such as digit-five.")
        count = int(labels.max()) + 1
        if not np.array_equal(kind % count, labels):
            raise UsageError(f"This partition needs a dataset whose kinds are source * {count} + label.")
        if count % 2:
            raise UsageError(f"A client's half of the labels needs an even number of them, not {count}.")
        sources = np.unique(kind // count)
        random = rng.stream(seed, "types")
        holders: dict[int, list[int]] = {}
        for client in range(clients):
            source = int(random.choice(sources))
            for label in random.choice(count, count // 2, replace=False).tolist():
                holders.setdefault(source * count + label, []).append(client)

        piles = rows_by_type(kind)
        random = rng.stream(seed, "slices")
        owned: list[list[Rows]] = [[] for _ in range(clients)]
        for name in sorted(holders):
            pile, owners = piles.get(name, kind[:0]), holders[name]
            if len(pile) < len(owners):
                raise UsageError(
                    f"{len(owners)} clients hold label {name % count} of source {name // count}, which has "
                    f"{len(pile)} rows: use fewer clients."
                )
            blocks = np.split(random.permutation(pile), random_cuts(len(pile), len(owners), random))
            for client, block in zip(owners, blocks, strict=True):
                owned[client].append(block)
        return [np.concatenate(blocks) for blocks in owned]


def rows_by_type(types: Rows) -> dict[int, Rows]:
    """The rows of every type, types ascending."""
    names, counts = np.unique(types, return_counts=True)
    rows = np.split(np.argsort(types, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(names.tolist(), rows, strict=True))


def random_cuts(rows: int, parts: int, random: np.random.Generator) -> Rows:
    """Different places strictly inside, ascending, so that no part is empty."""
    return np.sort(random.choice(rows - 1, parts - 1, replace=False)) + 1


def size_law(n_type: int, clients_per_type: int) -> npt.NDArray[np.float64]:
    """The exact probabilities of a block's length when `n_type` rows, N, are cut at random for so many clients, M.

    P(k) = C(N-k-1, M-2) / C(N-1, M-1), float64 ["lengths"], at index k - 1 for k = 1..N-M+1; with one client all N rows
    are its block. Under `RandomSlicing` a client has its number of types times so many rows, which gives the paper's
    Figures 3-6. Raises `UsageError` unless M is in 1..N.
    """
    if not 1 <= clients_per_type <= n_type:
        raise UsageError(f"{n_type} rows cannot be cut into {clients_per_type} parts.")
    if clients_per_type == 1:
        certain = np.zeros(n_type)
        certain[-1] = 1
        return certain
    # Products of P(1) and ratios of neighbors, as sums of logs: binomials of this size have no float.
    k = np.arange(1, n_type - clients_per_type + 1)
    ratios = np.log((n_type - k - clients_per_type + 1) / (n_type - k - 1))
    first = np.log((clients_per_type - 1) / (n_type - 1))
    law: npt.NDArray[np.float64] = np.exp(first + np.cumsum(np.concatenate([[0.0], ratios])))
    return law
