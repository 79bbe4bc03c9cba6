"""`pflbench plot`: the figures, from the stored runs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.commands import command
from pflbench.errors import UsageError
from pflbench.selection import Selection
from pflbench.store import ShownStore

if TYPE_CHECKING:
    from pflbench.report.figures.panels import Drawing
    from pflbench.report.reading import Shelf
    from pflbench.store import Store
    from pflbench.suite.cells import Expansion
    from pflbench.suite.document import Document, Suite
    from pflbench.suite.figure import FromRuns, Histogram

FORMATS = ("png", "pdf", "svg", "csv")


@asking(options.PART)
def plot(
    selection: Selection,
    output: Annotated[Path, option("--output", "-o", help="File to write: .png, .pdf, .svg; .csv has the numbers.")],
    curve: Annotated[
        bool, option("--curve", help="Accuracy over rounds: a line for each row, a panel for each column.")
    ] = False,
    against: Annotated[
        str, option("--against", help="With --curve: round, steps, gradients, seconds, or bytes.")
    ] = "round",
    metric: Annotated[
        str, option("--metric", help="With --curve: accuracy, loss, or a metric of the methods (tau).")
    ] = "accuracy",
    per_client: Annotated[
        bool, option("--per-client", help="Sorted accuracies of all seeds' clients after the last scored round.")
    ] = False,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Draw a figure (`pflbench ls suites` names them) from the stored runs, or write the numbers behind it.

    Missing results are left out; the command prints what they are.
    """
    from pflbench.report.figures.curves import curves
    from pflbench.report.figures.each_client import distributions
    from pflbench.report.figures.panels import to_csv

    format = common.format_of(output, FORMATS)
    store = ShownStore(results)
    if curve or per_client:
        drawn = partial(curves, against=against, metric=metric) if curve else distributions
        drawing = _of_any_runs(selection, drawn, store, data_dir)
    else:
        drawing = _figure(selection, store, data_dir)
    if format == "csv":
        content = to_csv(drawing).encode()
    else:
        from pflbench.report.figures.pictures import picture  # which imports matplotlib

        content = picture(drawing, format)
    common.write(output, content)
    for note in drawing.notes:
        console().print(note)
    return 0


def _of_any_runs(
    part: Selection, draw: Callable[[Expansion, Shelf], Drawing], store: Store, data_dir: Path | None
) -> Drawing:
    """Drawing of the stored runs of a selection."""
    from pflbench.report.figures.curves import often
    from pflbench.report.reading import Shelf, readable
    from pflbench.report.tables import one_table

    table = one_table(part, store, readable(store, data_dir))
    drawing = draw(table, Shelf(store))
    if not drawing.panels:
        why = " ".join(fact.text for fact in drawing.facts if fact.kind == "left out")
        makes = f"`{command('run', table.part.options, store.root)} --evaluate-every {often(table)}` makes its runs."
        raise UsageError(f"Nothing of {table.suite} in {str(store.root)!r} can be drawn so. {why or makes}")
    return drawing


def _figure(part: Selection, store: Store, data_dir: Path | None) -> Drawing:
    """The figure that this suite is."""
    from pflbench.report.reading import readable
    from pflbench.suite.figure import Classes, Histogram
    from pflbench.suite.load import figures, load

    if len(part.suites) != 1:
        raise UsageError(f"Which figure? One of {', '.join(figures())}; or of any suite's runs, --curve.")
    suite = load(part.suites[0], readable(store))
    document = suite.document(part.profile or "paper")
    if (figure := document.figure) is None:
        raise UsageError(
            f"{suite.called} is a table, not a figure. Draw its runs with --curve or --per-client, or print it with "
            f"`pflbench report --suite {suite.called}`."
        )
    if isinstance(figure, Histogram):
        return _from_sizes(suite, document, figure, part.seeds)
    if not isinstance(figure, Classes):
        return _from_runs(suite, figure, part, store)
    from pflbench.running.federations import classes

    suite = replace(suite, supplied=replace(suite.supplied, imports=True))  # it is built, as training does
    return classes(suite, part.profile or "paper", figure, next(iter(part.seeds), None), data_dir)


def _from_runs(suite: Suite, figure: FromRuns, part: Selection, store: Store) -> Drawing:
    from pflbench.report.figures.make import draw_runs
    from pflbench.report.reading import Shelf
    from pflbench.report.tables import with_results
    from pflbench.suite.expand import expand

    made = [] if part.profile else with_results(part.but(suites=[suite.called]), store, suite.supplied)
    drawing = draw_runs(made[0] if made else expand(suite, part), figure, Shelf(store))
    if not any(panel.series for panel in drawing.panels):
        every = getattr(figure, "every", None)
        makes = command("run", part.but(suites=[suite.called]).options, store.root)
        makes += f" --evaluate-every {every}" if every else ""
        raise UsageError(f"No results of {suite.name} in {str(store.root)!r} to draw. `{makes}` makes them.")
    return drawing


def _from_sizes(suite: Suite, document: Document, figure: Histogram, seeds: tuple[int, ...]) -> Drawing:
    from pflbench.data.partitions.slicing import RandomSlicing
    from pflbench.report.figures.clients import Slicing
    from pflbench.report.figures.make import draw_sizes
    from pflbench.suite.columns import every_column
    from pflbench.suite.expand import expand

    columns = []
    for column in every_column(suite, document):
        settings, title = column.settings, f"{column.entry.group} {column.entry.title}".strip()
        slicing = RandomSlicing(**settings["partition"].options)
        columns.append(Slicing(title, settings["clients"], slicing, figure.classes, figure.types, figure.per_type))
    return draw_sizes(expand(suite), figure, columns, seeds or range(figure.partitions))
