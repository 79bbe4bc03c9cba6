"""A module imports from lower floors, or from its own package; nothing imports upward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "pflbench"
GROUND = (
    "errors",
    "typing",
    "vector",
    "noise",
    "optim",
    "rng",
    "spec",
    "result",
    "names",
    "renames",
    "stages",
    "usercode",
)
FLOORS = [
    GROUND,
    ("catalog",),
    ("data", "models"),
    ("methods",),
    ("engine",),
    ("suite", "store", "testing"),
    ("executor",),
    ("report",),
    ("reading",),
    ("cli",),
    ("__main__",),
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}
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
    for name in imported(ast.parse(text), package):
        if name.startswith("__version"):
            continue
        assert name in FLOOR, f"pflbench.{name} has no floor"
        allowed = FLOOR[name] < FLOOR[own] or name == own or (name in GROUND and own in GROUND)
        if not allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    assert parts[0] in FLOOR, f"pflbench/{parts[0]} has no floor"
    wrong = violations(path.read_text(), parts[0], ("pflbench", *parts[:-1]))
    assert not wrong, f"pflbench/{'/'.join(parts)}.py (floor {FLOOR[parts[0]]}) imports upward: {wrong}"


def test_the_package_itself_imports_nothing() -> None:
    assert not list(imported(ast.parse((ROOT / "__init__.py").read_text()), ("pflbench",)))


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


def test_downward_imports_are_fine() -> None:
    for text in ("from pflbench.models.network import Network", "from . import base", "import numpy.engine"):
        assert not violations(text, "methods", ("pflbench", "methods"))
