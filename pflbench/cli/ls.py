"""`pflbench ls` and `status`: what there is, and how far the suites are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console
from pflbench.cli.options import WANTED, asking, option
from pflbench.errors import UsageError, unknown
from pflbench.selection import Selection, Wanted
from pflbench.store import ShownStore, Store, Stored

if TYPE_CHECKING:
    from pflbench.catalog import FieldInfo
    from pflbench.store.requests import Requests
    from pflbench.suite.cells import Expansion

THINGS = ("suites", "methods", "datasets", "partitions", "models", "runs")
FORMATS = ("terminal", "csv")


@asking(wanted=WANTED)
def ls(
    what: Annotated[str, typer.Argument(metavar="|".join(THINGS), help="What to list.")],
    wanted: Wanted,
    name: Annotated[str | None, typer.Argument(metavar="[METHOD]", help="One method, with all about it.")] = None,
    every: Annotated[bool, option("--all", help="Of suites: also the variants of each paper's tables.")] = False,
    format_: Annotated[str, option("--format", help="Of runs: terminal, or csv (with more columns).")] = "terminal",
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """List suites, methods, datasets, partitions, models, or stored runs, one line each; or all about one method.

    The options choose among the stored runs; with --suite, the runs of its tables, also those of your own methods.
    """
    if what not in THINGS:
        raise unknown("thing to list", what, THINGS)
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    if name is not None:
        return _method(what, name)
    if what == "runs":
        return _runs(wanted, format_, results)
    if format_ != "terminal" or not wanted.everything:
        raise UsageError(f"These options choose among runs: `pflbench ls runs`, not {what}.")
    if what == "suites":
        return _suites(every)
    rows = _options(what)
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        console().print(f"{name:<{width}}  {text}")
    return 0


def _method(what: str, name: str) -> int:
    from tabulate import tabulate

    from pflbench.report.methods import describe_method

    if what != "methods":
        raise UsageError(f"`pflbench ls {what}` takes no name; `pflbench ls methods {name}` does.")
    found = describe_method(name)
    lines = [found.citation, "", found.info.doc, f"Stages: {', '.join(found.stages)}.", f"Code: {found.info.reference}"]
    rows = [(one.name, one.default, one.allowed, one.meaning) for one in found.hyperparameters]
    heads = ("hyperparameter", "default", "allowed", "meaning")
    left = max(20, console().width - sum(4 + max(len(row[i]) for row in (*rows, heads)) for i in range(3)))
    widths = [None, None, None, left]
    lines += ["", tabulate(rows, heads, "simple", disable_numparse=True, maxcolwidths=widths)]
    for listed in found.departures:
        lines += ["", f"Departures {listed.scope}".strip() + ":", *listed.items]
    if found.special_cases:
        lines += ["", f"Special cases: {found.special_cases}"]
    console().print("\n".join(lines), soft_wrap=False, highlight=False)
    return 0


def _runs(wanted: Wanted, format: str, results: Path) -> int:
    from pflbench.report.stored import Listed, list_runs, select_runs
    from pflbench.report.text import in_csv

    store = Store(results)
    found = list_runs([one.run for one in select_runs(store, wanted)], store)
    if format == "csv":
        common.put("".join(f"{in_csv(line)}\n" for line in (Listed._fields, *found)))
    elif found:
        common.show_runs(found)
    else:
        console().print(f"No run in {str(results)!r} is what is asked for.")
    return 0


def _suites(every: bool) -> int:
    """List the suites of each paper, its variants last; these only if `every`."""
    from pflbench.suite.figure import Histogram
    from pflbench.suite.load import available, is_variant, read

    papers: dict[str, list[str]] = {}
    for name in sorted(available(), key=lambda one: is_variant(available()[one])):
        papers.setdefault(name.partition("-")[0], []).append(name)
    hidden, width = 0, max(map(len, available()))
    for paper, names in sorted(papers.items()):
        shown = [name for name in names if every or not is_variant(available()[name])]
        hidden += len(names) - len(shown)
        suites = {name: read(name) for name in shown}
        of = suites[shown[0]].document().suite.paper
        console().print(f"{paper} ({'no paper' if of == 'none' else of})")
        for name, suite in suites.items():
            document = suite.document()
            reads = not isinstance(document.figure, Histogram)
            data = dict.fromkeys(column.dataset.name for column in document.column) if reads else ["none"]
            about = f"{document.suite.title}; data: {', '.join(data)}; profiles: {', '.join(suite.profiles)}"
            console().print(f"  {name:<{width}}  {about}")
    if hidden:
        console().print(f"{hidden} variants of these tables: `pflbench ls suites --all` lists them, too.")
    return 0


def _options(what: str) -> list[tuple[str, str]]:
    from pflbench.catalog import describe, describe_options
    from pflbench.names import known

    found = []
    for name in sorted(known(what)):
        info = describe(name) if what == "methods" else describe_options(what, name)  # type: ignore[arg-type]
        fields = ", ".join(_field(key, field) for key, field in info.fields.items())
        found.append(
            (name, f"{info.doc}\n    {fields}" if what == "methods" else info.doc + (fields and f" [{fields}]"))
        )
    return found


def _field(key: str, field: FieldInfo) -> str:
    """`source='nist' (or 'emnist', 'leaf')`: the default, and what else there is to choose from."""
    from pflbench.catalog import REQUIRED

    others = [repr(choice) for choice in field.choices or () if choice != field.default]
    if field.default is REQUIRED:
        return f"{key} (required{': ' if others else ''}{', '.join(others)})"
    return f"{key}={field.default!r}" + (f" (or {', '.join(others)})" if others else "")


@asking(("suites", "rounds", "precision"))
def status(
    selection: Selection,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Say for every suite and profile with results how many runs are done, failed or missing, and why runs failed."""
    from pflbench.report.reading import readable
    from pflbench.report.tables import elsewhere, every_profile, with_results
    from pflbench.store.requests import requests_of

    store = ShownStore(results)
    stored, asked = {run.spec.id: run for run in store.list()}, requests_of(store)
    own = readable(store, data_dir)
    tables = with_results(selection, store, own)
    named = {run.id for table in tables for run in table.runs}
    files: dict[str, set[Path]] = {}
    for table in tables:
        files.setdefault(table.suite, set()).add(table.path.resolve())
    found = [(t, [id for id in stored if id not in named and _beside(t, stored[id], asked)]) for t in tables]
    for table, beside in sorted(found, key=lambda one: not _has_own(one[0], one[1], stored)):
        title = table.suite if len(files[table.suite]) == 1 else table.part.suites[0]
        _say(title, table, stored, beside)
    tables = tables or every_profile(selection, store, own)
    other = elsewhere(tables, store)
    if not stored:
        console().print(f"No results in {str(results)!r} yet.")
    elif other:
        console().print(other)
    return 0


def _beside(table: Expansion, run: Stored, asked: Requests) -> bool:
    """True if a suite requested a run, or may have: requests of the oldest runs were not recorded."""
    from pflbench.store.requests import requested

    if run.spec.id in asked:
        return requested(asked[run.spec.id], table.suite, table.profile, table.path)
    return run.spec.setting() in table.settings


def _has_own(table: Expansion, beside: list[str], stored: dict[str, Stored]) -> bool:
    """True if the user trained a run of a table: it goes before those whose runs came with pflbench."""
    runs = (stored.get(id) for id in [*(run.id for run in table.runs), *beside])
    return any(run is not None and not run.shipped for run in runs)


def _say(title: str, table: Expansion, stored: dict[str, Stored], beside: list[str]) -> None:
    """A table's own runs, then those that no table names: own methods, other hyperparameters, other seeds."""
    from pflbench.suite.expand import labels

    own = [run.id for run in table.runs]
    called = labels(table)
    console().print(f"{title} [{table.profile}]: {_count(own, stored)}")
    if beside:
        console().print(f"  beside the suite's rows: {_count(beside, stored)}")
    for id in [*own, *beside]:
        run = stored.get(id)
        if run is not None and run.failure is not None:
            console().print(f"  failed {id} {called.get(id, run.spec.method.name)} seed {run.spec.seed}: {run.failure}")


def _count(ids: list[str], stored: dict[str, Stored]) -> str:
    states = Counter("missing" if id not in stored else "failed" if stored[id].failure else "done" for id in ids)
    shipped = sum(stored[id].shipped for id in ids if id in stored)
    came = f" ({shipped} came with pflbench)" if shipped else ""
    return f"{states['done']} done{came}, {states['failed']} failed, {states['missing']} missing"
