"""`pflbench plot`: the figures, from the stored runs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.commands import command
from pflbench.errors import UsageError, unknown
from pflbench.selection import Selection
from pflbench.store import ShownStore

if TYPE_CHECKING:
    from pflbench.report.figures.panels import Drawing
    from pflbench.report.reading import Shelf
    from pflbench.store import Store
    from pflbench.suite.cells import Expansion
    from pflbench.suite.document import Document, Suite
    from pflbench.suite.figure import FromRuns, Histogram

FORMATS = ("csv", "pdf", "png", "svg")


class Command(TyperCommand):
    """The verb; its help ends with the figures there are."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        from pflbench.suite.load import figures

        self.epilog = f"Figures: {', '.join(figures())}. {common.VARIABLES}"
        super().format_help(ctx, formatter)


Profile = Annotated[str | None, option("--profile", help="Of the runs (default: the first that has results).")]


_PARTS = ("suites", "methods", "datasets", "clients", "partitions", "columns", "seeds", "rounds", "precision")
_CURVES = "Of any stored runs"


@asking(_PARTS, profile=Profile)
def plot(
    selection: Selection,
    name: Annotated[
        str | None, typer.Argument(help="A figure's or any suite's name (`pflbench ls suites`), or its .toml file.")
    ] = None,
    curve: Annotated[
        bool,
        option(
            "--curve",
            help="Accuracy against the round: a line for each row, a panel for each column.",
            rich_help_panel=_CURVES,
        ),
    ] = False,
    against: Annotated[
        str | None,
        option(
            "--against",
            help="With --curve: round (as a rule), steps, gradients, seconds, or bytes.",
            rich_help_panel=_CURVES,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        option(
            "--metric",
            help="With --curve: accuracy (as a rule), loss, or what the methods report about clients (tau).",
            rich_help_panel=_CURVES,
        ),
    ] = None,
    per_client: Annotated[
        bool,
        option(
            "--per-client",
            help="How accurate the models are for each client, of all seeds, after the last scored round.",
            rich_help_panel=_CURVES,
        ),
    ] = False,
    kind: Annotated[
        str | None,
        option("--kind", help="With --per-client: sorted (as a rule), or violins.", rich_help_panel=_CURVES),
    ] = None,
    output: Annotated[
        Path | None,
        option("--output", "-o", help="File to write (required): .png, .pdf, .svg; .csv has the numbers."),
    ] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Draw a figure from the stored runs, or write the numbers behind it.

    Missing results are left out; the command prints what they are.
    """
    from pflbench.report.figures.panels import to_csv

    if output is None:
        raise UsageError("No file to write: add `-o figure.png`. A table's runs also need `--curve` or `--per-client`.")
    format_ = output.suffix.lower().removeprefix(".")
    if format_ not in FORMATS:
        known = ", ".join(f".{one}" for one in FORMATS)
        raise UsageError(f"`-o {output}`: the suffix {output.suffix!r} is no format of a figure. Use one of: {known}.")
    part = selection.but(suites=[*filter(None, [name]), *selection.suites])
    asked = {"--curve": curve, "--per-client": per_client}
    _check(
        asked, {"--against": ("--curve", against), "--metric": ("--curve", metric), "--kind": ("--per-client", kind)}
    )
    store = ShownStore(results)
    if any(asked.values()):

        def draw(table: Expansion, shelf: Shelf) -> Drawing:
            from pflbench.report.figures import curves, each_client

            if curve:
                return curves.curves(table, shelf, against or "round", metric or "accuracy")
            return each_client.distributions(table, shelf, kind or "sorted")

        drawing = _of_any_runs(part, draw, store, data_dir)
    else:
        drawing = _figure(part, store, data_dir)
    if format_ == "csv":
        content = to_csv(drawing).encode()
    else:
        from pflbench.report.figures.pictures import picture  # which imports matplotlib

        content = picture(drawing, format_)
    common.write(output, content)
    for note in drawing.notes:
        console().print(note)
    return 0


def _check(asked: Mapping[str, bool], with_one: Mapping[str, tuple[str, str | None]]) -> None:
    """At most one of the pictures that any runs have, and none of another one's options."""
    if sum(asked.values()) > 1:
        raise UsageError(f"One picture at a time, not {' and '.join(name for name, on in asked.items() if on)}.")
    for option_, (picture, given) in with_one.items():
        if given is not None and not asked[picture]:
            raise UsageError(f"{option_} says something to {picture} alone.")


def _of_any_runs(
    part: Selection, draw: Callable[[Expansion, Shelf], Drawing], store: Store, data_dir: Path | None
) -> Drawing:
    """Drawing of stored runs, whatever suite or selection asks for them."""
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
    from pflbench.suite.figure import Classes, Histogram
    from pflbench.suite.load import figures

    if len(part.suites) != 1:
        raise UsageError(f"Which figure? One of {', '.join(figures())}; or of any suite's runs, --curve.")
    suite = _load(part.suites[0], store)
    document = suite.document(part.profile or "paper")
    assert document.figure is not None
    if not isinstance(document.figure, Classes | Histogram):
        return _from_runs(suite, document.figure, part, store)
    if part.but(suites=(), seeds=(), profile=None, rounds=None) != Selection(precision="fp32"):
        raise UsageError(f"{suite.name} shows partitions, no runs: of the selection only --seeds says something to it.")
    if isinstance(document.figure, Classes):
        from pflbench.running.federations import classes

        seed = part.seeds[0] if part.seeds else None
        suite = replace(suite, supplied=replace(suite.supplied, imports=True))  # it is built, as training does
        return classes(suite, part.profile or "paper", document.figure, seed, data_dir)
    if part.profile not in (None, "paper") or part.rounds is not None:
        raise UsageError(f"{suite.name} shows partitions, no runs: --profile and --rounds say nothing to it.")
    return _from_sizes(suite, document, document.figure, part.seeds)


def _load(name: str, store: Store) -> Suite:
    """The figure suite of this name or path; a table is none. What is not on this machine is taken from the store."""
    from pflbench.report.reading import readable
    from pflbench.suite.load import available, figures, load

    if not name.endswith(".toml") and name not in available():
        raise unknown("figure", name, figures())
    suite = load(name, readable(store))
    if suite.document().figure is None:
        raise UsageError(
            f"{name} is a table, not a figure. Draw its runs with `pflbench plot {name} --curve -o curve.png` or with "
            f"--per-client, or print it with `pflbench report --suite {name}`."
        )
    return suite


def _from_runs(suite: Suite, figure: FromRuns, part: Selection, store: Store) -> Drawing:
    from pflbench.report.figures.make import draw_runs
    from pflbench.report.reading import Shelf
    from pflbench.report.tables import with_results
    from pflbench.suite.expand import expand
    from pflbench.suite.load import figures

    made = [] if part.profile else with_results(part.but(suites=[suite.called]), store, suite.supplied)
    table = made[0] if made else expand(suite, part)
    drawing = draw_runs(table, figure, Shelf(store))
    if not any(panel.series for panel in drawing.panels):
        # What a command calls it: its name if it comes with pflbench, else its path.
        name = suite.name if figures().get(suite.name) == suite.path else suite.path
        every = getattr(figure, "every", None)
        makes = command("run", part.but(suites=[str(name)]).options, store.root)
        makes += f" --evaluate-every {every}" if every else ""
        raise UsageError(f"No results of {suite.name} in {str(store.root)!r} to draw. `{makes}` makes them.")
    return drawing


def _from_sizes(suite: Suite, document: Document, figure: Histogram, seeds: tuple[int, ...]) -> Drawing:
    from pflbench.data.partitions.slicing import RandomSlicing
    from pflbench.report.figures.clients import Slicing
    from pflbench.report.figures.make import draw_sizes
    from pflbench.suite.expand import expand
    from pflbench.suite.layers import every_column

    columns = []
    for column in every_column(suite, document):
        settings, title = column.settings, f"{column.entry.group} {column.entry.title}".strip()
        slicing = RandomSlicing(**settings["partition"].options)
        columns.append(Slicing(title, settings["clients"], slicing, figure.classes, figure.types, figure.per_type))
    return draw_sizes(expand(suite), figure, columns, seeds or range(figure.partitions))
