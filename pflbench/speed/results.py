"""Measurement of networks, one after the other: rates and ratios from the timings, and the table of them.

A ratio is formed within a pass, and is the median of the passes' ratios; its spread is their range. Where a program may
use several thread counts it is given several, and the best (by its median) stands for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.box import SIMPLE
from rich.table import Table

from pflbench.errors import UsageError
from pflbench.running import local, machine, provenance
from pflbench.running.machine import processor
from pflbench.speed.contenders import ALONE, COUNTED, Field, Options, Pairing, competing
from pflbench.speed.timing import Answer, Timing, expected_seconds, time_all
from pflbench.suite.load import folder
from pflbench.units import count

FOREIGN = 0.1
"""Cores that other processes may take while numbers are to be trusted."""


class Range(NamedTuple):
    """A median and the range around it."""

    median: float
    min: float
    max: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.min:.2f}–{self.max:.2f})"


def spread(values: Sequence[float]) -> Range:
    """The median and the range of some values."""
    return Range(median(values), min(values), max(values))


def better(ids: Sequence[str], rates: Mapping[str, Sequence[float]]) -> str:
    """The contender with the highest median rate."""
    return max(ids, key=lambda id: median(rates[id]))


class MeasuredRow(NamedTuple):
    """A row, measured. `ratios`: how many times as fast, by pass, and their `ratio`; None where nothing is compared."""

    contender: str
    rate: Range
    against: str | None
    ratios: tuple[float, ...]
    ratio: Range | None


def compared(row: Pairing, rates: Mapping[str, Sequence[float]]) -> MeasuredRow:
    """Compare within each pass."""
    chosen = better(row.of, rates)
    if not row.against:
        return MeasuredRow(chosen, spread(rates[chosen]), None, (), None)
    against = better(row.against, rates)
    ratios = tuple(a / b for a, b in zip(rates[chosen], rates[against], strict=True))
    return MeasuredRow(chosen, spread(rates[chosen]), against, ratios, spread(ratios))


@dataclass(frozen=True)
class Result:
    """Measurements on one network. `load`: the machine's load average before anything was started."""

    network: str
    options: Options
    field: Field
    timings: dict[str, Timing]
    load: float | None = None

    @property
    def lines(self) -> list[MeasuredRow]:
        """The rows, measured."""
        rates = {id: timing.rates for id, timing in self.timings.items()}
        return [compared(row, rates) for row in self.field.rows]

    @property
    def seconds_per_client_step(self) -> float:
        """Of the engine with one run."""
        return 1 / median(self.timings[ALONE].rates)

    @property
    def ready(self) -> Answer:
        """First answer of the engine with one run."""
        return self.timings[ALONE].ready

    @property
    def machine(self) -> str:
        """The GPU's name, or the processor's model."""
        return processor() if self.ready["device"] == "cpu" else str(self.ready["device"])

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
        counting = self.timings[id if id in self.field.matmul.values() else COUNTED]
        one = counting.ready.get("operations_per_step")
        return None if one is None else [one * rate for rate in self.timings[id].rates]

    def share(self, id: str) -> Range | None:
        """Share of the rate at which the same cores multiply matrices; None for others than the engine."""
        beside = self.field.matmul.get(id)
        mine, limit = self.operations(id), self.operations(beside) if beside else None
        return spread([a / b for a, b in zip(mine, limit, strict=True)]) if mine and limit else None

    def document(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        contenders = {
            c.id: {
                "title": c.title,
                "programs": [[p.script, *p.options] for p in c.programs],
                "rounds_per_block": timing.rounds,
                "client_steps": timing.client_steps,
                "seconds": timing.seconds,
                "client_steps_per_second": timing.rates,
                "median": median(timing.rates),
                "operations_per_second": median(self.operations(c.id) or [0.0]) or None,
                "foreign_cores": timing.foreign_cores,
                "ready": timing.ready,
            }
            for c, timing in ((c, self.timings[c.id]) for c in self.field.contenders)
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
        return {"workload": self.ready.get("workload"), "contenders": contenders, "rows": rows}

    def table(self) -> Table:
        """Steps a second, floating-point operations a second, and the comparisons, with the machine below them."""
        work = self.ready["workload"]
        grid = Table(
            title=f"{self.network} · {work['clients']} clients × {work['steps']} steps × batch {work['batch']}"
            " · training only, equal client-steps",
            caption=self._caption(),
            title_justify="left",
            caption_justify="left",
            box=SIMPLE,
            pad_edge=False,
        )
        grid.add_column("", no_wrap=True)
        for head in ("steps/s", "GFLOP/s", "share", "times as fast"):
            grid.add_column(head, justify="right", no_wrap=True)
        grid.add_column("as")
        titles = {c.id: c.title for c in self.field.contenders}
        for line in self.lines:
            share = self.share(line.contender)
            grid.add_row(
                titles[line.contender],
                _short(line.rate.median),
                self._giga(line.contender),
                f"{100 * share.median:.0f} %" if share else "",
                str(line.ratio or "–"),
                titles[line.against] if line.against else "",
            )
        for id in dict.fromkeys(self.field.matmul.values()):
            grid.add_row(titles[id], "", self._giga(id))
        return grid

    def _caption(self) -> str:
        notes = [f"{self.machine}, {count(self.options.cores, 'core')}; torch {self.ready['torch']}"]
        notes += [f"load average before: {self.load:.2f}"] if self.load is not None else []
        if (foreign := self.foreign_cores) is not None:
            busy = ": do not trust these numbers" if foreign > FOREIGN else ""
            notes.append(f"other processes took up to {foreign:.2f} cores{busy}")
        share = "share: of the rate at which the same cores do plain matrix products (matmul)"
        return f"{'; '.join(notes)}. Medians over passes (range); {share}."

    def _giga(self, id: str) -> str:
        operations = self.operations(id)
        return _short(median(operations) / 1e9) if operations else ""


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


BUSY = 0.5
"""Load average above which the machine counts as busy."""
Say = Callable[[str], None]


def how_long(options: Options) -> float:
    """About how many seconds `measure` takes."""
    fields = [competing(network, options) for network in options.networks]
    return sum(expected_seconds(f.contenders, passes=options.passes, seconds=options.seconds) for f in fields)


def measure(
    options: Options, *, on_block: Say = lambda _: None, warn: Say = lambda _: None, scripts: Path | None = None
) -> Iterator[Result]:
    """Time all contenders on each network; yields what a network came to once it is measured, and keeps it for `plan`.

    `on_block` hears what is being timed, `warn` what makes the numbers untrustworthy and what could not be kept. The
    contenders' programs are in `scripts` (default: those of pflbench).

    Raises:
        UsageError: The machine has fewer cores, or a contender cannot start.
        PflbenchError: A contender died.
    """
    if options.cores > local.cores():
        raise UsageError(f"--cores {options.cores}: this machine has {local.cores()}, and each gets a run of its own.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if load is not None and load > BUSY:
        warn(f"Warning: this machine is busy (load average {load:.1f}); do not trust these numbers.")
    for network in options.networks:
        field = competing(network, options)
        timings = time_all(
            field.contenders,
            scripts or folder() / "speed",
            passes=options.passes,
            seconds=options.seconds,
            on_block=lambda text, network=network: on_block(f"{network} · {text}"),  # type: ignore[misc]
        )
        result = Result(network, options, field, timings, load)
        if not options.rehearsal:
            _keep(result, warn)
        yield result


def document(results: Sequence[Result]) -> dict[str, Any]:
    """All that was measured, JSON-ready, with the machine and the versions. Floating-point operations as they are."""
    first = results[0]
    options = first.options
    return {
        "schema": 1,
        "what": "training only, equal client-steps",
        "machine": {
            "device": first.machine,
            "processor": processor(),
            "cores": options.cores,
            "load_before": first.load,
        },
        "versions": provenance.versions(),
        **provenance.checkout(),
        "options": {
            "device": options.device,
            "precision": options.precision,
            "against": list(options.peers),
            "passes": options.passes,
            "seconds": options.seconds,
            "scale": options.scale,
            "execution": "vectorized" if options.stacked else "loop",
        },
        "networks": {result.network: result.document() for result in results},
    }


def _keep(result: Result, warn: Say) -> None:
    """Keep what `plan` goes by, unless the machine was busy."""
    if (result.foreign_cores or 0) > FOREIGN:
        warn(f"Not kept for `pflbench plan`: {result.network} was measured on a busy machine.")
        return
    batch, seconds = result.ready["workload"]["batch"], result.seconds_per_client_step
    try:
        measured = machine.Gradient(batch=batch, seconds_per_client_step=seconds)
        machine.keep_measurements(result.machine, {result.network: measured})
    except OSError as error:
        file = str(machine.file())
        warn(f"Warning: `plan` will not know of this: {file!r} cannot be written ({error.strerror}).")
