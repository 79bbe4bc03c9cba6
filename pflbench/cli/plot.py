"""`pflbench plot`: the figures, from the stored runs alone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.errors import StoreError, UsageError, unknown

if TYPE_CHECKING:
    from pflbench.report.figures.drawing import Drawing
    from pflbench.report.figures.sizes import Slicing
    from pflbench.suite.document import Document, Suite
    from pflbench.suite.figure import FromRuns, Histogram

FORMATS = ("csv", "pdf", "png", "svg")


class Command(TyperCommand):
    """The verb; its help ends with the figures there are."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        self.epilog = f"Figures: {', '.join(figures())}."
        super().format_help(ctx, formatter)


def plot(
    name: Annotated[str, typer.Argument(help="A figure's name, or its .toml file.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            envvar="PFLBENCH_OUTPUT",
            help="The file to write: .png, .pdf, .svg; .csv has the numbers.",
        ),
    ],
    profile: common.Profile = "paper",
    seeds: common.Seeds = None,
    rounds: common.Rounds = None,
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Draw a figure from the stored runs, or write the numbers behind it.

    What is not there yet is left out, and a line under the figure says so.
    """
    from pflbench.suite.figure import Histogram

    format_ = output.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise unknown("format of a figure", format_, FORMATS)
    suite = _load(name, results)
    document = suite.document(profile)
    assert document.figure is not None
    if isinstance(document.figure, Histogram):
        if profile != "paper" or rounds is not None:
            raise UsageError(f"{suite.name} shows partitions, no runs: --profile and --rounds say nothing to it.")
        drawing = _from_sizes(suite, document, document.figure, seeds)
    else:
        drawing = _from_runs(suite, document.figure, profile, seeds, rounds, results)
    _write(drawing, format_, output)
    for note in drawing.notes:
        console().print(note)
    return 0


def figures() -> dict[str, Path]:
    """The suites that come with pflbench and are figures: their file has a `[figure]`."""
    from pflbench.suite.load import available, read_toml

    # Parsing a file costs more than looking whether the word is there at all.
    candidates = {name: path for name, path in available().items() if "[figure" in path.read_text(encoding="utf-8")}
    return {name: path for name, path in candidates.items() if "figure" in read_toml(path)}


def _load(name: str, results: Path) -> Suite:
    """The figure suite of this name or path; a table is none. What is not on this machine is taken from `results`."""
    from pflbench.report.inputs import readable
    from pflbench.store import Store
    from pflbench.suite.load import available, load

    if not name.endswith(".toml") and name not in available():
        raise unknown("figure", name, figures())
    suite = load(name, readable(Store(results)))
    if suite.document().figure is None:
        known = ", ".join(figures())
        raise UsageError(f"{name} is a table: `pflbench report --suite {name}` prints it. Figures: {known}.")
    return suite


def _from_runs(
    suite: Suite, figure: FromRuns, profile: str, seeds: str | None, rounds: int | None, results: Path
) -> Drawing:
    from pflbench.report.figures.make import draw_runs
    from pflbench.report.inputs import table_input
    from pflbench.report.shelf import Shelf
    from pflbench.store import Store
    from pflbench.suite.expand import expand, parse_seeds

    table = expand(suite, profile=profile, seeds=parse_seeds(seeds) if seeds else None, rounds=rounds)
    drawing = draw_runs(table_input(table), figure, Shelf(Store(results)))
    if not any(panel.series for panel in drawing.panels):
        options = {
            "--profile": None if profile == "paper" else profile,
            "--seeds": seeds,
            "--rounds": rounds,
            "--results": None if results == common.DEFAULT_RESULTS else results,
            "--evaluate-every": getattr(figure, "every", None),
        }
        words = [word for key, value in options.items() if value is not None for word in (key, str(value))]
        makes = shlex.join(["pflbench", "run", "--suite", str(_named(suite)), *words])
        raise UsageError(f"No results of {suite.name} in {str(results)!r} to draw. `{makes}` makes them.")
    return drawing


def _named(suite: Suite) -> str | Path:
    """What a command calls it: its name if it comes with pflbench, else its path."""
    return suite.name if figures().get(suite.name) == suite.path else suite.path


def _from_sizes(suite: Suite, document: Document, figure: Histogram, seeds: str | None) -> Drawing:
    from pflbench.report.figures.make import draw_sizes
    from pflbench.report.inputs import table_input
    from pflbench.suite.expand import expand, parse_seeds

    drawn = parse_seeds(seeds) if seeds else range(figure.partitions)
    columns = [_slicing(suite, document, figure, index) for index in range(len(document.column))]
    return draw_sizes(table_input(expand(suite)), figure, columns, drawn)


def _slicing(suite: Suite, document: Document, figure: Histogram, index: int) -> Slicing:
    from pflbench.data.slicing import RandomSlicing
    from pflbench.report.figures.sizes import Shape, Slicing
    from pflbench.suite.resolve import shared

    column, settings = document.column[index], shared(suite, document, index)
    shape = Shape(figure.classes, figure.types, figure.per_type)
    title = f"{column.group} {column.title}".strip()
    return Slicing(title, settings["clients"], RandomSlicing(**settings["partition"].options), shape)


def _write(drawing: Drawing, format_: str, output: Path) -> None:
    if format_ == "csv":
        from pflbench.report.figures.drawing import to_csv

        content = to_csv(drawing).encode()
    else:
        from pflbench.report.figures.draw import picture

        content = picture(drawing, format_)
    try:
        output.write_bytes(content)
    except OSError as error:
        raise StoreError(f"Cannot write {str(output)!r}: {error.strerror or error}.") from error
