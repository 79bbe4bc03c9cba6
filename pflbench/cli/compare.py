"""`pflbench compare`: differences between two results folders."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from pflbench.cli import common, options
from pflbench.cli.common import errors
from pflbench.cli.options import asking, option
from pflbench.selection import Selection

FOLDER = "A results folder, or packaged (the runs that came with pflbench)."


@asking(options.PART)
def compare(
    a: Annotated[str, typer.Argument(help=FOLDER)],
    b: Annotated[str, typer.Argument(help="Another one, compared with the first.")],
    selection: Selection,
    only_changed: Annotated[bool, option("--only-changed", help="Only cells that are worse or better.")] = False,
    fail_if_drop: Annotated[
        float | None,
        option("--fail-if-drop", min=0.0, metavar="N", help="Exit with 1 if a cell drops by more than N points."),
    ] = None,
    format_: Annotated[
        str | None,
        option("--format", help="terminal, markdown, or csv (a line per cell). Default: by the suffix of -o."),
    ] = None,
    output: options.Output = None,
    data_dir: options.DataDir = None,
) -> int:
    """Compare two results folders cell by cell: B minus A, paired by seed.

    A cell moved if the 95 % interval of its difference excludes 0. The same runs with the same scores are the same, and
    so are those that differ by rounding (0.1 points in each seed). One seed in common gives a difference, no interval.
    """
    from pflbench import api
    from pflbench.report.compare_text import Format, comparison_text

    format = common.format_of(output, get_args(Format), format_)
    compared = api.compare(a, b, selection, data_dir=data_dir)
    common.put(comparison_text(compared.content, format, only_changed=only_changed), output)
    dropped = [] if fail_if_drop is None else compared.dropped(fail_if_drop)
    for name in dropped:
        errors().print(f"Dropped by more than {fail_if_drop:g} points: {name}.")
    return 1 if dropped else 0
