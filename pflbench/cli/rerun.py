"""`pflbench rerun`: one stored run computed again, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pflbench.cli import options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.running.execution import Execution


@asking(execution=("device", "jobs", "memory_limit", "deterministic", "data_dir"))
def rerun(
    run: Annotated[str, typer.Argument(help="A run's id, or a prefix of it.")],
    execution: Execution,
    code: Annotated[Path | None, option("--code", help="The folder of user-supplied code that it may import.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    quiet: options.Quiet = False,
) -> int:
    """Compute a stored run again from its spec and compare, writing nothing. 1: another result; else 0.

    The verdict: the same bits (every score is equal), close (the mean accuracy at the last moment of each
    stage differs by at most 2 points, as rounding on another processor may do), or another result.

    A run's user-supplied code is imported from the folder --code alone, if it has the run's version.
    """
    from pflbench import api
    from pflbench.cli.progress import Display

    with Display(quiet) as display:
        compared = api.rerun(run, results, code=code, execution=execution, on_event=display.event)
    console().print(str(compared))
    return 0 if compared.good else 1
