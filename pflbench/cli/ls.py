"""`pflbench ls`: what there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.asking import WANTED, asking
from pflbench.cli.common import console
from pflbench.errors import UsageError, unknown

if TYPE_CHECKING:
    from pflbench.catalog import FieldInfo, Info
    from pflbench.selection import Wanted

THINGS = ("suites", "methods", "datasets", "partitions", "models", "runs")
FORMATS = ("terminal", "csv")


@asking(wanted=WANTED)
def ls(
    what: Annotated[str, typer.Argument(metavar="|".join(THINGS), help="What to list.")],
    wanted: Wanted,
    format_: Annotated[
        str, typer.Option("--format", envvar="PFLBENCH_FORMAT", help="Of runs: terminal, or csv (all that is known).")
    ] = "terminal",
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """List suites, methods, datasets, partitions, models, or stored runs, one line each.

    The options choose among the stored runs; with --suite, the runs of its tables, also those of your own methods.
    """
    if what not in THINGS:
        raise unknown("thing to list", what, THINGS)
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    if what == "runs":
        return _runs(wanted, format_, results)
    if format_ != "terminal" or not wanted.everything:
        raise UsageError(f"These options choose among runs: `pflbench ls runs`, not {what}.")
    rows = {"suites": _suites, "methods": _methods, "models": _models}.get(what, lambda: _options(what))()
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        console().print(f"{name:<{width}}  {text}")
    return 0


def _runs(wanted: Wanted, format: str, results: Path) -> int:
    import csv

    from pflbench.reading.runs import Listed, listing
    from pflbench.store import Store

    found = listing(Store(results), wanted)
    if format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([Listed._fields, *found])
    elif found:
        common.show_runs(found)
    else:
        console().print(f"No run in {str(results)!r} is what is asked for.")
    return 0


def _suites() -> list[tuple[str, str]]:
    from pflbench.suite.load import available, read

    found = []
    for name in available():
        suite = read(name)
        head = suite.document().suite
        found.append((name, f"{head.title} ({head.paper}); profiles: {', '.join(suite.profiles)}"))
    return found


def _methods() -> list[tuple[str, str]]:
    from pflbench.catalog import describe
    from pflbench.names import known

    found = []
    for name in sorted(known("methods")):
        info = describe(name)
        found.append((name, f"{info.doc}\n    {_fields(info)}"))
    return found


def _options(what: str) -> list[tuple[str, str]]:
    from pflbench.catalog import describe_options
    from pflbench.names import known

    found = []
    for name in sorted(known(what)):
        info = describe_options(what, name)  # type: ignore[arg-type]
        found.append((name, info.doc + (f" [{_fields(info)}]" if info.fields else "")))
    return found


def _fields(info: Info) -> str:
    return ", ".join(_field(key, field) for key, field in info.fields.items())


def _field(key: str, field: FieldInfo) -> str:
    """`source='nist' (or 'emnist', 'leaf')`: the default, and what else there is to choose from."""
    from pflbench.catalog import REQUIRED

    others = [repr(choice) for choice in field.choices or () if choice != field.default]
    if field.default is REQUIRED:
        return f"{key} (required{': ' if others else ''}{', '.join(others)})"
    return f"{key}={field.default!r}" + (f" (or {', '.join(others)})" if others else "")


def _models() -> list[tuple[str, str]]:
    import ast

    from pflbench.names import known, source_file, split_reference

    found = []
    for name, reference in sorted(known("models").items()):
        module = ast.parse(source_file(reference).read_text(encoding="utf-8"))
        attribute = split_reference(reference)[1]
        own = [n for n in module.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == attribute]
        docs = (ast.get_docstring(node) for node in (*own, module))  # the module's, where it is made in another way
        doc = next((doc for doc in docs if doc), "")
        found.append((name, doc.split("\n", 1)[0]))
    return found
