"""`pflbench scores`: the scores of stored runs as one long table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.asking import WANTED, asking
from pflbench.cli.common import console, errors
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.selection import Wanted


@asking(wanted=[name for name in WANTED if name not in ("failed", "trials")])
def scores(
    wanted: Wanted,
    trials: Annotated[
        bool, typer.Option("--trials", envvar="PFLBENCH_TRIALS", help="The trials of `pflbench tune` instead.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", envvar="PFLBENCH_OUTPUT", help="A .csv or .parquet file (default: CSV, here)."),
    ] = None,
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Write the scores of finished runs as one table: a line per run, stage, round, fine-tuning step and client.

    With --suite: the runs of its tables, each where it stands there; a run of two suites stands in both. Without: every
    run that is asked for, once, with the first suite that asks for it, if there is one. Lines that a table averages
    have `in_table`: the mean of their `accuracy` is the table's number. Trials of `pflbench tune` are left out, since
    they are not scored on test images; --trials has them alone.
    """
    from pflbench.reading.scores import scores, write, write_open
    from pflbench.reading.stored import other_seeds
    from pflbench.report.text import ranges
    from pflbench.store import Store

    wanted, store = replace(wanted, trials=trials), Store(results)
    tables = scores(store, wanted)
    if output is None:
        write_open(tables, sys.stdout.buffer)
    else:
        lines = write(tables, output)
        console().print(f"Written: {count(lines, 'line')} to {str(output)!r}.")
    if further := other_seeds(store, wanted):
        errors().print(f"Left out: runs with seeds that no suite asks for ({ranges(further)}); name them with --seeds.")
    return 0
