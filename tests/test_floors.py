"""A module imports from lower floors, or from its own package; nothing imports upward."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "pflbench"
GROUND = (
    "package",
    "errors",
    "typing",
    "vector",
    "noise",
    "optim",
    "rng",
    "spec",
    "result",
    "names",
    "stages",
    "hyper",
    "usercode",
    "selection",
    "trust",
    "units",
    "commands",
    "output",
    "console",
)
FLOORS = [
    GROUND,
    ("catalog",),
    ("data", "models"),
    ("methods",),
    ("engine",),
    ("suite", "store", "testing"),
    ("report",),
    ("running",),
    ("api",),
    ("cli",),
    ("__main__",),
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
parsed = functools.cache(ast.parse)
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """The first name below `pflbench` of everything imported, anywhere in the file, also for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) + 1 - node.level]) if node.level else []
            where = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{where}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "pflbench" and rest:
                yield rest.split(".")[0]


def violations(text: str, own: str, package: tuple[str, ...] = ("pflbench",)) -> list[str]:
    found = []
    for name in imported(parsed(text), package):
        if name.startswith("__version"):
            continue
        assert name in FLOOR, f"pflbench.{name} has no floor"
        allowed = FLOOR[name] < FLOOR[own] or name == own or (name in GROUND and own in GROUND)
        if not allowed:
            found.append(name)
    return found


def test_imports_point_down() -> None:
    wrong = {}
    for path in MODULES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        assert parts[0] in FLOOR, f"pflbench/{parts[0]} has no floor"
        if upward := violations(path.read_text(), parts[0], ("pflbench", *parts[:-1])):
            wrong["/".join(parts)] = f"on floor {FLOOR[parts[0]]}, imports {upward}"
    assert wrong == {}


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("methods", "from pflbench.engine import simulate"),
        ("methods", "from pflbench import engine"),
        ("methods", "import pflbench.engine.simulate"),
        ("methods", "def f():\n    from pflbench.suite.load import load"),
        ("methods", "from ..engine import simulate"),
        ("data", "from pflbench.models import cnn2"),
        ("errors", "from pflbench.data import root"),
        ("engine", "if TYPE_CHECKING:\n    from pflbench.store import Store"),
    ],
)
def test_an_upward_import_would_be_seen(own: str, text: str) -> None:
    assert violations(text, own, ("pflbench", own))


BUILDS_OR_TRAINS = ("torch", "pflbench.running", "pflbench.engine", "pflbench.methods", "pflbench.models")


def forbidden_in_reports(text: str) -> list[str]:
    """What of all that a module imports builds federations or trains, wherever in the file it is imported."""
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in nodes
        for alias in node.names
    ]
    return [name for name in modules if any(f"{name}.".startswith(f"{one}.") for one in BUILDS_OR_TRAINS)]


def test_a_report_reads_and_never_imports_torch_or_runs_a_method() -> None:
    paths = sorted((ROOT / "report").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): forbidden_in_reports(path.read_text()) for path in paths}
    assert found and not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    "text",
    ["def f():\n    import torch.nn", "from pflbench import methods", "from pflbench.running.build import network"],
)
def test_such_an_import_would_be_seen(text: str) -> None:
    assert forbidden_in_reports(text)


def test_downward_imports_are_fine() -> None:
    for text in ("from pflbench.models.network import Network", "from . import base", "import numpy.engine"):
        assert not violations(text, "methods", ("pflbench", "methods"))


def needs(modules: dict[str, str]) -> dict[str, set[str]]:
    """By module, the modules that it imports anywhere in its text; a name's import is that of the module it is in."""
    found: dict[str, set[str]] = {}
    for module, text in modules.items():
        found[module] = set()
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.Import):
                names = [(alias.name, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            else:
                continue
            found[module].update(one if one in modules else other for one, other in names if other in modules)
    return found


def test_no_circle_of_imports() -> None:
    paths = [*MODULES, ROOT / "__init__.py"]
    names = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    graph = needs({name: path.read_text() for name, path in zip(names, paths, strict=True)})
    assert graph["pflbench"] and graph["pflbench.cli.run"]
    TopologicalSorter(graph).prepare()


def test_a_circle_would_be_seen() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter(
            needs({"a": "from a.b import c", "a.b": "def f():\n    import a.d", "a.d": "from a import b"})
        ).prepare()


MOST_BRANCHES = 15


def branches(function: ast.AST) -> int:
    """How often it branches: if, for, while, except, with, assert, conditional expressions, comprehensions, and/or."""
    simple = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.Assert, ast.IfExp)
    count = 0
    for node in ast.walk(function):
        if isinstance(node, simple):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def test_no_function_branches_more_than_a_reader_can_hold() -> None:
    functions = [
        (path, node)
        for path in MODULES
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    many = {f"{path.name}: {node.name}": n for path, node in functions if (n := branches(node)) > MOST_BRANCHES}
    assert len(functions) > 1000 and many == {}


def test_branches_are_counted() -> None:
    text = "def f(a):\n    assert a and a or a\n    return [b for b in a if b if b] if a else 0"
    assert branches(parsed(text)) == 1 + 2 + 1 + 3
