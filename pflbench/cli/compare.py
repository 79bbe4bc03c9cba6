"""`pflbench compare`: what moved between two results folders, or two commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pflbench.cli import common, options
from pflbench.cli.common import errors
from pflbench.cli.options import asking, option
from pflbench.errors import unknown
from pflbench.selection import Selection

FORMATS: tuple[Literal["terminal", "markdown", "csv"], ...] = ("terminal", "markdown", "csv")
PLACE = "A results folder, git:COMMIT (of the repository here; git:COMMIT:FOLDER), or packaged."


@asking(
    ("suites", "methods", "datasets", "clients", "partitions", "columns", "seeds", "rounds", "precision"),
    profile=Annotated[str | None, option("--profile", help="Only this one (default: each that has results).")],
)
def compare(
    a: Annotated[str, typer.Argument(help=PLACE)],
    b: Annotated[str, typer.Argument(help="Another one, which is held against the first.")],
    selection: Selection,
    only_changed: Annotated[bool, option("--only-changed", help="Only cells that are worse or better.")] = False,
    sort: Annotated[
        str | None,
        option("--sort", help="name, factor, or difference, what fell most first (default: as in the tables)."),
    ] = None,
    factor: Annotated[
        float, option("--factor", min=1.0, help="A mean that changes by less than this factor counts as the same.")
    ] = 1.0,
    split: Annotated[
        bool, option("--split/--no-split", help="What is worse, better, the same … in lists of their own.")
    ] = True,
    fail_if_drop: Annotated[
        float | None,
        option("--fail-if-drop", min=0.0, help="End with 1 if a cell falls by more than so many points, beyond noise."),
    ] = None,
    format_: Annotated[
        str | None,
        option("--format", help="terminal, markdown, or csv (a line per cell). Default: by the suffix of -o."),
    ] = None,
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file instead.")] = None,
    data_dir: options.DataDir = None,
) -> int:
    """Say cell by cell what moved between two results folders: B against A, paired by seed and client.

    A cell moved if the 95 % interval of its difference excludes 0. The same runs with the same scores are the same, and
    so are those that differ by rounding (0.1 points in each seed). With one seed in common clients are paired, which
    says nothing of other seeds.
    """
    from pflbench.report.compare import compare_folders as compared
    from pflbench.report.compare_text import SORTS, comparison_text

    format = common.format_of(format_, output, FORMATS)
    if sort is not None and sort not in SORTS:
        raise unknown("order", sort, SORTS)
    found = compared(a, b, selection, data_dir)
    said = comparison_text(found, format, factor=factor, only_changed=only_changed, sort=sort, split=split)  # type: ignore[arg-type]
    common.put(said, output)
    dropped = [] if fail_if_drop is None else [one for one in found.pairs if one.drops(fail_if_drop)]
    for one in dropped:
        errors().print(f"Dropped by more than {fail_if_drop:g} points: {one.name}: {one.difference:+.2f}.")
    return 1 if dropped else 0
