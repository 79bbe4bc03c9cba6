"""Minibatches of a client's rows for a local update, drawn on the host.

CAFeMe's code shuffles a client's support once and cuts it into minibatches that are visited in the same order forever
(`Static`). pFedVEM's shuffles anew in every epoch (`Reshuffled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TypeVar

import numpy as np

from pflbench import rng
from pflbench.data.federation import Federation
from pflbench.errors import UsageError
from pflbench.methods.base import Draw, Half
from pflbench.spec import RunSpec

SCORED_TOGETHER = 500
"""Rows scored in one forward pass, where the network treats each row alone."""


Item = TypeVar("Item")
Drawn = list["np.ndarray"]
"""One `Draw`'s minibatches: row numbers ["rows"]; or ["two", "rows"], their places in the client's support below."""


HALVES: tuple[Half, ...] = ("second", "first", None)
"""The parts of a client's data that a `Draw` may be of; None: all of it."""


def halved(items: Sequence[Item], half: Half) -> Sequence[Item]:
    """A half of these items, or all: the first half is the smaller one; where there is one item, it is both."""
    if half is None or len(items) < 2:
        return items
    middle = len(items) // 2
    return items[:middle] if half == "first" else items[middle:]


@dataclass(frozen=True)
class Static:
    """Minibatches of row numbers, visited cyclically."""

    batches: tuple[np.ndarray, ...]

    def draw(
        self, draws: Sequence[Draw], cursor: int, *moment: str | int, used: bool = True
    ) -> tuple[list[Drawn], int]:
        """The minibatches of one local update, and where the cursor stands afterwards.

        `moment` names the local update; `used`: whether its upload is used or scored. The cursor is one number that
        says where the walks through all minibatches and through either half of them stand.
        """
        drawn: list[Drawn] = []
        walks = [halved(self.batches, half) for half in HALVES]
        sizes = [len(batches) for batches in walks]
        places = [int(at) for at in np.unravel_index(cursor, sizes)]
        for draw in draws:
            which = HALVES.index(draw.half)
            batches, at = walks[which], places[which]
            if draw.batch is not None or draw.indexed:
                raise UsageError("Static minibatches have the suite's size and no index: use batches = 'reshuffled'.")
            if draw.for_upload and not used:
                drawn.append([])
            elif draw.whole:
                drawn.append([np.concatenate(batches)])
            elif draw.epochs is not None:
                drawn.append(list(batches) * draw.epochs)
            else:
                assert draw.steps is not None
                mine = [batches[(at + i) % len(batches)] for i in range(draw.steps)]
                places[which] = (at + draw.steps) % len(batches)
                drawn.append([np.concatenate(mine)] if draw.merge else mine)
        return drawn, int(np.ravel_multi_index(places, sizes))


@dataclass(frozen=True)
class Reshuffled:
    """Minibatches drawn anew: passes in a fresh order each, the last partial batch kept; single ones independently.

    A single minibatch is uniform without replacement, of min(size, rows) rows, or the next of such passes
    where it is drawn `in_passes`; how pFedVEM's baselines draw single ones is not published, this is our choice. All
    draws come from the stream (seed, "minibatches", client, moment), so they depend on nothing that happened before.
    `drawn_for`: what its name ends with, see `RunSpec.drawn_for`.
    """

    support: np.ndarray
    size: int
    seed: int
    client: int
    drawn_for: tuple[str, ...] = ()

    def draw(
        self, draws: Sequence[Draw], cursor: int, *moment: str | int, used: bool = True
    ) -> tuple[list[Drawn], int]:
        """See `Static.draw`; there is no cursor to move."""
        random = rng.stream(self.seed, "minibatches", self.client, *moment, *self.drawn_for)
        drawn: list[Drawn] = []
        for draw in draws:
            picked = [] if draw.for_upload and not used else self._places(draw, random)
            drawn.append([np.stack([self.support[at], at]) if draw.indexed else self.support[at] for at in picked])
        return drawn, cursor

    def _places(self, draw: Draw, random: np.random.Generator) -> list[np.ndarray]:
        """The places in the support of each minibatch's rows."""
        size, everyone = draw.batch or self.size, np.array(halved(range(len(self.support)), draw.half))
        if draw.whole:
            return [everyone]
        passes = (_cut(random.permutation(everyone), size, True) for _ in repeat(None))
        if draw.epochs is not None:
            return list(chain.from_iterable(islice(passes, draw.epochs)))
        assert draw.steps is not None
        if draw.in_passes:
            picked = list(islice(chain.from_iterable(passes), draw.steps))
        else:
            picked = [random.choice(everyone, min(size, len(everyone)), replace=False) for _ in range(draw.steps)]
        return [np.concatenate(picked)] if draw.merge else picked


Stream = Static | Reshuffled
"""One client's minibatches."""


def support_streams(federation: Federation, spec: RunSpec) -> list[Stream]:
    """Every client's stream, as `spec.batches` says.

    Static batches are of `spec.batch` rows in the client's static order; the tail is dropped or kept as `spec.tail`
    says. A client with less than one full batch gets one batch of all its rows (`tiny_client="single-batch"`); with
    `"error"` it raises `UsageError`.
    """
    if spec.batches == "reshuffled":
        own = spec.drawn_for
        return [Reshuffled(rows, spec.batch, spec.seed, client, own) for client, rows in enumerate(federation.support)]
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
