"""`pflbench data`: datasets on this machine, downloads, and federations at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import option
from pflbench.data.root import data_root
from pflbench.errors import DataMissing

if TYPE_CHECKING:
    from pflbench.data.source import Dataset

app = typer.Typer(no_args_is_help=True, help="Datasets: status, download, and the clients of a federation.")

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
    """Download missing files; where that is impossible, say which files to put where."""
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


@app.command("show")
def show(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    column: Annotated[str, typer.Argument(help="A column of it, by id.")],
    profile: Annotated[str, option("--profile", help="Profile of the suite: paper, quick, or smoke.")] = "paper",
    seed: Annotated[int | None, option("--seed", min=0, help="Of the partition (default: the suite's first).")] = None,
    output: Annotated[Path | None, option("--output", "-o", help="A picture to draw: .png, .pdf, .svg.")] = None,
    query: Annotated[bool, option("--query", help="Rows that clients are scored on, not those to train on.")] = False,
    every: Annotated[bool, option("--all", help="Show every client, however many there are.")] = False,
    data_dir: options.DataDir = None,
) -> int:
    """Show who holds what in a column's federation: clients and classes, sizes, overlaps, who is held out."""
    from pflbench.running.federations import look

    format = common.format_of(output, ("png", "pdf", "svg"))
    looked = look(suite, column, profile=profile, seed=seed, data_dir=data_dir)
    console().print(looked.holdings.shown(query=query, every=every))
    if output:
        from pflbench.report.figures.federation import holdings_picture  # which imports matplotlib

        common.write(output, holdings_picture(looked.holdings, format, query=query))
    return 0


def _chosen(wanted: list[str] | None) -> dict[str, Dataset]:
    from pflbench.catalog import REQUIRED, describe_options
    from pflbench.names import known, make
    from pflbench.suite.strict import all_known

    references = known("datasets")
    all_known("dataset", wanted or (), references)
    fields = {name: describe_options("datasets", name).fields.values() for name in sorted(references)}
    complete = [name for name, of in fields.items() if not any(field.default is REQUIRED for field in of)]
    return {name: make("datasets", references[name], {}) for name in wanted or complete}
