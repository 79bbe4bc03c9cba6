"""The federation: one pool of examples, and who holds which rows of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from pflbench import rng
from pflbench.data.partition import Dealer, Hand, Partition, Rows
from pflbench.data.source import Normalization, Source
from pflbench.errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients and their data.

    Attributes:
        x: uint8 ["pool", "channels", "height", "width"], shared by all clients, never copied per client.
        support: Per client, the row numbers to adapt on, int64; their order is the static order batches are cut from.
            Clients share rows only if the partition is a `Dealer` that says so.
        query: Per client, the row numbers to be scored on, int64; disjoint from `support`. Clients may share test rows.
        labels: int64 ["pool"].
        training: bool ["clients"]; the others are held out.
        kind: int64 ["pool"] (the rotation group of RMNIST, the fine class of CIFAR-100) or None.
        classes: number of classes.
        hash: Content hash of the data, the same for all seeds (see `Source`).
        test: Row numbers the global model is scored on, int64, in nobody's `support` (but see `build` for validation
            with clients that share rows); empty where there are none.
        normalization: What is done to the images at use; None: nothing.
    """

    x: torch.Tensor
    support: tuple[Rows, ...]
    query: tuple[Rows, ...]
    labels: Rows
    training: npt.NDArray[np.bool_]
    kind: Rows | None
    classes: int
    hash: str
    test: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    normalization: Normalization | None = None

    @property
    def shared(self) -> int:
        """Number of rows that several clients hold, be it to adapt on or to be scored on; shared test rows aside."""
        owned = np.concatenate(
            [np.setdiff1d(np.union1d(*pair), self.test) for pair in zip(self.support, self.query, strict=True)]
        )
        return int((np.unique(owned, return_counts=True)[1] > 1).sum())


def build(
    source: Source,
    partition: Partition | Dealer,
    *,
    clients: int,
    training_clients: int,
    query: float | Literal["test-split", "partition"],
    seed: int,
    validation: float = 0.0,
) -> Federation:
    """Divide a pool among clients, each client's rows into support and query, and hold clients out.

    The partition sees the training rows only; the rows of the source's test split are nobody's support. A client with
    n rows scores int(query * n) of them (as CAFeMe's code does) or, with "test-split", none of them but all test rows
    of the types it holds, a type being a kind where the source has kinds, else a label (as pFedVEM's does). Which ones,
    and the order of all, is one permutation from the stream `(seed, "query", client)`, so it depends on no other
    client. With "partition", the partition itself is a `Dealer` and says what a client adapts and is scored on; the
    support's order comes from that stream, unless the dealer is `ordered`.

    For tuning without a look at what a table reports, `validation` replaces all that is scored by rows of the support.
    Where clients share rows, other clients may train on them, and one row may be scored for several clients.

    `query`: share of a client's rows to be scored on, in (0, 1), or "test-split" or "partition". `validation`: share of
    every client's support rows held out, in [0, 1), at least one row each where it is not 0, drawn from the stream
    `(seed, "validation", client)`. They are the client's query, and those of all clients are the test rows, in place of
    the ones that `query` alone would give.

    Raises:
        UsageError: The partition is impossible or not one, a client would lack support or query rows, there is no
            test split where `query` needs one, or `query` and the partition do not go together.
    """
    if query == "test-split":
        if source.test == 0:
            raise UsageError('query = "test-split" needs a dataset with a test split of its own; give a share instead.')
    elif query != "partition" and not 0 < query < 1:
        raise UsageError(f'query must lie between 0 and 1 or be "test-split" or "partition", not {query}.')
    if not 0 <= validation < 1:
        raise UsageError(f"validation must lie between 0 (none) and 1, not {validation}.")
    training = split_clients(clients, training_clients, seed)
    test = np.arange(len(source.labels) - source.test, len(source.labels), dtype=np.int64)
    if query == "partition":
        parts = _deal(source, partition, clients, seed)
    else:
        owned = _divide(source, partition, clients, seed)
        if query == "test-split":
            parts = _split_by_type(owned, source.labels if source.kind is None else source.kind, test, seed)
        else:
            parts = [_split_rows(rows, query, seed, client) for client, rows in enumerate(owned)]
    if validation:
        parts = [_hold_out(support, validation, seed, client) for client, (support, _) in enumerate(parts)]
        test = np.concatenate([scored for _, scored in parts])
    return Federation(
        x=source.images,
        support=tuple(support for support, _ in parts),
        query=tuple(scored for _, scored in parts),
        labels=source.labels,
        training=training,
        kind=source.kind,
        classes=source.classes,
        hash=source.hash,
        test=test,
        normalization=source.normalization,
    )


def split_clients(clients: int, training_clients: int, seed: int) -> npt.NDArray[np.bool_]:
    """Clients that take part in rounds, bool ["clients"]: the first draw of CAFeMe's code, so its held-out clients.

    Raises `UsageError` unless `training_clients` is in [1, clients].
    """
    if not 1 <= training_clients <= clients:
        raise UsageError(f"{training_clients} training clients are not possible with {clients} clients.")
    training = np.zeros(clients, dtype=np.bool_)
    training[random.Random(seed).sample(range(clients), training_clients)] = True
    return training


def _divide(source: Source, partition: Partition | Dealer, clients: int, seed: int) -> list[Rows]:
    if not callable(partition):
        raise UsageError(
            f"{type(partition).__name__} says itself which rows a client is scored on, and nothing else: "
            'write query = "partition".'
        )
    owned = partition(*source.training, clients, seed)
    several = isinstance(owned, Sequence | np.ndarray)
    if not several or not all(isinstance(rows, np.ndarray) and rows.ndim == 1 for rows in owned):
        what = f"a {type(owned).__name__}" + (f" of {type(owned[0]).__name__}" if several and len(owned) else "")
        raise UsageError(f"The partition must return a list of one int64 array of row numbers per client, not {what}.")
    _check([(rows,) for rows in owned], clients, {"rows": len(source.labels) - source.test}, shares=False)
    return owned


def _deal(source: Source, partition: Partition | Dealer, clients: int, seed: int) -> list[Hand]:
    if not isinstance(partition, Dealer):
        raise UsageError(
            'query = "partition" needs a partition that says which rows a client is scored on, such as class-shards or '
            f'letter-users; {type(partition).__name__} does not: give a share, or "test-split".'
        )
    hands = partition.deal(source.labels, source.kind, source.test, clients, seed)
    most = {"support rows": len(source.labels) - source.test, "query rows": len(source.labels)}
    _check(hands, clients, most, partition.shares)
    if getattr(partition, "ordered", False):
        return hands
    return [
        (support[rng.stream(seed, "query", client).permutation(len(support))], scored)
        for client, (support, scored) in enumerate(hands)
    ]


def _split_rows(rows: Rows, query: float, seed: int, client: int) -> tuple[Rows, Rows]:
    scored = int(query * len(rows))
    if not 0 < scored < len(rows):
        lacking = "query" if scored == 0 else "support"
        raise UsageError(
            f"Client {client} holds {len(rows)} rows, so query = {query} leaves it without a {lacking} row. "
            "Use fewer clients, another query share, or a partition with a larger minimum."
        )
    order = rows[rng.stream(seed, "query", client).permutation(len(rows))]
    return order[scored:], order[:scored]


def _split_by_type(owned: list[Rows], types: Rows, test: Rows, seed: int) -> list[tuple[Rows, Rows]]:
    parts = []
    for client, rows in enumerate(owned):
        scored = test[np.isin(types[test], types[rows])]
        if not len(scored):
            raise UsageError(f"Client {client} holds {len(rows)} rows, and the test split has none of their types.")
        parts.append((rows[rng.stream(seed, "query", client).permutation(len(rows))], scored))
    return parts


def _hold_out(support: Rows, validation: float, seed: int, client: int) -> tuple[Rows, Rows]:
    # The rest keeps its order.
    scored = max(1, round(validation * len(support)))
    if scored >= len(support):
        raise UsageError(
            f"Client {client} has {len(support)} support rows, so validation = {validation} leaves it without one. "
            "Use fewer clients, a smaller share, or a partition with larger clients."
        )
    chosen = rng.stream(seed, "validation", client).permutation(len(support))[:scored]
    return np.delete(support, chosen), support[chosen]


def _check(hands: Sequence[Sequence[Rows]], clients: int, most: Mapping[str, int], shares: bool) -> None:
    """Check the promises of every partition. `most`: each client's share, and of how many rows."""
    if len(hands) != clients:
        raise UsageError(f"The partition made {len(hands)} clients instead of {clients}.")
    owned = []
    for client, hand in enumerate(hands):
        for (what, rows), part in zip(most.items(), hand, strict=True):
            if not len(part) and len(hand) > 1:
                raise UsageError(f"The partition leaves client {client} without a {what[:-1]}.")
            if not np.issubdtype(part.dtype, np.integer) or part.min(initial=0) < 0 or part.max(initial=0) >= rows:
                raise UsageError(f"The partition's {what} of client {client} are not integers in 0..{rows - 1}.")
        owned.append(np.concatenate(hand))
        if len(np.unique(owned[-1])) != len(owned[-1]):
            raise UsageError(f"The partition gives client {client} a row twice.")
    every = np.concatenate(owned)
    if not shares and len(np.unique(every)) != len(every):
        raise UsageError("The partition gives a row to two clients.")
