"""Successive halving of a search: many trials after few rounds, the best of them again after more."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from pflbench.errors import UsageError


class Rung(NamedTuple):
    """At most `trials` trials, each of `rounds` rounds from the start."""

    trials: int
    rounds: int


def parse_halving(text: str) -> tuple[Rung, ...]:
    """The rungs in `"12@3,4@10"`: all twelve trials after three rounds, the best four again after ten.

    Raises `UsageError` where that is not what it says, or a rung does not have fewer trials and more rounds.
    """
    rungs = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9][0-9]*)\s*@\s*([1-9][0-9]*)\s*", part)
        if match is None:
            raise UsageError(f"{text!r} is no list of rungs: write trials@rounds, as in 12@3,4@10.")
        rungs.append(Rung(int(match[1]), int(match[2])))
    for before, after in pairwise(rungs):
        if not (after.trials < before.trials and after.rounds > before.rounds):
            raise UsageError(f"{text!r}: each rung has fewer trials than the one before, and more rounds.")
    return tuple(rungs)
