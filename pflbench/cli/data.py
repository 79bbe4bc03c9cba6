"""`pflbench data`: which datasets are there, and fetching them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import options
from pflbench.cli.common import console, errors
from pflbench.data.root import data_root
from pflbench.errors import DataMissing, unknown

if TYPE_CHECKING:
    from pflbench.data.source import Dataset

app = typer.Typer(no_args_is_help=True, help="Datasets: what is there, and fetching what is not.")

Names = Annotated[list[str] | None, typer.Argument(help="Datasets (default: all).")]


@app.command("status")
def status(names: Names = None, data_dir: options.DataDir = None) -> int:
    """Say for each dataset whether it is ready, and which files are missing otherwise."""
    root = data_root(data_dir)
    console().print(f"data root: {root}")
    for name, dataset in _chosen(names).items():
        console().print(f"{name:<16} {dataset.status(root)}")
    return 0


@app.command("fetch")
def fetch(names: Names = None, data_dir: options.DataDir = None) -> int:
    """Download what is missing; where that is impossible, say which files to put where."""
    root = data_root(data_dir)
    code = 0
    for name, dataset in _chosen(names).items():
        try:
            dataset.fetch(root)
            console().print(f"{name:<16} {dataset.status(root)}")
        except DataMissing as error:
            errors().print(f"Error: {error}")
            code = 1
    return code


def _chosen(wanted: list[str] | None) -> dict[str, Dataset]:
    from pflbench.names import known, make

    there = known("datasets")
    for name in wanted or ():
        if name not in there:
            raise unknown("dataset", name, there)
    return {name: make("datasets", there[name], {}) for name in wanted or sorted(there) if wanted or _complete(name)}


def _complete(name: str) -> bool:
    """Whether a dataset is one without any option: those that read a user's own files are not."""
    from pflbench.catalog import REQUIRED, describe_options

    return all(field.default is not REQUIRED for field in describe_options("datasets", name).fields.values())
