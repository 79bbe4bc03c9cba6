"""Numbers with their units, to read and to print."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

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
    match = re.fullmatch(r"([0-9.]+)\s*([kMGT])(i?)B?", text.strip(), re.IGNORECASE)
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or number <= 0:
        raise UsageError(f"{text!r} is not an amount of memory; write 4GB, 512MB or 1.5GiB.")
    return int(number * (1024 if match[3] else 1000) ** ("kmgt".index(match[2].lower()) + 1))


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds in `"0-4"`, `"0,2,5"` or a mixture of both, in that order. Raises `UsageError`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = (p.strip() for p in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise UsageError(f"{text!r} is not a list of seeds: write 0-4 or 0,2,5.")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))


def consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """`[0, 1, 2, 5]` → `[[0, 1, 2], [5]]`."""
    runs = groupby(enumerate(sorted(set(numbers))), lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in runs]


def seed_text(seeds: Iterable[int]) -> str:
    """What `parse_seeds` takes: `0-4`, or `0-2,7`."""
    return ",".join(str(one[0]) if len(one) == 1 else f"{one[0]}-{one[-1]}" for one in consecutive(seeds))
