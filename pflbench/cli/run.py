"""`pflbench run`: train and score what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pflbench.cli import common
from pflbench.cli.asking import SELECTORS, asking
from pflbench.cli.outcome import train_part

if TYPE_CHECKING:
    from pflbench.running.execution import Execution
    from pflbench.selection import Selection


@asking(
    SELECTORS,
    (
        *("device", "jobs", "evaluate_every", "memory_limit", "deterministic"),
        *("redo", "data_dir", "unchecked", "fail_fast"),
    ),
)
def run(
    selection: Selection,
    execution: Execution,
    results: common.Results = common.DEFAULT_RESULTS,
    dry_run: common.DryRun = False,
    quiet: common.Quiet = False,
) -> int:
    """Train and score every run of a suite that has no result yet.

    A finished run is kept whatever happens next: interrupt it, and the same command goes on from there.
    """
    execution.check(selection.precision)
    return 0 if train_part(selection, results, execution, quiet=quiet, dry=dry_run) else 1
