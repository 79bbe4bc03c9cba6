"""Measuring how fast networks are trained, one after the other, and what is kept of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pflbench.errors import UsageError
from pflbench.running import local, machine, provenance
from pflbench.running.machine import processor
from pflbench.speed.contenders import Options, competing
from pflbench.speed.results import FOREIGN, Result
from pflbench.speed.timing import expected_seconds, time_all
from pflbench.suite.load import folder

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
        machine.keep(result.machine, {result.network: measured})
    except OSError as error:
        file = str(machine.file())
        warn(f"Warning: `plan` will not know of this: {file!r} cannot be written ({error.strerror}).")
