"""A class that was defined in a notebook's cell, at a prompt or in a script, as a file of its own.

Workers and stored results need a method's source, and to run a whole notebook or script again for it would train again.
So the class's own source is written into a file below pflbench's cache folder, together with what it uses of its
surroundings: imports, the functions and classes defined there, and plain constants.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pflbench.data.root import cache_folder
from pflbench.errors import StoreError, UsageError
from pflbench.output import requested

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def reference(thing: type | Callable[..., Any]) -> str:
    """`file.py:Class` for a class or function, wherever it was defined.

    One of an importable module is in its file already. One of a notebook, a prompt or a script gets a file of its own,
    named by what it holds, so that the same class is the same file.

    Raises:
        UsageError: Its source cannot be found, or it uses something that a file of its own cannot have.
        StoreError: The file cannot be written.
    """
    module, name = sys.modules.get(thing.__module__), thing.__qualname__
    if not name.isidentifier():
        raise UsageError(f"{name} is defined inside something else: define it at the top of the cell or file.")
    file = getattr(module, "__file__", None)
    if thing.__module__ != "__main__" and file:
        return f"{Path(file).resolve()}:{name}"
    return f"{_written(_extract(thing, vars(module) if module else {}), name)}:{name}"


def _written(text: str, name: str) -> Path:
    folder = cache_folder() / "notebook" / hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{name.lower()}.py"
    if not path.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error
        with requested(path) as file:
            file.write(text.encode())
    return path


def _extract(thing: Any, around: Mapping[str, Any]) -> str:
    """The file of a class or function and of what it needs of the names around it, in an order that works."""
    imports, parts, seen = set[str](), list[str](), set[str]()

    def take(name: str, value: Any) -> None:
        source = _source(value)
        seen.add(name)
        for used in _globals(source):
            if used not in seen:
                need(used)
        parts.append(source.rstrip() + "\n\n")

    def need(name: str) -> None:
        """Make a name known in the file, as it is around the class."""
        if name not in around:
            if not hasattr(builtins, name):
                raise UsageError(f"{thing.__qualname__} uses {name!r}, which is defined nowhere around it.")
            return
        seen.add(name)
        value = around[name]
        home = _home(name, value)
        if isinstance(value, ModuleType):
            imports.add(f"import {value.__name__} as {name}")
        elif home:
            imports.add(f"from {home[0]} import {home[1]} as {name}")
        elif isinstance(value, type | FunctionType):
            take(name, value)
        elif _is_plain(value):
            parts.append(f"{name} = {value!r}\n")
        else:
            raise UsageError(
                f"{thing.__qualname__} uses {name!r}, a {type(value).__name__}, which a file of its own cannot have: "
                f"make it a hyperparameter or a constant of {thing.__qualname__}, or write both into a file."
            )

    take(thing.__qualname__, thing)
    return "\n".join([*sorted(imports), "", "", *parts]) + "\n"


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _home(name: str, value: Any) -> tuple[str, str] | None:
    """The importable module that has this very object, and what it is called there."""
    own, called = getattr(value, "__module__", None), getattr(value, "__qualname__", name)
    for module in (own, *sorted(sys.modules, key=lambda one: (not one.startswith("pflbench"), len(one), one))):
        if not isinstance(module, str) or module == "__main__" or module.startswith("_"):
            continue
        there = vars(sys.modules[module]) if isinstance(sys.modules.get(module), ModuleType) else {}
        for attribute in dict.fromkeys((called, name)):
            if there.get(attribute) is value and not _is_plain(value):
                return module, attribute
    return None


def _source(thing: Any) -> str:
    """The source of a class or function, from the cell or file that it stands in."""
    for lines in _candidates(thing):
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:  # a cell with a line of the notebook's own language
            continue
        for node in reversed(tree.body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == thing.__qualname__:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno])
    raise UsageError(
        f"The source of {thing.__qualname__} cannot be found: write it into a file and give FILE.py:Class."
    )


def _candidates(thing: Any) -> Iterator[list[str]]:
    """The lines of what it may stand in: its functions' cells or files, its module's file, all cells (last first)."""
    values = (
        getattr(value, "__func__", value) for value in (vars(thing).values() if isinstance(thing, type) else (thing,))
    )
    functions = [inspect.unwrap(value) for value in values if isinstance(value, FunctionType)]
    places = [one.__code__.co_filename for one in functions]
    places.append(getattr(sys.modules.get(thing.__module__), "__file__", None) or "")
    # No file has the text of a cell.
    places += [name for name, known in reversed(linecache.cache.items()) if len(known) == 4 and known[1] is None]
    for name in dict.fromkeys(places):
        if lines := linecache.getlines(name):
            yield [line if line.endswith("\n") else f"{line}\n" for line in lines]


def _globals(source: str) -> list[str]:
    """The names that a piece of source takes from around it."""

    def of(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced())
        for inner in table.get_children():
            yield from of(inner)

    top = symtable.symtable(source, "<class>", "exec")
    own = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_namespace()}
    return sorted({*of(top), *(one.get_name() for one in top.get_symbols() if one.is_referenced())} - own)
