"""`pflbench ls` and `status`: what there is, and how far the suites are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import WANTED, asking, option
from pflbench.errors import UsageError
from pflbench.selection import Selection, Wanted
from pflbench.store import ShownStore, Store, Stored

if TYPE_CHECKING:
    from pflbench.catalog import FieldInfo
    from pflbench.suite.cells import Expansion

Choosable = Literal["methods", "datasets", "partitions", "models"]


@asking(wanted=WANTED)
def ls(
    what: Annotated[Literal["suites", "runs", Choosable], typer.Argument(help="What to list.")],
    wanted: Wanted,
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="One method, with all about it.")] = None,
    every: Annotated[bool, option("--all", help="Of suites: also the variants of each paper's tables.")] = False,
    format_: Annotated[
        Literal["terminal", "csv"], option("--format", help="Of runs: terminal, or csv (with more columns).")
    ] = "terminal",
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """List suites, methods, datasets, partitions, models, or stored runs, one line each; or all about one method.

    The options choose among the stored runs; with --suite, the runs of its tables, also those of your own methods.
    """
    if what == "runs":
        _print_runs(wanted, format_, results)
        return 0
    if format_ != "terminal" or not wanted.everything:
        raise UsageError(f"These options choose among runs: `pflbench ls runs`, not {what}.")
    if name is not None:
        console().print(_method(name), soft_wrap=False)
        return 0
    entries = list(_suites(every) if what == "suites" else _options(what))
    width = max(len(name) for name, _ in entries)
    for name, text in entries:
        console().print(f"{name:<{width}}  {text}")
    return 0


def _method(name: str) -> str:
    """All about a method."""
    from pflbench.report.methods import describe_method

    page = describe_method(name)
    lines = [page.citation, "", page.info.doc, f"Stages: {', '.join(page.stages)}.", f"Code: {page.info.reference}"]
    lines += ["", "Hyperparameters (default; allowed values):"]
    lines += [f"{one.name} ({one.default}; {one.allowed}): {one.meaning}" for one in page.hyperparameters]
    for listed in page.departures:
        lines += ["", f"Departures {listed.scope}".strip() + ":", *listed.items]
    if page.special_cases:
        lines += ["", f"Special cases: {page.special_cases}"]
    return "\n".join(lines)


def _print_runs(wanted: Wanted, format: str, results: Path) -> None:
    from pflbench.report.stored import Listed, list_runs, select_runs
    from pflbench.report.text import in_csv

    store = Store(results)
    runs = list_runs([one.run for one in select_runs(store, wanted)], store)
    if format == "csv":
        common.put("".join(f"{in_csv(line)}\n" for line in (Listed._fields, *runs)))
    elif runs:
        common.show_runs(runs)
    else:
        console().print(f"No run in {str(results)!r} matches.")


def _suites(every: bool) -> Iterator[tuple[str, str]]:
    """Suites with a line about each; variants of papers' tables only if `every`."""
    from pflbench.suite.load import available, is_variant, read

    for name, path in sorted(available().items()):
        if every or not is_variant(path):
            suite = read(name)
            document = suite.document()
            data = dict.fromkeys(column.dataset.name for column in document.column)
            about = (document.suite.title, f"paper: {document.suite.paper}", f"data: {', '.join(data)}")
            yield name, f"{'; '.join(about)}; profiles: {', '.join(suite.profiles)}"


def _options(what: Choosable) -> Iterator[tuple[str, str]]:
    """Methods, datasets, partitions or networks, with a line about each and its options."""
    from pflbench.catalog import describe, describe_options
    from pflbench.names import known

    for name in sorted(known(what)):
        info = describe(name) if what == "methods" else describe_options(what, name)
        fields = ", ".join(_field(key, field) for key, field in info.fields.items())
        yield name, info.doc + (fields and f"\n    {fields}")


def _field(key: str, field: FieldInfo) -> str:
    """`source='nist' (or 'emnist', 'leaf')`: the default and the other choices."""
    from pflbench.catalog import REQUIRED

    others = ", ".join(repr(choice) for choice in field.choices or () if choice != field.default)
    default = " (required)" if field.default is REQUIRED else f"={field.default!r}"
    return f"{key}{default}" + (f" (or {others})" if others else "")


@asking(("suites", "rounds", "precision"))
def status(
    selection: Selection,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Say for every suite and profile with results how many runs are done, failed or missing, and why runs failed."""
    from pflbench.report.reading import readable
    from pflbench.report.tables import elsewhere, every_profile, with_results
    from pflbench.store.requests import requested, requests_of

    store = ShownStore(results)
    stored, requests = {run.spec.id: run for run in store.list()}, requests_of(store)
    supplied = readable(store, data_dir)
    tables = with_results(selection, store, supplied)
    named = {run.id for table in tables for run in table.runs}
    for table in tables:
        of_table = (table.suite, table.profile, table.path)
        more = [id for id, several in requests.items() if id not in named and requested(several, *of_table)]
        _say(table, more, stored)
    if not stored:
        console().print(f"No results in {str(results)!r} yet.")
    elif other := elsewhere(tables or every_profile(selection, store, supplied), store):
        console().print(other)
    return 0


def _say(table: Expansion, more: Sequence[str], stored: Mapping[str, Stored]) -> None:
    """Print the counts of a table's runs, of `more` that its suite requested, and the failures of both."""
    ids = [run.id for run in table.runs]
    label_of = {spec.id: cell.row.id for cell in reversed(table.cells) for spec in cell.needed}
    console().print(f"{table.part.suites[0]} [{table.profile}]: {_count(ids, stored)}")
    if more:
        console().print(f"  other rows or seeds: {_count(more, stored)}")
    for run in (stored[id] for id in [*ids, *more] if id in stored):
        if run.failure is not None:
            label = label_of.get(run.spec.id, run.spec.method.name)
            console().print(f"  failed {run.spec.id} {label} seed {run.spec.seed}: {run.failure}")


def _count(ids: Iterable[str], stored: Mapping[str, Stored]) -> str:
    runs = [stored.get(id) for id in ids]
    states = Counter("missing" if run is None else "failed" if run.failure else "done" for run in runs)
    shipped = sum(run is not None and run.shipped and run.failure is None for run in runs)
    note = f" ({shipped} came with pflbench)" if shipped else ""
    return f"{states['done']} done{note}, {states['failed']} failed, {states['missing']} missing"
