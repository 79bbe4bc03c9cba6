"""The federation: one pool of examples, and who holds which rows of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pflbench import rng
from pflbench.data.partition import Partition, Rows
from pflbench.data.source import Source
from pflbench.errors import UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients and their data.

    Attributes:
        x: uint8 ["pool", "channels", "height", "width"], shared by all clients, never copied per client.
        support: Per client, the row numbers to adapt on, int64; their order is the static order batches are cut from.
        query: Per client, the row numbers to be scored on, int64; disjoint from `support`.
        labels: int64 ["pool"].
        training: bool ["clients"]; the others are held out.
        kind: int64 ["pool"] (the rotation group of RMNIST) or None.
        classes: number of classes.
        hash: Content hash of the data, the same for all seeds (see `Source`).
    """

    x: torch.Tensor
    support: tuple[Rows, ...]
    query: tuple[Rows, ...]
    labels: Rows
    training: npt.NDArray[np.bool_]
    kind: Rows | None
    classes: int
    hash: str


def build(
    source: Source, partition: Partition, *, clients: int, training_clients: int, query: float, seed: int
) -> Federation:
    """Divide a pool among clients, each client's rows into support and query, and hold clients out.

    A client with n rows scores int(query * n) of them (CAFeMe sheet §1.5); which ones, and the order of all, is one
    permutation from the stream `(seed, "query", client)`, so it depends on no other client.

    Args:
        source: The pool.
        partition: Who holds which rows.
        clients: Number of clients.
        training_clients: How many of them take part in rounds.
        query: Share of a client's rows to be scored on, in (0, 1).
        seed: The run's seed.

    Raises:
        UsageError: The partition is impossible or not one, or a client would lack support or query rows.
    """
    if not 0 < query < 1:
        raise UsageError(f"query must lie between 0 and 1, not {query}.")
    training = split_clients(clients, training_clients, seed)
    held = partition(source.labels, source.kind, clients, seed)
    _check_partition(held, clients, len(source.labels))
    parts = [_split_rows(rows, query, seed, client) for client, rows in enumerate(held)]
    return Federation(
        x=source.images,
        support=tuple(support for support, _ in parts),
        query=tuple(scored for _, scored in parts),
        labels=source.labels,
        training=training,
        kind=source.kind,
        classes=source.classes,
        hash=source.hash,
    )


def split_clients(clients: int, training_clients: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which clients take part in rounds: `random.Random(seed).sample(range(clients), training_clients)`.

    The first draw of the authors' code, so the held-out clients are theirs (CAFeMe sheet §4.8).

    Returns:
        bool ["clients"].

    Raises:
        UsageError: `training_clients` is not in [1, clients].
    """
    if not 1 <= training_clients <= clients:
        raise UsageError(f"{training_clients} training clients are not possible with {clients} clients.")
    training = np.zeros(clients, dtype=np.bool_)
    training[random.Random(seed).sample(range(clients), training_clients)] = True
    return training


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


def _check_partition(held: list[Rows], clients: int, rows: int) -> None:
    """What every partition promises, also a user's own."""
    if len(held) != clients:
        raise UsageError(f"The partition made {len(held)} clients instead of {clients}.")
    every = np.concatenate(held)
    if not np.issubdtype(every.dtype, np.integer) or every.min(initial=0) < 0 or every.max(initial=0) >= rows:
        raise UsageError(f"The partition's row numbers are not integers in 0..{rows - 1}.")
    if len(np.unique(every)) != len(every):
        raise UsageError("The partition gives a row to two clients, or to one client twice.")
