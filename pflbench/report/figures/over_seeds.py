"""Lines over seeds: every point of a line is the mean over the same seeds, so that no step is one of seeds alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pflbench.report.cells import summarize
from pflbench.report.figures.panels import Point, Series
from pflbench.report.text import ranges
from pflbench.suite.schema import Spread
from pflbench.units import count

Walk = Mapping[int, float]
"""A run's numbers, by round or by fine-tuning step."""
_FEW = 3
"""So many rounds are named; of more their number is said."""


class Lines(NamedTuple):
    """Lines of a row in a panel.

    Attributes:
        series: One line over seeds; a line for each seed where they have no two rounds in common; none without numbers.
        left_out: What is not drawn, so that all points of a line have the same seeds, in words; empty: nothing.
        apart: Whether each seed has a line of its own.
    """

    series: tuple[Series, ...]
    left_out: str = ""
    apart: bool = False


def over_seeds(
    title: str,
    walks: Mapping[int, Walk],
    spread: Spread,
    numbers: Mapping[str, float] | None = None,
    paces: Mapping[int, float] | None = None,
) -> Lines:
    """The line of a row from its runs' numbers; both mappings go by seed.

    Seeds that were scored once are left out where another one was scored more often. The others' line has the rounds
    in which all of them were scored. `paces`: how much of the axis's unit is in a round; those it does not have are the
    mean of the others.
    """
    paces = paces or dict.fromkeys(walks, 1.0)
    kept = _kept(walks)
    if not kept:
        return Lines(())
    left = [_once(seed, walk) for seed, walk in walks.items() if walk and seed not in kept]
    every = set[int]().union(*kept.values())
    common = every.intersection(*kept.values())
    if len(common) < min(2, len(every)):
        return Lines(tuple(_each(title, kept, spread, paces)), "; ".join(left), apart=True)
    left += _lacking(kept, every - common)
    told = [paces[seed] for seed in kept if seed in paces] or list(paces.values())
    points = _points(list(kept.values()), sorted(common), spread, float(np.mean(told)))
    series = Series(title, "line", points, numbers=numbers or {}, row=title)
    return Lines((series,), "; ".join(left))


def _kept(walks: Mapping[int, Walk]) -> dict[int, Walk]:
    """The seeds of which there is more than a point; where none has more, those that have one."""
    longer = {seed: walk for seed, walk in walks.items() if len(walk) > 1}
    return longer or {seed: walk for seed, walk in walks.items() if walk}


def _each(title: str, walks: Mapping[int, Walk], spread: Spread, paces: Mapping[int, float]) -> Iterator[Series]:
    usual = float(np.mean(list(paces.values())))
    for seed, walk in sorted(walks.items()):
        points = _points([walk], sorted(walk), spread, paces.get(seed, usual))
        yield Series(f"{title}, seed {seed}", "line", points, row=title)


def _lacking(walks: Mapping[int, Walk], rounds: Collection[int]) -> list[str]:
    """The rounds in which not all of these seeds were scored, and which were, in words; nothing without such rounds."""
    if not rounds:
        return []
    seeds = [seed for seed, walk in walks.items() if not walk.keys().isdisjoint(rounds)]
    which = _numbered("round", rounds) if len(rounds) <= _FEW else count(len(rounds), "round")
    return [f"{which} of {_numbered('seed', seeds)}"]


def _numbered(noun: str, numbers: Collection[int]) -> str:
    """`seed 3`, `rounds 5, 15`."""
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {ranges(numbers)}"


def _once(seed: int, walk: Walk) -> str:
    return f"seed {seed} (scored after round {min(walk)} alone)"


def _points(walks: Sequence[Walk], places: Sequence[int], spread: Spread, pace: float) -> tuple[Point, ...]:
    found = []
    for place in places:
        summary = summarize(np.array([[walk[place]] for walk in walks]), spread)
        found.append(Point(pace * place, summary.mean, summary.spread, summary.n))
    return tuple(found)
