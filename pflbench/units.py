"""Numbers with their units, to read and to print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from pflbench.errors import UsageError


def count(n: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(seconds: float) -> str:
    """`12 s`, `7 min`, `3.5 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours = round(seconds / 60), round(seconds / 3600, 1)
    return f"{minutes} min" if minutes < 120 else f"{hours} h"


def size(text: str) -> int:
    """Bytes in `4GB`, `512 MB` or `1.5 GiB`. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kMGT])(i?)B?", text.strip(), re.IGNORECASE)
    number = float(match[1]) if match else 0.0
    if match is None or number <= 0:
        raise UsageError(f"{text!r} is not an amount of memory; write 4GB, 512MB or 1.5GiB.")
    return int(number * (1024 if match[3] else 1000) ** ("kmgt".index(match[2].lower()) + 1))


class Interval(NamedTuple):
    """Interval in rounds or in seconds."""

    rounds: int | None = None
    seconds: float | None = None

    def over(self, rounds: int, seconds: float) -> bool:
        """True if these rounds or seconds since the last time are enough."""
        return (self.rounds is not None and rounds >= self.rounds) or (
            self.seconds is not None and seconds >= self.seconds
        )


def interval(text: str) -> Interval:
    """`50` rounds, or `30s`, `10m`, `1.5h`. Raises `UsageError` for anything else, and for nothing at all."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([smh]?)", text.strip())
    number = float(match[1]) if match else 0.0
    if match is None or number <= 0 or (not match[2] and number != int(number)):
        raise UsageError(f"{text!r} is no interval; write 50 (rounds), 30s, 10m or 1h.")
    return Interval(seconds=number * {"s": 1, "m": 60, "h": 3600}[match[2]]) if match[2] else Interval(int(number))


MOST_SEEDS = 100_000
"""Seeds of one selection: more fill the memory before anything runs."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds in `"0-4"`, `"0,2,5"` or a mixture of both, in that order. Raises `UsageError`."""
    if not text.strip():
        raise UsageError("'' is not a list of seeds: write 0-4 or 0,2,5, or leave it out for the suite's own seeds.")
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if dash and first.isdecimal() and last.isdecimal() and int(last) < int(first):
            raise UsageError(f"{part.strip()!r} is a reversed range of seeds: write {last}-{first}.")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"{text!r} is not a list of seeds: write 0-4 or 0,2,5.")
        span = range(int(first), int(last or first) + 1)
        if len(seeds) + span.stop - span.start > MOST_SEEDS:
            raise UsageError(f"{text!r} names more than {MOST_SEEDS} seeds: write fewer, such as 0-4.")
        seeds |= dict.fromkeys(span)
    return tuple(seeds)


class Shard(NamedTuple):
    """The part `number` (from 1 on) of the work in `of` parts."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_shard(text: str) -> Shard:
    """The shard that `2/3` is. Raises `UsageError`."""
    match = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"{text!r} is no shard: write K/N with K from 1 to N, as 1/3, 2/3 and 3/3.")
    return Shard(int(match[1]), int(match[2]))


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """`["mem=8GB", "time=60"]` → `{"mem": "8GB", "time": "60"}`. Raises `UsageError`."""
    found = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            raise UsageError(f"{text!r} is no setting: write name=value, as time=240.")
        found[name] = value
    return found


def consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """`[0, 1, 2, 5]` → `[[0, 1, 2], [5]]`."""
    runs = groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in runs]


def seed_text(seeds: Iterable[int]) -> str:
    """Text that `parse_seeds` takes: `0-4`, or `0-2,7`."""
    return ",".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in consecutive(seeds))
