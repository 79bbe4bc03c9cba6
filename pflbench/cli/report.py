"""`pflbench report` and `explain`: the tables and their cells, from the stored runs alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.commands import command
from pflbench.data.root import data_root
from pflbench.errors import UsageError
from pflbench.selection import Selection
from pflbench.store import ShownStore
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.report.table import Table
    from pflbench.suite.cells import ReadAs

Profile = Annotated[
    str | None, option("--profile", help="Only this one (default: each with results; on a terminal the first).")
]
FORMATS: tuple[Literal["terminal", "markdown", "latex", "csv", "html"], ...] = (
    *("terminal", "markdown", "latex", "csv", "html"),
)
WIDEST = 100
"""Characters of a line of `explain`."""


@asking(
    ("suites", "methods", "datasets", "clients", "partitions", "columns", "seeds", "rounds", "precision"),
    profile=Profile,
)
def report(
    selection: Selection,
    format_: Annotated[
        str | None,
        option(
            "--format",
            help="terminal, markdown, latex, csv (long form), or html (one page that needs no network). "
            "Default: by the suffix of -o.",
        ),
    ] = None,
    full: Annotated[
        bool,
        option(
            "--full",
            help="On a terminal: all rows and columns, differences from the paper, and what they rest on.",
        ),
    ] = False,
    all_: Annotated[
        bool, option("--all", help="Every table and profile with results, not only the one that was run last.")
    ] = False,
    read: Annotated[
        str,
        option(
            "--read",
            help="Which of the rounds that runs were scored in: last (as the suite says), last-10 (the mean over the "
            "last ten), or best (each run's best: optimistic). With the gap to the last round.",
        ),
    ] = "last",
    versus: Annotated[
        str | None,
        option("--versus", help="A row, or a method that one row shows: all others against it, seed by seed."),
    ] = None,
    fairness: Annotated[
        bool,
        option(
            "--fairness",
            help="Also how each number is spread over clients: the worst tenth, the deviation, the clients with the "
            "fewest images, training against held-out clients.",
        ),
    ] = False,
    caption: Annotated[
        str | None, option("--caption", help="With --format latex: the caption, instead of title and seeds.")
    ] = None,
    fresh: options.Fresh = False,
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file instead.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Print the tables of the suites that have results, as the paper prints them, its numbers beside ours.

    Without a selection, the table that was run last and a line on the papers' claims; --all prints the other tables,
    too. A terminal shows a short form of one profile, which fits a screen; --full has the rest. Behind a number stands
    its verdict: ✓ agrees with the paper, ≈ is close, ? is inconclusive, ✗ differs.
    """
    from pflbench.report.claim_list import claims_line
    from pflbench.report.claims import judged
    from pflbench.report.compact import compact
    from pflbench.report.reading import readable
    from pflbench.report.render import long_form, render
    from pflbench.report.tables import reported, selects_nothing

    format = common.format_of(format_, output, FORMATS)
    if format != "latex" and caption is not None:
        raise UsageError("--caption is of LaTeX: add --format latex, or -o table.tex.")
    store = ShownStore(results, fresh=fresh)
    own = readable(store, data_dir)
    read_as: ReadAs = read  # type: ignore[assignment]  # checked where it is used
    if format == "html":
        from pflbench.report.page import tables_page

        common.check_output(output, "tables.html")
        made = tables_page(selection, store, own, read_as=read_as, versus=versus)
        common.put(made, output)
        return 0
    first_look = format == "terminal" and output is None
    few = first_look and not all_
    found = reported(selection, store, own, few=few, read_as=read_as, versus=versus, over_clients=fairness)
    tables = [compact(one) for one in found.tables] if first_look and not full else found.tables
    if format == "csv":
        text = long_form(tables)  # which has no place for sentences
        _say_lacking(found.tables)
    else:
        text = "\n".join(render(table, format, caption=caption) for table in tables)
    common.put(text, output, styled=format == "terminal")
    if few and selects_nothing(selection):
        console().print(claims_line(judged([], store, own), results))
    if few and found.others:
        every = command("report", f"{selection.options} --all", results)
        console().print(f"{count(len(found.others), 'more table')}: {every}")
    return 0


def _say_lacking(tables: Iterable[Table]) -> None:
    """Say on standard error which runs of these tables are missing, and the command that computes them."""
    for one in tables:
        if one.missing:
            common.errors().print(f"{one.suite} ({one.profile}): {one.missing}")


@asking(("profile", "rounds", "seeds", "overrides"))
def explain(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    row: Annotated[str, typer.Argument(help="A row's id or title; of your own, file.py:Class or its title.")],
    column: Annotated[str, typer.Argument(help="A column's id or title.")],
    selection: Selection,
    stage: Annotated[
        str | None, option("--stage", help="Where the row is shown at several: which, or its title.")
    ] = None,
    data: Annotated[
        bool, option("--data/--no-data", help="Build the federation from its dataset to describe it.")
    ] = True,
    full: Annotated[
        bool,
        option(
            "--full",
            help="Add values with their sources, trials, departures, the federation and the runs.",
        ),
    ] = False,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Say in short what may be concluded from one cell, beside the paper's number; with --full what it rests on."""
    from pflbench.report.explain import explain_cell
    from pflbench.report.explain_text import explanation_text
    from pflbench.report.screen import terminal_width
    from pflbench.running.federations import summarize_federation

    store, root = ShownStore(results), data_root(data_dir) if data else None
    found = explain_cell(suite, row, column, store, selection, stage=stage, root=root, look=summarize_federation)
    width = min(WIDEST, terminal_width())
    common.put(explanation_text(found, width, full=full))
    return 0
