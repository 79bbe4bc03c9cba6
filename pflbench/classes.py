"""Classes as their source declares them, with what they inherit, read without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pflbench import names, usercode
from pflbench.errors import UsageError

BARE = ("Method", "Generic", "Protocol", "Dataset", "Partition")
"""Bases that need not be looked up where they cannot be: they have no fields and declare nothing."""


@dataclass(frozen=True)
class Declared:
    """A class statement.

    Attributes:
        reference: `module:Class` or `file.py:Class`.
        node: The statement.
        body: Its definitions by name: literals, the parameters of functions, all else as None.
    """

    reference: str
    node: ast.ClassDef
    body: Mapping[str, Any]

    @property
    def module(self) -> str:
        """The module or file that it stands in."""
        return names.split_reference(self.reference)[0]


def lineage(reference: str, stored: ast.Module | None = None) -> tuple[Declared, ...] | None:
    """A class and all it inherits from, in the order in which Python looks names up; None if the sources do not tell.

    They do not where a base is no name of a class that stands in its module or is imported there. `stored`: the source
    of the class's module as a run has it. Then no file is read but those of pflbench.
    """
    start = names.split_reference(reference)[0]

    def tree(where: str) -> ast.Module | None:
        if stored is not None and names.is_users(f"{where}:_"):
            return stored if where == start else None
        try:
            path = names.source_file(f"{where}:_")
        except UsageError:  # a module that is only found where its importer looks for it
            return None
        return usercode.syntax(path)

    stand_in = _stand_in(reference, {}, tree)
    return None if stand_in is None else tuple(vars(one)["declared"] for one in stand_in.__mro__[:-1])


def declared(kind: names.Kind, name: str, attribute: str, default: Any) -> Any:
    """Literal that the class behind a name has in its body, or inherits.

    The default where it says nothing or where its source does not tell, such as of a user's file that is not there.
    """
    with suppress(UsageError, OSError):
        for one in lineage(names.locate(kind, name)) or ():
            if attribute in one.body:
                return one.body[attribute]
    return default


_Trees = Callable[[str], ast.Module | None]
"""The syntax tree of a module or file by its name; None where it is not to be had."""


def _stand_in(reference: str, known: dict[str, type | None], tree: _Trees) -> type | None:
    """An empty class with stand-ins of the same bases, so that Python itself says in which order they come."""
    if reference not in known:
        known[reference] = None
        known[reference] = _made(reference, known, tree)
    return known[reference]


def _made(reference: str, known: dict[str, type | None], tree: _Trees) -> type | None:
    where, name = names.split_reference(reference)
    module = tree(where)
    if module is None:
        return None
    there, imported = _scope(module)
    node = there.get(name)
    if node is None:
        return None
    behind = imported | {own: f"{where}:{own}" for own, other in there.items() if other.lineno < node.lineno}
    bases: list[type] = []
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        above = _stand_in(behind[base.id], known, tree) if isinstance(base, ast.Name) and base.id in behind else None
        if above is not None:
            bases.append(above)
        elif ast.unparse(base).rpartition(".")[2] not in BARE:
            return None
    try:
        return type(name, tuple(bases), {"declared": Declared(reference, node, _body(node))})
    except TypeError:  # bases that no class can have together: importing it says so
        return None


@lru_cache(maxsize=256)
def _scope(tree: ast.Module) -> tuple[dict[str, ast.ClassDef], dict[str, str]]:
    """The classes that stand in a module, and where its imported names come from."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    imported = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    return classes, imported


def _body(node: ast.ClassDef) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = tuple(arg.arg for arg in (*item.args.args, *item.args.kwonlyargs))
        elif isinstance(item, ast.AnnAssign | ast.Assign) and item.value is not None:
            for target in [item.target] if isinstance(item, ast.AnnAssign) else item.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = None
                    with suppress(ValueError):
                        found[target.id] = ast.literal_eval(item.value)
    return found
