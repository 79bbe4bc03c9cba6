"""`pflbench speed` and `info`: how fast training is on this machine, and what there is on it."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console, errors
from pflbench.cli.options import option
from pflbench.data.root import data_root
from pflbench.output import check_writable
from pflbench.running.execution import choose_device
from pflbench.units import count, duration


def speed(
    network: Annotated[
        list[str] | None, option("--network", "-n", help="cnn2, lenet, mlp, or cnn3 (default: all).")
    ] = None,
    against: Annotated[
        list[str] | None, option("--against", help="Also time a peer: pfl (Apple's pfl-research).")
    ] = None,
    passes: Annotated[int, option("--passes", min=1, help="How often the contenders take turns.")] = 5,
    seconds: Annotated[float, option("--seconds", min=0.0, help="Length of one turn, about.")] = 3.0,
    device: Annotated[str, option("--device", help="auto, cpu, cuda, or cuda:0.")] = "auto",
    precision: Annotated[str, option("--precision", help="fp32; bf16 or tf32 (GPU) are timed beside fp32.")] = "fp32",
    cores: Annotated[int | None, option("--cores", min=1, help="Cores to use (default: all).")] = None,
    as_json: Annotated[bool, option("--json", help="Print JSON, not tables.")] = False,
    output: Annotated[Path | None, option("--output", "-o", help="Also write the JSON to this file.")] = None,
    scale: Annotated[str, typer.Option("--scale", hidden=True, help="full, or tiny (for tests).")] = "full",
    execution: Annotated[str | None, typer.Option("--execution", hidden=True, help="loop or vectorized.")] = None,
) -> int:
    """Time local training on this machine: the engine, a careful plain PyTorch loop, and peers, in turn.

    Equal client-steps, training only, made-up data. Also says which share of the machine's rate of matrix products
    training reaches. The numbers are kept for `pflbench plan`.
    """
    from pflbench.running import local
    from pflbench.speed.contenders import NETWORKS, Options
    from pflbench.speed.results import document, how_long, measure

    options = Options(
        networks=tuple(dict.fromkeys(network or NETWORKS)),
        device=choose_device(device),
        cores=cores or local.cores(),
        precision=precision,
        peers=tuple(dict.fromkeys(against or ())),
        passes=passes,
        seconds=seconds,
        scale=scale,
        execution=execution,
    )
    if output is not None:
        check_writable(output)
    errors().print(f"Measuring {count(len(options.networks), 'network')}: about {duration(how_long(options))} in all.")
    results = []
    with errors().status("starting") as status:  # a line on a terminal, nothing elsewhere
        for result in measure(options, on_block=status.update, warn=errors().print):
            results.append(result)
            if not as_json:
                status.stop()
                console().print(result.table())
                status.start()
    text = json.dumps(document(results), indent=2)
    if output is not None:
        common.write(output, f"{text}\n".encode())
    if as_json:
        console().print(text)
    return 0


def info() -> int:
    """Print versions, devices and folders: paste it into a bug report."""
    import torch

    from pflbench.running import provenance
    from pflbench.running.local import cores
    from pflbench.suite.load import folder

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    found = {
        **provenance.versions(),
        **provenance.checkout(),
        "platform": platform.platform(),
        "processor": provenance.device_name("cpu"),
        "cores": cores(),
        "gpus": gpus,
        "data_root": str(data_root()),
        "suites": str(folder()),
    }
    console().print(json.dumps(found, indent=2))
    return 0
