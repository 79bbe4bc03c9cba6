"""`pflbench data`: which datasets are there, and fetching them."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.errors import unknown

app = typer.Typer(no_args_is_help=True, help="Datasets: what is there, and fetching what is not.")

Names = Annotated[list[str] | None, typer.Argument(help="Datasets (default: all).")]


@app.command("status")
def status(names: Names = None, data_dir: common.DataDir = None) -> int:
    """Say for each dataset whether it is ready, and which files are missing otherwise."""
    from pflbench.data.root import data_root

    root = data_root(data_dir)
    console().print(f"data root: {root}")
    for name in _chosen(names):
        console().print(f"{name:<16} {_dataset(name).status(root)}")
    return 0


@app.command("fetch")
def fetch(names: Names = None, data_dir: common.DataDir = None) -> int:
    """Download what is missing; where that is impossible, say which files to put where."""
    from pflbench.cli.common import errors
    from pflbench.data.root import data_root
    from pflbench.errors import DataMissing

    root = data_root(data_dir)
    code = 0
    for name in _chosen(names):
        try:
            _dataset(name).fetch(root)
            console().print(f"{name:<16} {_dataset(name).status(root)}")
        except DataMissing as error:
            errors().print(f"Error: {error}")
            code = 1
    return code


def _chosen(wanted: list[str] | None) -> list[str]:
    from pflbench.names import known

    there = known("datasets")
    for name in wanted or ():
        if name not in there:
            raise unknown("dataset", name, there)
    return wanted or sorted(there)


def _dataset(name: str):  # type: ignore[no-untyped-def]  # a pflbench.data.source.Dataset, which must not be imported here
    from pflbench.names import resolve

    return resolve("datasets", name)()
