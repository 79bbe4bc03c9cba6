"""`pflbench ls`: what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli.common import console
from pflbench.errors import unknown

if TYPE_CHECKING:
    from pflbench.catalog import FieldInfo, Info

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
