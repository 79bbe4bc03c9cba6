"""`pflbench explain`: what one cell of a table rests on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.asking import asking
from pflbench.cli.common import console

if TYPE_CHECKING:
    from pflbench.selection import Selection

WIDEST = 100


@asking(("profile", "rounds", "seeds", "set_"))
def explain(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    row: Annotated[str, typer.Argument(help="A row's id or title; of your own, file.py:Class or its title.")],
    column: Annotated[str, typer.Argument(help="A column's id or title.")],
    selection: Selection,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage", envvar="PFLBENCH_STAGE", help="Where the row is shown at several: which, or its title."
        ),
    ] = None,
    data: Annotated[
        bool,
        typer.Option(
            "--data/--no-data", envvar="PFLBENCH_DATA", help="Build the federation from its dataset to describe it."
        ),
    ] = True,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
) -> int:
    """Say of one cell what its number rests on, how it stands beside the paper's, and what may be concluded.

    Values with their sources, trials behind the tuned ones, departures from the paper, the federation, the runs.
    """
    from pflbench.data.root import data_root
    from pflbench.reading.explained import text
    from pflbench.reading.explaining import explain
    from pflbench.report.text import fitting
    from pflbench.store import Store

    root = data_root(data_dir) if data else None
    found = explain(suite, row, column, Store(results), selection, stage=stage, root=root)
    width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
    out = console()
    out.out(fitting(text(found, width), out.encoding), end="", highlight=False)
    return 0
