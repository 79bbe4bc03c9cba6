"""Shards of classes, of the training and of the test split alike (FedEC's CIFAR)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pflbench import rng
from pflbench.data.partition import Hand, Rows, check_clients
from pflbench.errors import UsageError


@dataclass(frozen=True)
class ClassShards:
    """Each client a shard of each of its classes, of the training and of the test split alike (FedEC, FedRep).

    With C classes, each is cut in dataset order into clients * classes_per_client / C shards as
    equal as possible, the larger ones first. All classes, each so many times, are shuffled and dealt: these are the
    classes of the clients, and a class that a client got twice means two of its shards. Which ones is drawn for either
    split on its own, from the streams `(seed, "class-shards", …)` "classes", "train" and "test". Every row belongs to
    exactly one client. What the released code does where a client has fewer than 100 training rows (test rows drawn
    with replacement, from variables that are not defined) is not followed.

    Attributes:
        classes_per_client: Shards that a client gets of either split.
    """

    classes_per_client: int = 2

    shares: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.classes_per_client < 1:
            raise UsageError(f"ClassShards: classes_per_client must be at least 1, not {self.classes_per_client}.")

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. A client's rows stand by its classes, as dealt, then in dataset order.

        Raises:
            UsageError: There is no test split, the classes cannot be dealt evenly, or one has too few rows.
        """
        check_clients(len(labels), clients)
        if not test:
            raise UsageError("class-shards deals a test split, too: use a dataset that has one.")
        names = np.unique(labels)
        each, rest = divmod(clients * self.classes_per_client, len(names))
        if rest:
            raise UsageError(
                f"{clients} clients with {self.classes_per_client} classes each cannot hold {len(names)} classes "
                f"equally often: their product must be a multiple of {len(names)}."
            )
        slots = rng.stream(seed, "class-shards", "classes").permutation(np.repeat(names, each))
        hands = slots.reshape(clients, self.classes_per_client)
        rows = np.arange(len(labels), dtype=np.int64)
        own = len(labels) - test
        train = _dealt(hands, rows[:own], labels[:own], each, rng.stream(seed, "class-shards", "train"), "training")
        scored = _dealt(hands, rows[own:], labels[own:], each, rng.stream(seed, "class-shards", "test"), "test")
        return list(zip(train, scored, strict=True))


def _dealt(hands: Rows, rows: Rows, labels: Rows, shards: int, random: np.random.Generator, split: str) -> list[Rows]:
    """The rows of every client, whose classes are `hands` ["clients", "classes per client"]."""
    piles: dict[int, list[Rows]] = {}
    for name in np.unique(hands).tolist():
        mine = rows[labels == name]
        if len(mine) < shards:
            raise UsageError(
                f"Class {name} is to be cut into {shards} shards, and the {split} split has {len(mine)} rows of it: "
                "use fewer clients or fewer classes_per_client."
            )
        piles[name] = np.array_split(mine, shards)
    held = []
    for hand in hands.tolist():
        drawn = [piles[name].pop(int(random.integers(len(piles[name])))) for name in hand]
        held.append(np.concatenate(drawn))
    return held
