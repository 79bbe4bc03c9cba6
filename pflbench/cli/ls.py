"""`pflbench ls`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli.common import console
from pflbench.errors import unknown

THINGS = ("suites", "methods", "datasets", "partitions", "models")


def ls(what: Annotated[str, typer.Argument(help="suites, methods, datasets, partitions, or models.")]) -> int:
    """List suites, methods, datasets, partitions, or models, one line each."""
    if what not in THINGS:
        raise unknown("thing to list", what, THINGS)
    rows = {"suites": _suites, "methods": _methods, "models": _models}.get(what, lambda: _options(what))()
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        console().print(f"{name:<{width}}  {text}")
    return 0


def _suites() -> list[tuple[str, str]]:
    from pflbench.suite.load import available, load

    found = []
    for name in available():
        suite = load(name)
        head = suite.document().suite
        found.append((name, f"{head.title} ({head.paper}); profiles: {', '.join(suite.profiles)}"))
    return found


def _methods() -> list[tuple[str, str]]:
    from pflbench.catalog import describe
    from pflbench.names import known

    found = []
    for name in sorted(known("methods")):
        info = describe(name)
        hyper = ", ".join(f"{key}={field.default!r}" for key, field in info.fields.items())
        found.append((name, f"{info.doc}\n    {hyper}"))
    return found


def _options(what: str) -> list[tuple[str, str]]:
    from pflbench.catalog import describe_options
    from pflbench.names import known

    found = []
    for name in sorted(known(what)):
        info = describe_options(what, name)  # type: ignore[arg-type]
        options = ", ".join(f"{key}={field.default!r}" for key, field in info.fields.items())
        found.append((name, info.doc + (f" [{options}]" if options else "")))
    return found


def _models() -> list[tuple[str, str]]:
    import ast

    from pflbench.names import known, source_file

    found = []
    for name, reference in sorted(known("models").items()):
        doc = ast.get_docstring(ast.parse(source_file(reference).read_text(encoding="utf-8"))) or ""
        found.append((name, doc.split("\n", 1)[0]))
    return found
