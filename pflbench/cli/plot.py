"""`pflbench plot`: the figures, from the stored runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.errors import UsageError, unknown
from pflbench.selection import Selection
from pflbench.store import Store

if TYPE_CHECKING:
    from pflbench.report.figures.panels import Drawing
    from pflbench.suite.document import Document, Suite
    from pflbench.suite.figure import FromRuns, Histogram

FORMATS = ("csv", "pdf", "png", "svg")


class Command(TyperCommand):
    """The verb; its help ends with the figures there are."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        from pflbench.suite.load import figures

        self.epilog = f"Figures: {', '.join(figures())}."
        super().format_help(ctx, formatter)


Profile = Annotated[str | None, option("--profile", help="Of the runs (default: the first that has results).")]


@asking(("seeds", "rounds"), profile=Profile)
def plot(
    name: Annotated[str, typer.Argument(help="A figure's name, or its .toml file.")],
    output: Annotated[
        Path, option("--output", "-o", help="The file to write: .png, .pdf, .svg; .csv has the numbers.")
    ],
    selection: Selection,
    caption: Annotated[
        bool, option("--caption", help="Write the title above the picture and the notes, printed anyway, below it.")
    ] = False,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Draw a figure from the stored runs, or write the numbers behind it.

    What is not there yet is left out, and a line says so, on the terminal or below the picture.
    """
    from pflbench.report.figures.panels import to_csv
    from pflbench.suite.figure import Classes, Histogram

    format_ = output.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        raise unknown("format of a figure", format_, FORMATS)
    suite = _load(name, results)
    document = suite.document(selection.profile or "paper")
    assert document.figure is not None
    if isinstance(document.figure, Classes):
        from pflbench.running.federations import classes

        seed = selection.seeds[0] if selection.seeds else None
        drawing = classes(suite, selection.profile or "paper", document.figure, seed, data_dir)
    elif isinstance(document.figure, Histogram):
        if selection.profile not in (None, "paper") or selection.rounds is not None:
            raise UsageError(f"{suite.name} shows partitions, no runs: --profile and --rounds say nothing to it.")
        drawing = _from_sizes(suite, document, document.figure, selection.seeds)
    else:
        drawing = _from_runs(suite, document.figure, selection, results)
    if format_ == "csv":
        content = to_csv(drawing).encode()
    else:
        from pflbench.report.figures.pictures import picture  # which imports matplotlib

        content = picture(drawing, format_, caption=caption)
    common.write(output, content)
    for note in drawing.notes:
        console().print(note)
    return 0


def _load(name: str, results: Path) -> Suite:
    """The figure suite of this name or path; a table is none. What is not on this machine is taken from `results`."""
    from pflbench.report.reading import readable
    from pflbench.suite.load import available, figures, load

    if not name.endswith(".toml") and name not in available():
        raise unknown("figure", name, figures())
    suite = load(name, readable(Store(results)))
    if suite.document().figure is None:
        known = ", ".join(figures())
        raise UsageError(f"{name} is a table: `pflbench report --suite {name}` prints it. Figures: {known}.")
    return suite


def _from_runs(suite: Suite, figure: FromRuns, part: Selection, results: Path) -> Drawing:
    from pflbench.reading.tables import with_results
    from pflbench.report.figures.make import draw_runs
    from pflbench.report.reading import Shelf
    from pflbench.suite.expand import expand
    from pflbench.suite.load import figures

    store = Store(results)
    made = [] if part.profile else with_results(part.but(suites=[suite.called]), store, suite.own)
    table = made[0] if made else expand(suite, part)
    drawing = draw_runs(table, figure, Shelf(store))
    if not any(panel.series for panel in drawing.panels):
        # What a command calls it: its name if it comes with pflbench, else its path.
        name = suite.name if figures().get(suite.name) == suite.path else suite.path
        every = getattr(figure, "every", None)
        makes = common.command("run", part.but(suites=[str(name)]), results)
        makes += f" --evaluate-every {every}" if every else ""
        raise UsageError(f"No results of {suite.name} in {str(results)!r} to draw. `{makes}` makes them.")
    return drawing


def _from_sizes(suite: Suite, document: Document, figure: Histogram, seeds: tuple[int, ...]) -> Drawing:
    from pflbench.data.partitions.slicing import RandomSlicing
    from pflbench.report.figures.clients import Slicing
    from pflbench.report.figures.make import draw_sizes
    from pflbench.suite.expand import expand
    from pflbench.suite.resolve import shared

    columns = []
    for index, column in enumerate(document.column):
        settings, title = shared(suite, document, index), f"{column.group} {column.title}".strip()
        slicing = RandomSlicing(**settings["partition"].options)
        columns.append(Slicing(title, settings["clients"], slicing, figure.classes, figure.types, figure.per_type))
    return draw_sizes(expand(suite), figure, columns, seeds or range(figure.partitions))
