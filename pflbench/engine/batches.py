"""Minibatches of a client's rows for a local update, drawn on the host.

CAFeMe's code shuffles a client's support once and cuts it into minibatches that are visited in the same order forever
(`Static`). pFedVEM's shuffles anew in every epoch (`Reshuffled`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from typing import TypeVar

import numpy as np

from pflbench import rng
from pflbench.data.federation import Federation
from pflbench.errors import UsageError
from pflbench.methods.base import Draw, Span
from pflbench.spec import RunSpec

SCORED_TOGETHER = 500
"""Rows scored in one forward pass, where the network treats each row alone."""


Item = TypeVar("Item")
Drawn = list["np.ndarray"]
"""One `Draw`'s minibatches: row numbers ["rows"]; or ["two", "rows"], their places in the client's support below."""
Moment = tuple[str | int, ...]
"""Name of a local update."""

WALKED: tuple[Span, ...] = ((0.5, 1.0), (0.0, 0.5), None)
"""Parts of a client's data that static `steps` may be of: the cursor knows where a walk through each of them stands."""


def whole(number: float) -> int:
    """The number rounded down; one that rounding errors bring just below an integer is that integer."""
    return math.floor(number + 1e-9)


def part_of(items: Sequence[Item], part: Span, place: Callable[[], float]) -> Sequence[Item]:
    """A part of these items as `Draw.part` says; `place` draws a random one's, in [0, 1)."""
    if part is None:
        return items
    count = len(items)
    if isinstance(part, tuple):
        first, last = (whole(share * count) for share in part)
    else:
        size = max(1, whole(part * count))
        first = math.floor(place() * (count - size + 1))
        last = first + size
    return items[first:last] or items


@dataclass(frozen=True)
class Static:
    """Minibatches of a client's rows in their order, visited cyclically; one of all rows where these are too few.

    Only the place of a random part is drawn, see `place`.
    """

    support: np.ndarray
    size: int
    keep_tail: bool = False
    seed: int = 0
    client: int = 0

    @property
    def batches(self) -> list[np.ndarray]:
        """Row numbers of the minibatches of the suite's size."""
        return [self.support[at] for at in self._cut]

    @cached_property
    def _cut(self) -> list[np.ndarray]:
        """The places in the support of each minibatch's rows."""
        every = np.arange(len(self.support))
        return list(_cut(every, self.size, self.keep_tail)) or [every]

    def draw(
        self, draws: Sequence[Draw], cursor: int, *moment: str | int, used: bool = True
    ) -> tuple[list[Drawn], int]:
        """The minibatches of one local update, and where the cursor stands afterwards.

        `moment` names the local update; `used`: whether its upload is used or scored. The cursor is one number that
        says where the walks through all minibatches and through either half of them stand. Raises `UsageError` for
        `steps` of another size than the suite's or of another part, as such walks have no cursor.
        """
        drawn: list[Drawn] = []
        sizes = [len(self._part(part)) for part in WALKED]
        places = [int(at) for at in np.unravel_index(cursor, sizes)]
        for draw in draws:
            picked = [] if draw.for_upload and not used else self._places(draw, places, moment)
            drawn.append([np.stack([self.support[at], at]) if draw.indexed else self.support[at] for at in picked])
        return drawn, int(np.ravel_multi_index(places, sizes))

    def _part(self, part: Span, moment: Moment = ()) -> list[np.ndarray]:
        """As `_cut`, of a part of the minibatches."""
        return list(part_of(self._cut, part, lambda: place(self, moment)))

    def _places(self, draw: Draw, walks: list[int], moment: Moment) -> list[np.ndarray]:
        """As `_cut`, of a draw; moves the walk that it goes on with."""
        batches, of_suite = self._part(draw.part, moment), draw.batch in (None, self.size)
        if draw.whole:
            return [np.concatenate(batches)]
        if draw.epochs is not None:
            if not of_suite:
                every = np.concatenate(batches)
                batches = list(_cut(every, draw.batch or self.size, self.keep_tail)) or [every]
            return batches * draw.epochs
        assert draw.steps is not None
        if not of_suite or draw.part not in WALKED:
            raise UsageError(
                "Steps of static minibatches have the suite's size, and are of all of them or of a half: use "
                "batches = 'reshuffled', or epochs."
            )
        which = WALKED.index(draw.part)
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
    """

    support: np.ndarray
    size: int
    seed: int
    client: int
    keep_tail: bool = True

    def draw(
        self, draws: Sequence[Draw], cursor: int, *moment: str | int, used: bool = True
    ) -> tuple[list[Drawn], int]:
        """See `Static.draw`; there is no cursor to move."""
        random = rng.stream(self.seed, "minibatches", self.client, *moment)
        drawn: list[Drawn] = []
        for draw in draws:
            picked = [] if draw.for_upload and not used else self._places(draw, random, moment)
            drawn.append([np.stack([self.support[at], at]) if draw.indexed else self.support[at] for at in picked])
        return drawn, cursor

    def _places(self, draw: Draw, random: np.random.Generator, moment: Moment) -> list[np.ndarray]:
        """The places in the support of each minibatch's rows."""
        size = draw.batch or self.size
        everyone = np.array(part_of(range(len(self.support)), draw.part, lambda: place(self, moment)))
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


def place(stream: Stream, moment: Moment) -> float:
    """Place in [0, 1) of the random parts that a client draws in a local update, from the stream (seed, "part", …)."""
    return float(rng.stream(stream.seed, "part", stream.client, *moment).random())


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
        return Static(support, spec.batch, spec.keeps_tail, spec.seed, client)
    return Reshuffled(support, spec.batch, spec.seed, client, spec.keeps_tail)


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
