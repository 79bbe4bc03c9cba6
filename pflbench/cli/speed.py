"""`pflbench speed`: how fast training is on this machine, next to a careful loop in plain PyTorch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pflbench.cli import common
from pflbench.cli.common import console, errors
from pflbench.cli.run import choose_device
from pflbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from pflbench.executor.lineup import Options
    from pflbench.executor.throughput import OnBlock, Result, Spread

BUSY = 0.5  # load average above which others are at work
FOREIGN = 0.1  # cores


def speed(
    network: Annotated[
        list[str] | None,
        typer.Option("--network", "-n", envvar="PFLBENCH_NETWORK", help="cnn2, lenet, mlp, or cnn3 (default: all)."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", envvar="PFLBENCH_AGAINST", help="Also time a peer: pfl (Apple's pfl-research)."),
    ] = None,
    passes: Annotated[
        int, typer.Option("--passes", min=1, envvar="PFLBENCH_PASSES", help="How often the contenders take turns.")
    ] = 5,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, envvar="PFLBENCH_SECONDS", help="Length of one turn, about.")
    ] = 3.0,
    device: Annotated[
        str, typer.Option("--device", envvar="PFLBENCH_DEVICE", help="auto, cpu, cuda, or cuda:0.")
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            "--precision", envvar="PFLBENCH_PRECISION", help="fp32; bf16 or tf32 (GPU) are timed beside fp32."
        ),
    ] = "fp32",
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, envvar="PFLBENCH_CORES", help="Cores to use (default: all).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", envvar="PFLBENCH_JSON", help="Print JSON, not tables.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", envvar="PFLBENCH_OUTPUT", help="Also write the JSON to this file.")
    ] = None,
    scale: Annotated[str, typer.Option("--scale", hidden=True, help="full, or tiny (for tests).")] = "full",
    execution: Annotated[str | None, typer.Option("--execution", hidden=True, help="loop or vectorized.")] = None,
) -> int:
    """Time local training on this machine: the engine, a careful plain PyTorch loop, and peers, in turn.

    Equal client-steps, training only, made-up data. The numbers are kept for `pflbench plan`.
    """
    from pflbench.executor.lineup import NETWORKS, Options, competing
    from pflbench.executor.local import cores as available
    from pflbench.executor.throughput import compete
    from pflbench.suite.load import folder

    for known, value, kind in ((("full", "tiny"), scale, "scale"), (("loop", "vectorized"), execution, "execution")):
        if value is not None and value not in known:
            raise unknown(kind, value, known)
    if cores is not None and cores > available():
        raise UsageError(f"--cores {cores}: this machine has {available()}, and each gets a run of its own.")
    options = Options(
        device=choose_device(device),
        cores=cores or available(),
        precision=precision,
        peers=tuple(dict.fromkeys(against or ())),
        scale=scale,
        execution=execution,
    )
    networks = list(dict.fromkeys(network or NETWORKS))
    fields = [competing(name, options) for name in networks]  # a wrong name is an error before anything is timed
    if output is not None:
        _check_writable(output)
    load = _load()
    if load is not None and load > BUSY:
        errors().print(f"Warning: this machine is busy (load average {load:.1f}); do not trust these numbers.")
    blocks = sum(len(field.contenders) for field in fields) * (passes + 1)
    found = []
    with _Status(minutes=blocks * (seconds + 0.25) / 60) as say:
        for name in networks:
            say(name)
            found.append(
                compete(
                    name,
                    options,
                    folder() / "speed",
                    passes=passes,
                    seconds=seconds,
                    on_block=lambda text, name=name: say(f"{name} · {text}"),  # type: ignore[misc]
                )
            )
    document = _document(found, options, passes, seconds, load)
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if as_json:
        console().print(json.dumps(document, indent=2))
    else:
        for result in found:
            console().print(_table(result, document))
    if scale == "full" and execution is None:
        _remember(found, document)
    return 0


def _load() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _check_writable(output: Path) -> None:
    try:
        with output.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise UsageError(f"Cannot write {str(output)!r}: {error.strerror or error}.") from error


class _Status:
    """One line on a terminal that says what is being timed; silent elsewhere."""

    def __init__(self, minutes: float):
        shown = Console(stderr=True, **common.PLAIN)
        self.minutes = minutes
        self.status = shown.status("starting") if shown.is_terminal else None

    def __enter__(self) -> OnBlock:
        if self.status:
            self.status.start()
        return self.say

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()

    def say(self, text: str) -> None:
        if self.status:
            self.status.update(f"{text} (about {max(1, round(self.minutes))} min in all)")


def _document(found: list[Result], options: Options, passes: int, seconds: float, load: float | None) -> dict[str, Any]:
    from pflbench.executor import provenance
    from pflbench.executor.measured import processor

    ready = found[0].timings[found[0].field.alone].ready
    return {
        "schema": 1,
        "what": "training only, equal client-steps",
        "machine": {
            "device": processor() if options.device == "cpu" else ready["device"],
            "processor": processor(),
            "cores": options.cores,
            "load_before": load,
        },
        "versions": provenance.versions(),
        **provenance.code(),
        "options": {
            "device": options.device,
            "precision": options.precision,
            "against": list(options.peers),
            "passes": passes,
            "seconds": seconds,
            "scale": options.scale,
            "execution": "vectorized" if options.stacked else "loop",
        },
        "networks": {result.network: result.document() for result in found},
    }


def _table(result: Result, document: dict[str, Any]) -> Table:
    work = result.timings[result.field.alone].ready["workload"]
    machine, versions = document["machine"], document["versions"]
    foreign = result.foreign_cores
    notes = [f"{machine['device']}, {common.count(machine['cores'], 'core')}; torch {versions['torch']}"]
    notes += [f"load average before: {machine['load_before']:.2f}"] if machine["load_before"] is not None else []
    if foreign is not None:
        busy = ": do not trust these numbers" if foreign > FOREIGN else ""
        notes.append(f"other processes took up to {foreign:.2f} cores{busy}")
    grid = Table(
        title=f"{result.network} · {work['clients']} clients × {work['steps']} steps × batch {work['batch']}"
        f" · {document['what']}",
        caption="; ".join(notes) + ". Medians over passes (range).",
        title_justify="left",
        caption_justify="left",
        box=SIMPLE,
        pad_edge=False,
    )
    grid.add_column("")
    for head in ("steps/s", "ms/step", "times as fast"):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("as")
    titles = {c.id: c.title for c in result.field.contenders}
    for line in result.lines:
        ratio = _spread(line.ratio) if line.ratio else "–"
        each = _short(1000 / line.rate.median)
        grid.add_row(
            titles[line.contender], _short(line.rate.median), each, ratio, titles[line.against] if line.against else ""
        )
    return grid


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _spread(values: Spread) -> str:
    return f"{values.median:.2f} ({values.min:.2f}–{values.max:.2f})"


def _remember(found: list[Result], document: dict[str, Any]) -> None:
    from pflbench.executor.measured import Measured, file, remember

    versions = document["versions"]
    networks: dict[str, Measured] = {}
    for result in found:
        if (result.foreign_cores or 0) > FOREIGN:
            errors().print(f"Not kept for `pflbench plan`: {result.network} was measured on a busy machine.")
            continue
        networks[result.network] = {
            "batch": result.timings[result.field.alone].ready["workload"]["batch"],
            "seconds_per_client_step": result.seconds_per_client_step,
            "torch": versions["torch"],
            "pflbench": versions["pflbench"],
        }
    try:
        remember(document["machine"]["device"], networks)
    except OSError as error:
        errors().print(f"Warning: `plan` will not know of this: {str(file())!r} cannot be written ({error.strerror}).")
