"""Rates and ratios from the timings of one network.

A ratio is formed within a pass, and is the median of the passes' ratios; its spread is their range. Where a program may
use several thread counts it is given several, and the best (by its median) stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from pflbench.speed.contenders import Field, Pairing
from pflbench.speed.options import Options
from pflbench.speed.timing import Timing


class Range(NamedTuple):
    """A median and the range around it."""

    median: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Range:
    """The median and the range of some values."""
    return Range(median(values), min(values), max(values))


def better(ids: Sequence[str], rates: Mapping[str, Sequence[float]]) -> str:
    """The contender with the highest median rate."""
    return max(ids, key=lambda id: median(rates[id]))


@dataclass(frozen=True)
class Comparison:
    """A row, measured. `ratio` is None where nothing is compared."""

    row: Pairing
    contender: str
    rate: Range
    against: str | None
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> Range | None:
        """How many times as fast, over the passes."""
        return spread(self.ratios) if self.ratios else None


def compared(row: Pairing, rates: Mapping[str, Sequence[float]]) -> Comparison:
    """Compare within each pass."""
    chosen = better(row.of, rates)
    against = better(row.against, rates) if row.against else None
    ratios = [a / b for a, b in zip(rates[chosen], rates[against], strict=True)] if against else []
    return Comparison(row, chosen, spread(rates[chosen]), against, tuple(ratios))


@dataclass(frozen=True)
class Result:
    """What was measured on one network. `load`: the machine's load average before anything was started."""

    network: str
    options: Options
    field: Field
    timings: dict[str, Timing]
    load: float | None = None

    @property
    def lines(self) -> list[Comparison]:
        """The rows, measured."""
        rates = {id: timing.rates for id, timing in self.timings.items()}
        return [compared(row, rates) for row in self.field.rows]

    @property
    def seconds_per_client_step(self) -> float:
        """Of the engine with one run."""
        return 1 / median(self.timings[self.field.alone].rates)

    @property
    def foreign_cores(self) -> float | None:
        """The most that others took in a block."""
        known = [cores for timing in self.timings.values() for cores in timing.foreign_cores if cores is not None]
        return max(known, default=None)

    def operations(self, id: str) -> list[float] | None:
        """Floating-point operations a second of a contender, by pass; None where nothing says what a step takes.

        A multiplication and an addition are two. Of a network, those of its convolutions and linear layers count: of
        the forward pass, and of the gradients with respect to weights and inputs (but not to the images).
        """
        counting = self.timings[id] if id in self.field.matmul.values() else self.timings[self.field.counted]
        one = counting.ready.get("operations_per_step")
        return None if one is None else [one * rate for rate in self.timings[id].rates]

    def share(self, id: str) -> Range | None:
        """What part it is of the rate at which the same cores multiply matrices; None for who is not the engine."""
        beside = self.field.matmul.get(id)
        mine, limit = self.operations(id), self.operations(beside) if beside else None
        return spread([a / b for a, b in zip(mine, limit, strict=True)]) if mine and limit else None

    def document(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        contenders = {
            c.id: {
                "title": c.title,
                "programs": [[p.script, *p.options] for p in c.programs],
                "rounds_per_block": self.timings[c.id].rounds,
                "client_steps": self.timings[c.id].client_steps,
                "seconds": self.timings[c.id].seconds,
                "client_steps_per_second": self.timings[c.id].rates,
                "median": median(self.timings[c.id].rates),
                "operations_per_second": median(self.operations(c.id) or [0.0]) or None,
                "foreign_cores": self.timings[c.id].foreign_cores,
                "ready": self.timings[c.id].ready,
            }
            for c in self.field.contenders
        }
        rows = [
            {
                "contender": m.contender,
                "client_steps_per_second": m.rate._asdict(),
                "against": m.against,
                "share_of_matmul": share._asdict() if (share := self.share(m.contender)) else None,
                "ratio": None if m.ratio is None else {**m.ratio._asdict(), "passes": list(m.ratios)},
            }
            for m in self.lines
        ]
        workload = self.timings[self.field.alone].ready.get("workload")
        return {"workload": workload, "contenders": contenders, "rows": rows}
