"""`pflbench data`: which datasets are there, fetching them, and looking at federations made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import option
from pflbench.data.root import data_root
from pflbench.errors import DataMissing, unknown

if TYPE_CHECKING:
    from pflbench.data.source import Dataset

app = typer.Typer(no_args_is_help=True, help="Datasets: what is there, fetching what is not, and who holds what.")

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


PICTURES = ("pdf", "png", "svg")
Seed: Any = Annotated[int | None, option("--seed", min=0, help="Of the partition (default: the suite's first).")]
Profile: Any = Annotated[str, option("--profile", help="Which profile of the suite: paper, quick, or smoke.")]
Output: Any = Annotated[Path | None, option("--output", "-o", help="A picture to draw: .png, .pdf, .svg.")]
Query: Any = Annotated[
    bool, option("--query", help="Show the rows that clients are scored on, not those they train on.")
]
All: Any = Annotated[bool, option("--all", help="Show every client, however many there are.")]


@app.command("show")
def show(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    column: Annotated[str, typer.Argument(help="A column of it, by id.")],
    profile: Profile = "paper",
    seed: Seed = None,
    output: Output = None,
    query: Query = False,
    every: All = False,
    data_dir: options.DataDir = None,
) -> int:
    """Show who holds what in a column's federation: clients and classes, sizes, overlaps, who is held out."""
    from pflbench.running.federations import look

    form = output.suffix.lower().removeprefix(".") if output else ""
    if output and form not in PICTURES:
        raise unknown("format of a picture", form, PICTURES)
    looked = look(suite, column, profile=profile, seed=seed, data_dir=data_dir)
    console().print(looked.holdings.shown(query=query, every=every))
    if output:
        from pflbench.report.figures.federation import holdings_picture  # which imports matplotlib

        common.write(output, holdings_picture(looked.holdings, form, query=query))
    return 0


def _chosen(wanted: list[str] | None) -> dict[str, Dataset]:
    from pflbench.names import known, make

    there = known("datasets")
    for name in wanted or ():
        if name not in there:
            raise unknown("dataset", name, there)
    return {name: make("datasets", there[name], {}) for name in wanted or sorted(there) if wanted or _complete(name)}


def _complete(name: str) -> bool:
    """True if a dataset has no options: one that reads a user's own files has some."""
    from pflbench.catalog import REQUIRED, describe_options

    return all(field.default is not REQUIRED for field in describe_options("datasets", name).fields.values())
