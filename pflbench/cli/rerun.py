"""`pflbench rerun`: one stored run made again, and held against what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pflbench.cli import options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.running.execution import Execution
from pflbench.store import ShownStore


@asking(execution=("device", "jobs", "memory_limit", "deterministic", "data_dir"))
def rerun(
    run: Annotated[str, typer.Argument(help="A run's id, or enough of its beginning.")],
    execution: Execution,
    code: Annotated[Path | None, option("--code", help="The folder of user-supplied code that it may import.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    quiet: options.Quiet = False,
) -> int:
    """Compute a stored run again from its spec and compare, writing nothing. 1: another result; else 0.

    It prints the numbers that the run's table reads, stored and again. The same bits: every score is equal. Close: the
    numbers differ by at most 2 points, as rounding on another processor may do.

    A run's user-supplied code is imported from the folder --code alone, if it has the run's version.
    """
    from pflbench.cli.progress import Display
    from pflbench.report.stored import named
    from pflbench.running.rerunning import rerun as again

    store = ShownStore(results)
    (stored,) = named(store, [run])
    result = store.read(stored.spec.id)
    with Display(quiet) as display:
        found = again(stored, result, execution, display.event, code)
    console().print(str(found))
    return 0 if found.good else 1
