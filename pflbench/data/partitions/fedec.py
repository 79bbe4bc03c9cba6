"""FedEC's partitions, which deal test rows to each client, too: shards of classes, and users of three letters each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pflbench import rng
from pflbench.data.partition import Hand, Rows, check_clients
from pflbench.errors import UsageError
from pflbench.hyper import hyper

CLASSES = 3
"""Classes of a user."""
LEAST = 2
"""Rows of a class that every user gets, however small."""
MOST = 4000
"""Rows of a class that are used at most."""


@dataclass(frozen=True)
class ClassShards:
    """Each client a shard of each of its classes, of the training and of the test split alike (FedEC, FedRep).

    With C classes, each is cut in dataset order into clients * classes_per_client / C shards as
    equal as possible, the larger ones first. All classes, each so many times, are shuffled and dealt: these are the
    classes of the clients, and a class that a client got twice means two of its shards. Which ones is drawn for either
    split by itself, from the streams `(seed, "class-shards", …)` "classes", "train" and "test". Every row belongs to
    exactly one client. What the released code does where a client has fewer than 100 training rows (test rows drawn
    with replacement, from variables that are not defined) is not followed.
    """

    classes_per_client: int = hyper(2, "Shards of each split that a client gets.", least=1)

    shares: ClassVar[bool] = False

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
        training = len(labels) - test
        train = _dealt(
            hands, rows[:training], labels[:training], each, rng.stream(seed, "class-shards", "train"), "training"
        )
        scored = _dealt(
            hands, rows[training:], labels[training:], each, rng.stream(seed, "class-shards", "test"), "test"
        )
        return list(zip(train, scored, strict=True))


def _dealt(hands: Rows, rows: Rows, labels: Rows, shards: int, random: np.random.Generator, split: str) -> list[Rows]:
    """The rows of every client, whose classes are `hands` ["clients", "classes per client"]."""
    piles: dict[int, list[Rows]] = {}
    for name in np.unique(hands).tolist():
        pile = rows[labels == name]
        if len(pile) < shards:
            raise UsageError(
                f"Class {name} is to be cut into {shards} shards, and the {split} split has {len(pile)} rows of it: "
                "use fewer clients or fewer classes_per_client."
            )
        piles[name] = np.array_split(pile, shards)
    owned = []
    for hand in hands.tolist():
        drawn = [piles[name].pop(int(random.integers(len(piles[name])))) for name in hand]
        owned.append(np.concatenate(drawn))
    return owned


@dataclass(frozen=True)
class LetterUsers:
    """Users of three neighboring classes and of log-normal sizes: FedEC's FEMNIST, as its script makes it or disjoint.

    With C classes, user u has the classes u, u + 1, u + 2 modulo C and floor(s / 3) rows of each, at least 2, where
    s = LogNormal(4, 1) + 100. The rows of a class are shuffled, and 4000 at most are used. The user's n rows are
    shuffled, and the first floor(0.9 n) are its support, the rest its query. A test split of the dataset is not dealt.

    "released": every user of a class reads it from its beginning, as a defect of the released script has it. So users
    share rows, and what one is scored on others train on.

    "disjoint": users read on where the last one stopped, so they share nothing until a class is used up. Then it is
    read again from its beginning, except for what others are scored on; such a row goes to the support, so no query
    row is ever in another client's hands, but late users may be scored on less than their three classes.

    Draws come from the streams `(seed, "letter-users", …)`: "sizes", those of all users in one draw; "class", label;
    "user", user. So the first users are the same however many clients there are. The script's training draws cannot be
    repeated, as it does not seed them.
    """

    mode: Literal["disjoint", "released"] = hyper(
        "disjoint", "Users read a class from its beginning (released), or where the last user stopped (disjoint)."
    )
    users: int = hyper(200, "Users that are generated; the clients are the first of them.", least=1)
    scale: float | None = hyper(
        None, "Factor of the sizes s, for pools smaller than FEMNIST's; none: 1.", above=0, most=1
    )

    shares: ClassVar[bool] = True

    def per_class(self, seed: int) -> Rows:
        """Number k of rows that a user has of each of its three classes; int64 ["users"]. It holds 3k rows in all."""
        sizes = rng.stream(seed, "letter-users", "sizes").lognormal(4, 1, self.users) + 100
        scaled = sizes if self.scale is None else sizes * self.scale
        return np.maximum(LEAST, scaled // CLASSES).astype(np.int64)

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`.

        Raises:
            UsageError: There are more clients than users, fewer than three classes, or too few rows of one for a
                client; the message says how many clients would do.
        """
        training = len(labels) - test
        check_clients(training, clients)
        if clients > self.users:
            raise UsageError(f"letter-users: {clients} clients are not possible with users = {self.users}.")
        names = np.unique(labels[:training]).tolist()
        if len(names) < CLASSES:
            raise UsageError(f"letter-users gives a user {CLASSES} classes, and there are {len(names)}.")
        piles = []  # the rows of each class that are used, in the order in which they are
        for name in names:
            random = rng.stream(seed, "letter-users", "class", name)
            piles.append(random.permutation(np.flatnonzero(labels[:training] == name))[:MOST])
        starts = [0] * len(piles)
        dealt = np.zeros(training, dtype=np.bool_)
        tested = np.zeros(training, dtype=np.bool_)
        hands: list[Hand] = []
        for user, count in enumerate(self.per_class(seed)[:clients].tolist()):
            drawn = []
            for c in ((user + i) % len(names) for i in range(CLASSES)):
                lap = np.roll(piles[c], -starts[c])
                # At most one lap, so no row twice; in the first one no row is tested yet.
                free = np.arange(len(lap)) if self.mode == "released" else np.flatnonzero(~tested[lap])
                if len(free) < count:
                    raise self._too_small(user, f"{count} rows of class {names[c]}, and {len(free)} can be had")
                drawn.append(lap[free[:count]])
                if self.mode == "disjoint":
                    starts[c] = (starts[c] + int(free[count - 1]) + 1) % len(lap)
            rows = rng.stream(seed, "letter-users", "user", user).permutation(np.concatenate(drawn))
            scored = len(rows) - len(rows) * 9 // 10
            fresh = np.ones(len(rows), dtype=np.bool_) if self.mode == "released" else ~dealt[rows]
            if np.count_nonzero(fresh) < scored:
                raise self._too_small(user, f"{scored} rows to be scored on that nobody trains on")
            chosen = np.flatnonzero(fresh)[-scored:]
            hands.append((np.delete(rows, chosen), rows[chosen]))
            dealt[rows] = True
            tested[rows[chosen]] = True
        return hands

    def _too_small(self, user: int, needs: str) -> UsageError:
        fits = f"use at most {user} clients" if user else "use a larger dataset"
        return UsageError(
            f"letter-users: the dataset is too small. Client {user} needs {needs}: {fits}, or a smaller scale than "
            f"{1.0 if self.scale is None else self.scale}."
        )
