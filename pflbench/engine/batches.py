"""Minibatches of a client's rows for a local update, drawn on the host.

CAFeMe's code shuffles a client's support once and cuts it into minibatches that are visited in the same order forever
(`Static`). pFedVEM's shuffles anew in every epoch (`Reshuffled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np

from pflbench import rng
from pflbench.data.federation import Federation
from pflbench.errors import UsageError
from pflbench.methods.base import Take
from pflbench.spec import RunSpec

SCORED_TOGETHER = 500
"""Rows scored in one forward pass, where the network treats each row alone."""


Drawn = list["np.ndarray"]
"""One `Take`'s minibatches: row numbers ["rows"]; or ["two", "rows"], their places in the client's support below."""


@runtime_checkable
class Stream(Protocol):
    """One client's minibatches."""

    def draw(
        self, takes: Sequence[Take], cursor: int, *moment: str | int, used: bool = True, phase: str | None = None
    ) -> tuple[list[Drawn], int]:
        """The minibatches of one local update, and where the cursor of a cyclic stream stands afterwards.

        `moment` names the local update; `used`: whether its upload is used or scored; `phase`: the round's.
        """


@dataclass(frozen=True)
class Static:
    """Minibatches of row numbers, visited cyclically."""

    batches: tuple[np.ndarray, ...]

    def draw(
        self, takes: Sequence[Take], cursor: int, *moment: str | int, used: bool = True, phase: str | None = None
    ) -> tuple[list[Drawn], int]:
        """See `Stream`."""
        drawn: list[Drawn] = []
        for take in takes:
            if take.batch is not None or take.indexed:
                raise UsageError("Static minibatches have the suite's size and no index: use batches = 'reshuffled'.")
            if _left_out(take, used, phase):
                drawn.append([])
            elif take.whole:
                drawn.append([np.concatenate(self.batches)])
            elif take.epochs is not None:
                drawn.append(list(self.batches) * take.epochs)
            else:
                assert take.steps is not None
                mine = [self.batches[(cursor + i) % len(self.batches)] for i in range(take.steps)]
                cursor = (cursor + take.steps) % len(self.batches)
                drawn.append([np.concatenate(mine)] if take.merge else mine)
        return drawn, cursor


@dataclass(frozen=True)
class Reshuffled:
    """Minibatches drawn anew: passes in a fresh order each, the last partial batch kept; single ones independently.

    A single minibatch is uniform without replacement, of min(size, rows) rows, or the next of such passes
    where it is to be `epochwise`; how pFedVEM's baselines draw single ones is not published, this is our choice. All
    draws come from the stream (seed, "minibatches", client, moment), so they depend on nothing that happened before.
    """

    support: np.ndarray
    size: int
    seed: int
    client: int

    def draw(
        self, takes: Sequence[Take], cursor: int, *moment: str | int, used: bool = True, phase: str | None = None
    ) -> tuple[list[Drawn], int]:
        """See `Stream`; there is no cursor to move."""
        random = rng.stream(self.seed, "minibatches", self.client, *moment)
        drawn: list[Drawn] = []
        for take in takes:
            size = take.batch or self.size
            everyone = np.arange(len(self.support))
            picked: list[np.ndarray]
            if _left_out(take, used, phase):
                picked = []
            elif take.whole:
                picked = [everyone]
            elif take.epochs is not None:
                picked = [b for _ in range(take.epochs) for b in _cut(random.permutation(everyone), size, True)]
            elif take.epochwise:
                assert take.steps is not None
                picked = list(islice(_passes(random, everyone, size), take.steps))
                picked = [np.concatenate(picked)] if take.merge else picked
            else:
                assert take.steps is not None
                picked = [random.choice(everyone, min(size, len(everyone)), replace=False) for _ in range(take.steps)]
                picked = [np.concatenate(picked)] if take.merge else picked
            drawn.append([np.stack([self.support[at], at]) if take.indexed else self.support[at] for at in picked])
        return drawn, cursor


def _left_out(take: Take, used: bool, phase: str | None) -> bool:
    return (take.used_only and not used) or take.phase not in (None, phase)


def _passes(random: np.random.Generator, everyone: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Minibatches of one pass after the other, without end."""
    while True:
        yield from _cut(random.permutation(everyone), size, True)


def support_streams(federation: Federation, spec: RunSpec) -> list[Stream]:
    """Every client's stream, as `spec.batches` says.

    Static batches are of `spec.batch` rows in the client's static order; the tail is dropped or kept as `spec.tail`
    says. A client with less than one full batch gets one batch of all its rows (`tiny_client="single-batch"`); with
    `"error"` it raises `UsageError`.
    """
    if spec.batches == "reshuffled":
        return [Reshuffled(rows, spec.batch, spec.seed, client) for client, rows in enumerate(federation.support)]
    streams: list[Stream] = []
    for client, rows in enumerate(federation.support):
        batches = support_batches(rows, spec)
        if not batches:
            if spec.tiny_client == "error":
                raise UsageError(
                    f"Client {client} has {len(rows)} support rows, fewer than one batch of {spec.batch}; "
                    'set tiny_client = "single-batch", a smaller batch, or another seed.'
                )
            batches = (rows,)
        streams.append(Static(batches))
    return streams


def support_batches(rows: np.ndarray, spec: RunSpec) -> tuple[np.ndarray, ...]:
    """One client's support rows in minibatches; none if there is not even one full batch and tails are dropped."""
    return tuple(_cut(rows, spec.batch, spec.tail == "keep"))


def query_batches(federation: Federation, client: int, spec: RunSpec) -> Drawn:
    """A client's query minibatches: the tail is kept, but a lone last example is left out unless it is the only one."""
    batches = list(_cut(federation.query[client], spec.batch, True))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches.pop()
    return batches


def pieces(rows: np.ndarray) -> Drawn:
    """Rows to score, in pieces that fit into memory, for networks that treat each row alone."""
    return list(_cut(rows, SCORED_TOGETHER, True))


def _cut(rows: np.ndarray, size: int, keep_tail: bool) -> Iterator[np.ndarray]:
    full = len(rows) // size * size
    yield from (rows[i : i + size] for i in range(0, full, size))
    if keep_tail and full < len(rows):
        yield rows[full:]
