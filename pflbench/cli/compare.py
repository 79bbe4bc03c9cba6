"""`pflbench compare`: differences between two results folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pflbench.cli import common, options
from pflbench.cli.common import errors
from pflbench.cli.options import asking, option
from pflbench.selection import Selection

FORMATS: tuple[Literal["terminal", "markdown", "csv"], ...] = ("terminal", "markdown", "csv")
PLACE = "A results folder, or packaged (the runs that came with pflbench)."


@asking(
    ("suites", "methods", "datasets", "clients", "partitions", "columns", "seeds", "rounds", "precision"),
    profile=Annotated[str | None, option("--profile", help="Only this one (default: each that has results).")],
)
def compare(
    a: Annotated[str, typer.Argument(help=PLACE)],
    b: Annotated[str, typer.Argument(help="Another one, which is held against the first.")],
    selection: Selection,
    only_changed: Annotated[bool, option("--only-changed", help="Only cells that are worse or better.")] = False,
    fail_if_drop: Annotated[
        float | None,
        option(
            "--fail-if-drop",
            min=0.0,
            metavar="N",
            help="End with 1 if a cell falls by more than N points, beyond noise or with one shared seed.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        option("--format", help="terminal, markdown, or csv (a line per cell). Default: by the suffix of -o."),
    ] = None,
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file instead.")] = None,
    data_dir: options.DataDir = None,
) -> int:
    """Compare two results folders cell by cell: B minus A, paired by seed.

    A cell moved if the 95 % interval of its difference excludes 0. The same runs with the same scores are the same, and
    so are those that differ by rounding (0.1 points in each seed). One seed in common gives a difference, no interval.
    """
    from pflbench.report.compare import compare_folders as compared
    from pflbench.report.compare_text import comparison_text

    format = common.format_of(format_, output, FORMATS)
    found = compared(a, b, selection, data_dir)
    common.put(comparison_text(found, format, only_changed=only_changed), output)
    dropped = [] if fail_if_drop is None else [one for one in found.pairs if one.drops(fail_if_drop)]
    for one in dropped:
        errors().print(f"Dropped by more than {fail_if_drop:g} points: {one.name}: {one.difference:+.2f}.")
    return 1 if dropped else 0
