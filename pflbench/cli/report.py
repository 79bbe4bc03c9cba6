"""`pflbench report` and `explain`: the tables and their cells, from the stored runs alone."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import asking, option
from pflbench.commands import command
from pflbench.data.root import data_root
from pflbench.selection import Selection
from pflbench.store import ShownStore

Format = Literal["terminal", "markdown", "latex", "csv", "html"]
WIDEST = 100
"""Characters of a line of `explain`."""


@asking(options.PART)
def report(
    selection: Selection,
    format_: Annotated[
        str | None, option("--format", help="terminal, markdown, latex, csv, or html. Default: by the suffix of -o.")
    ] = None,
    full: Annotated[bool, option("--full", help="On a terminal: all rows and columns, and all notes on them.")] = False,
    all_: Annotated[
        bool, option("--all", help="Every table and profile with results, not only the one that was run last.")
    ] = False,
    read: Annotated[
        Literal["last", "last-10", "best"],
        option("--read", help="Scored rounds: last (as the suite says), last-10 (their mean), or best (optimistic)."),
    ] = "last",
    versus: Annotated[
        str | None, option("--versus", help="A row, or a method of one row: all others against it, seed by seed.")
    ] = None,
    fairness: Annotated[
        bool, option("--fairness", help="Add the spread over clients: worst tenth, deviation, fewest images, held-out.")
    ] = False,
    fresh: options.Fresh = False,
    output: options.Output = None,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Print the tables of the suites that have results, as the paper prints them, its numbers beside ours.

    Without a selection, the table that was run last and a line on the papers' claims; --all prints the other tables,
    too. A terminal shows a short form of one profile, which fits a screen; --full has the rest. Behind a number stands
    its verdict: ✓ agrees with the paper, ≈ is close, ? is inconclusive, ✗ differs.
    """
    from pflbench.report.compact import compact
    from pflbench.report.reading import readable
    from pflbench.report.render import long_form, render
    from pflbench.report.tables import reported, selects_nothing

    format = common.format_of(output, get_args(Format), format_)
    store = ShownStore(results, fresh=fresh)
    supplied = readable(store, data_dir)
    if format == "html":
        from pflbench.report.page import tables_page

        common.put(tables_page(selection, store, supplied, read_as=read, versus=versus), output)
        return 0
    first_look = format == "terminal" and output is None
    few = first_look and not all_
    shown = reported(selection, store, supplied, few=few, read_as=read, versus=versus, over_clients=fairness)
    tables = [compact(one) for one in shown.tables] if first_look and not full else shown.tables
    if format == "csv":
        text = long_form(tables)
        for one in shown.tables:
            if one.missing:
                common.errors().print(f"{one.suite} ({one.profile}): {one.missing}")
    else:
        text = "\n".join(render(table, format) for table in tables)
    common.put(text, output, styled=format == "terminal")
    if few and selects_nothing(selection):
        from pflbench.report.claim_list import claims_line
        from pflbench.report.claims import judged

        console().print(claims_line(judged([], store, supplied), results))
    if few and shown.has_more:
        console().print(f"More tables: {command('report', f'{selection.options} --all', results)}")
    return 0


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
        bool, option("--full", help="Add values with their sources, trials, departures, the federation and the runs.")
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
    cell = explain_cell(suite, row, column, store, selection, stage=stage, root=root, look=summarize_federation)
    common.put(explanation_text(cell, min(WIDEST, terminal_width()), full=full))
    return 0
