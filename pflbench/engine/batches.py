"""Minibatches of a client's rows for a local update, drawn on the host.

CAFeMe's code shuffles a client's support once and cuts it into minibatches that are visited in the same order forever
(`Static`). pFedVEM's shuffles anew in every epoch (`Reshuffled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    """Minibatches of a client's rows in their order, visited cyclically; one of all rows where these are too few."""

    support: np.ndarray
    size: int
    keep_tail: bool = False

    @property
    def batches(self) -> list[np.ndarray]:
        """Row numbers of the minibatches of the suite's size."""
        return [self.support[at] for at in self._cut]

    @cached_property
    def _cut(self) -> list[np.ndarray]:
        """The places in the support of each minibatch's rows."""
        every = np.arange(len(self.support))
        return list(_cut(every, self.size, self.keep_tail)) or [every]

    def _cut_to(self, size: int) -> list[np.ndarray]:
        """As `_cut`, of another size: of the rows that are in a minibatch of the suite's size."""
        every = np.concatenate(self._cut)
        return list(_cut(every, size, self.keep_tail)) or [every]

    def draw(
        self, draws: Sequence[Draw], cursor: int, *moment: str | int, used: bool = True
    ) -> tuple[list[Drawn], int]:
        """The minibatches of one local update, and where the cursor stands afterwards.

        `moment` names the local update; `used`: whether its upload is used or scored. The cursor is one number that
        says where the walks through all minibatches and through either half of them stand. Raises `UsageError` for
        `steps` of another size than the suite's, as such walks have no cursor.
        """
        drawn: list[Drawn] = []
        sizes = [len(halved(self._cut, half)) for half in HALVES]
        places = [int(at) for at in np.unravel_index(cursor, sizes)]
        for draw in draws:
            picked = [] if draw.for_upload and not used else self._places(draw, places)
            drawn.append([np.stack([self.support[at], at]) if draw.indexed else self.support[at] for at in picked])
        return drawn, int(np.ravel_multi_index(places, sizes))

    def _places(self, draw: Draw, walks: list[int]) -> list[np.ndarray]:
        """As `_cut`, of a draw; moves the walk that it goes on with."""
        own, which = draw.batch in (None, self.size), HALVES.index(draw.half)
        batches = halved(self._cut if own else self._cut_to(draw.batch or self.size), draw.half)
        if draw.whole:
            return [np.concatenate(batches)]
        if draw.epochs is not None:
            return list(batches) * draw.epochs
        assert draw.steps is not None
        if not own:
            raise UsageError(
                "Steps of static minibatches have the suite's size: use batches = 'reshuffled', or epochs."
            )
        at = walks[which]
        walks[which] = (at + draw.steps) % len(batches)
        picked = [batches[(at + i) % len(batches)] for i in range(draw.steps)]
        return [np.concatenate(picked)] if draw.merge else picked


@dataclass(frozen=True)
class Reshuffled:
    """Minibatches drawn anew: passes in a fresh order each; single ones independently.

    A pass keeps its last, partial minibatch or, with `keep_tail = False`, has full ones alone: then a pass leaves out
    other rows each time, and is one minibatch of all rows where these are too few for a full one.

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
    keep_tail: bool = True

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
        keep_tail = self.keep_tail or len(everyone) < size
        passes = (_cut(random.permutation(everyone), size, keep_tail) for _ in repeat(None))
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
    lacking = (client for client, rows in enumerate(federation.support) if len(rows) < spec.batch)
    if spec.tiny_client == "error" and not spec.keeps_tail and (client := next(lacking, None)) is not None:
        rows = len(federation.support[client])
        raise UsageError(
            f"Client {client} has {rows} support rows, fewer than one batch of {spec.batch}; "
            'set tiny_client = "single-batch", a smaller batch, or another seed.'
        )
    return [stream_of(rows, spec, client) for client, rows in enumerate(federation.support)]


def stream_of(support: np.ndarray, spec: RunSpec, client: int) -> Stream:
    """The stream of a client with these rows."""
    if spec.batches == "static":
        return Static(support, spec.batch, spec.keeps_tail)
    return Reshuffled(support, spec.batch, spec.seed, client, spec.drawn_for, spec.keeps_tail)


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
