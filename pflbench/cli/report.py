"""`pflbench report`: the tables, from the stored runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.errors import StoreError, UsageError, unknown

if TYPE_CHECKING:
    from pflbench.report.table import Table
    from pflbench.store import Store
    from pflbench.suite.document import Suite
    from pflbench.suite.expand import Expansion
    from pflbench.suite.own import Own

MAKE = "`pflbench run` makes them."
FORMATS = ("terminal", "markdown", "csv")


def report(
    suite: common.Suites = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", envvar="PFLBENCH_PROFILE", help="Only this one (default: each that has results)."),
    ] = None,
    column: common.Columns = None,
    rounds: common.Rounds = None,
    seeds: common.Seeds = None,
    precision: common.Precision = "fp32",
    format_: Annotated[
        str, typer.Option("--format", envvar="PFLBENCH_FORMAT", help="terminal, markdown, or csv (long form).")
    ] = "terminal",
    compare_paper: Annotated[
        bool,
        typer.Option(
            "--compare-paper/--no-compare-paper",
            envvar="PFLBENCH_COMPARE_PAPER",
            help="The paper's numbers beside ours, with a verdict.",
        ),
    ] = True,
    spread: Annotated[
        bool | None,
        typer.Option(
            "--spread/--no-spread",
            envvar="PFLBENCH_SPREAD",
            help="The spread over seeds behind each number (default: as the paper prints it; the CSV always has it).",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", envvar="PFLBENCH_OUTPUT", help="Write to this file instead.")
    ] = None,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
) -> int:
    """Print the tables of the suites that have results, as the paper prints them, its numbers beside ours.

    A suite of statistics needs no results, but the datasets.
    """
    from pflbench.report.inputs import readable, table_input
    from pflbench.report.layout import lay_out
    from pflbench.report.render import render
    from pflbench.store import Store
    from pflbench.suite.family import named_by_family

    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    store = Store(results)
    own = readable(store, data_dir)
    counted = _statistics(suite, profile or "paper", seeds, own, spread is not False)
    trained = [name for name in suite or () if name not in counted]
    expanded = []
    if trained or not counted:
        asked = {"columns": column, "rounds": rounds, "seeds": seeds, "precision": precision}
        expanded = with_results(trained, profile, store, own, **asked)  # type: ignore[arg-type]
    inputs = [table_input(e, elsewhere=named_by_family(e, own), spread=spread) for e in expanded]
    if not inputs and not counted:
        tables = expanded or every_profile(trained, store, own, **asked)  # type: ignore[arg-type]
        raise UsageError(f"No results of {_what(suite, profile)} in {str(results)!r}{_why(tables, store)}")
    finished = [*counted.values(), *(lay_out(one, store) for one in inputs)]
    texts = [render(table, format_, compare_paper) for table in finished]  # type: ignore[arg-type]
    if format_ == "csv":  # one header for all
        texts = [texts[0], *(text.split("\n", 1)[1] for text in texts[1:])]
    _emit(("" if format_ == "csv" else "\n").join(texts), output)
    return 0


def _statistics(suites: list[str] | None, profile: str, seeds: str | None, own: Own, spread: bool) -> dict[str, Table]:
    """The tables of those of the suites that are statistics, by what the suite is called."""
    from pflbench.suite.load import find, load, read_toml

    named = [name for name in suites or () if "statistics" in read_toml(find(name))]
    return {name: _counted(load(name, own), profile, seeds, spread) for name in named}


def _counted(suite: Suite, profile: str, seeds: str | None, spread: bool) -> Table:
    from pflbench.report import counts
    from pflbench.report import table as t
    from pflbench.spec import MethodSpec, RunSpec, Scoring
    from pflbench.suite.expand import parse_seeds
    from pflbench.suite.origins import notes
    from pflbench.suite.resolve import places, shared
    from pflbench.suite.shortfall import shortfall, stand_in

    document, root = suite.document(profile), suite.own.root
    head, statistics = document.suite, document.statistics
    assert statistics is not None and root is not None
    chosen = parse_seeds(seeds) if seeds else tuple(head.seeds)
    nobody = MethodSpec(name="none", version="none")  # a federation does not depend on who trains on it
    lines = []
    for index, column in enumerate(document.column):
        settings = shared(suite, document, index)
        code = places(suite, document, index)
        runs = [
            RunSpec(method=nobody, scoring=Scoring(), seed=seed, **settings | suite.own.contents(settings, code, seed))
            for seed in chosen
        ]
        counted = counts.count(runs, root, code)
        instead = stand_in(suite.document().column[index], column)
        title = f"{instead} for {column.title}" if instead else column.title
        lines.append(counts.Line(column.id, title, counted, statistics.reference.get(column.id)))
    over = t.Spread(head.spread.kind, head.spread.ddof, head.spread.of)
    short = shortfall(suite.document(), document, range(len(document.column)), None, chosen)
    table = t.TableInput(
        *(suite.name, head.title, head.paper, profile),
        rows=(),
        columns=(),
        cells={},
        spread=over,
        notes=notes(document, [], []),
        counts=short.counts,
        shortfall=short.runs,
        with_spread=spread,
    )
    return counts.lay_out_counts(table, lines, chosen)


def _what(suite: list[str] | None, profile: str | None) -> str:
    named = " and ".join(suite) if suite else "any suite"
    return f"{named} under profile {profile}" if profile else named


def _emit(text: str, output: Path | None) -> None:
    from pflbench.report.text import fitting

    if output is None:
        out = console()
        out.out(fitting(text, out.encoding), end="", highlight=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"Cannot write {str(output)!r}: {error.strerror or error}.") from error


def with_results(
    suites: list[str] | None,
    profile: str | None,
    store: Store,
    own: Own,
    *,
    columns: list[str] | None = None,
    rounds: int | None = None,
    seeds: str | None = None,
    precision: str = "fp32",
) -> list[Expansion]:
    """The suites × profiles that are asked for and have a stored run; asked for by name, a lone one need have none.

    `own`: where what is the user's own is looked for. `columns`: only these; a suite that is not asked for by name need
    have none of them.
    """
    from pflbench.cli.plot import figures
    from pflbench.suite.document import Place
    from pflbench.suite.expand import expand, parse_seeds
    from pflbench.suite.family import borrowed
    from pflbench.suite.load import available, read

    common.check_precision(precision)

    specs = [run.spec for run in store.list()]
    stored = {spec.id for spec in specs}
    there = {Place(s.dataset.name, s.partition.name, s.model, s.clients, s.rounds) for s in specs}
    chosen = parse_seeds(seeds) if seeds else None
    found = []
    drawn = () if suites else figures()
    for suite in (read(one, own) for one in suites or [name for name in available() if name not in drawn]):
        if suite.document().statistics is not None:
            if suites:
                raise UsageError(f"{suite.name} has no runs: `pflbench report` prints it, from the datasets alone.")
            continue
        if not suite.document().row:
            raise UsageError(f"{suite.name} has no table: `pflbench plot` draws it, without any run.")
        mine = columns
        if columns and not suites:
            mine = [column.id for column in suite.document().column if column.id in columns]
            if not mine:
                continue
        tables = [
            expand(suite, profile=one, columns=mine, rounds=rounds, seeds=chosen, precision=precision)  # type: ignore[arg-type]
            for one in ([profile] if profile else suite.profiles)
            if suites or suite.document(one).places(rounds) & there
        ]
        named = {run.id for table in tables for run in table.runs}
        guests = {spec.setting() for spec in specs if spec.id not in named}
        for table in tables:
            made = any(run.id in stored for run in table.runs)
            # A user's own rows are results too, even where the suite's own are missing.
            settings = {c.runs[0].setting() for c in table.cells if c.runs[0].rounds == c.column.rounds}
            if made or guests & settings or (suites and profile):
                found.append(table)
    # Another paper's table has its runs first: what merely borrows them waits to be asked for.
    return found if suites else [table for table in found if not borrowed(table, stored, own)]


def every_profile(
    suites: list[str] | None,
    store: Store,
    own: Own,
    *,
    columns: list[str] | None = None,
    rounds: int | None = None,
    seeds: str | None = None,
    precision: str = "fp32",
) -> list[Expansion]:
    """The tables of the suites asked for by name under each of their profiles, with or without a stored run."""
    from pflbench.suite.load import read

    asked = {"columns": columns, "rounds": rounds, "seeds": seeds, "precision": precision}
    return [
        table
        for name in suites or ()
        for profile in read(name, own).profiles
        for table in with_results([name], profile, store, own, **asked)  # type: ignore[arg-type]
    ]


def _why(tables: list[Expansion], store: Store) -> str:
    """The rest of the sentence that there are no results."""
    from pflbench.report.outdated import instead

    made = instead((run for table in tables for run in table.runs), [run.spec for run in store.list()])
    return f" for the code and data as they are now; {made}." if made else f". {elsewhere(tables, store) or MAKE}"


def elsewhere(tables: list[Expansion], store: Store) -> str:
    """A sentence on the stored runs that stand in none of these tables; empty if there are none."""
    from pflbench.report.outdated import outdated

    settings = frozenset().union(*(table.settings for table in tables))
    specs = [run.spec for run in store.list()]
    if older := outdated((run for table in tables for run in table.runs), specs):
        return " ".join(older)
    others = sum(not spec.validation and spec.setting() not in settings for spec in specs)
    if not others:
        return ""
    there = "1 run there has" if others == 1 else f"{others} runs there have"
    return f"{there} other settings: name them with --suite FILE, --rounds, or --precision."
