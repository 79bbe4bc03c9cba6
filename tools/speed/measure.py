"""Time training on this machine, in turn: the engine, a careful plain PyTorch loop, and peers.

    python tools/speed/measure.py                        # all networks, about 14 minutes on two cores
    python tools/speed/measure.py -n cnn2 --against pfl  # one network, and Apple's pfl-research

A ratio is formed within a pass, and is the median of the passes' ratios; its spread is their range. Where a program may
use several thread counts it is given several, and the best (by its median) stands for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from contenders import (
    ALONE,
    COUNTED,
    EXECUTIONS,
    NETWORKS,
    PEERS,
    PRECISIONS,
    SCALES,
    Field,
    Options,
    Pairing,
    competing,
)
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from timing import Answer, Timing, expected_seconds, time_all

from pflbench.errors import PflbenchError, UsageError
from pflbench.running import local, provenance
from pflbench.running.execution import choose_device
from pflbench.running.machine import processor
from pflbench.units import count, duration

HERE = Path(__file__).parent
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
    options: Options, *, on_block: Say = lambda _: None, warn: Say = lambda _: None, scripts: Path = HERE
) -> Iterator[Result]:
    """Time all contenders on each network; yield a network's result once it is measured.

    `on_block` receives what is being timed, `warn` what makes the numbers untrustworthy. `scripts`: folder of the
    contenders' programs.

    Raises:
        UsageError: tf32 on a processor, more cores than the machine has, or a contender that cannot start.
        PflbenchError: A contender died.
    """
    if options.precision == "tf32" and options.device == "cpu":
        raise UsageError("--precision tf32 is a format of GPUs. Write fp32 or bf16 on a processor.")
    if options.cores > local.cores():
        raise UsageError(f"--cores {options.cores}: this machine has {local.cores()}, and each gets a run of its own.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if load is not None and load > BUSY:
        warn(f"Warning: this machine is busy (load average {load:.1f}); do not trust these numbers.")
    for network in options.networks:
        field = competing(network, options)
        timings = time_all(
            field.contenders,
            scripts,
            passes=options.passes,
            seconds=options.seconds,
            on_block=lambda text, network=network: on_block(f"{network} · {text}"),  # type: ignore[misc]
        )
        yield Result(network, options, field, timings, load)


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


def arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--network", action="append", choices=NETWORKS, help="default: all")
    parser.add_argument("--against", action="append", choices=PEERS, default=[], help="also time a peer")
    parser.add_argument("--passes", type=int, default=5, help="number of turns of each contender")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one turn, about")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, or cuda:0")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="bf16 and tf32 are timed beside fp32")
    parser.add_argument("--cores", type=int, default=local.cores(), help="default: all")
    parser.add_argument("-o", "--output", type=Path, help="also write the raw blocks to this file, as JSON")
    parser.add_argument("--scale", choices=SCALES, default="full", help="tiny is for tests, never for numbers")
    parser.add_argument("--execution", choices=EXECUTIONS, help="default: loop on a processor, vectorized on a GPU")
    return parser.parse_args()


def main() -> int:
    """Measure and print each network, then write the file; return the exit code."""
    chosen = arguments()
    try:
        options = Options(
            networks=tuple(dict.fromkeys(chosen.network or NETWORKS)),
            device=choose_device(chosen.device),
            cores=chosen.cores,
            precision=chosen.precision,
            peers=tuple(chosen.against),
            passes=chosen.passes,
            seconds=chosen.seconds,
            scale=chosen.scale,
            execution=chosen.execution,
        )
        warn = Console(stderr=True).print
        warn(f"Measuring {count(len(options.networks), 'network')}: about {duration(how_long(options))} in all.")
        results = []
        for result in measure(options, warn=warn):
            results.append(result)
            Console().print(result.table())
    except PflbenchError as error:
        print(error, file=sys.stderr)
        return error.code
    if chosen.output:
        chosen.output.write_text(json.dumps(document(results), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
