"""What a method's docstring says of its paper and of its departures, read without importing it."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from pflbench.errors import PflbenchError
from pflbench.names import locate, source_file, split_reference

_HEADING = re.compile(r"(Departures?\b[^:]*):\s*(.*)")
_ITEM = re.compile(r"(\d+)\.\s+(.*)")


class Departures(NamedTuple):
    """Departures under one heading, numbered as in the docstring; `scope` is what the heading says of all of them."""

    scope: str
    items: tuple[str, ...]


class Said(NamedTuple):
    """What a method is, in a line, and in what it departs from its paper."""

    head: str
    departures: tuple[Departures, ...]


def of_method(name: str) -> Said | None:
    """What the docstring of a method says, by its id or reference; None if its source cannot be found."""
    try:
        reference = locate("methods", name)
        text = source_file(reference).read_text(encoding="utf-8")
    except (PflbenchError, OSError, UnicodeDecodeError):
        return None
    return of_source(text, split_reference(reference)[1])


def of_source(text: str, name: str) -> Said | None:
    """What the docstrings of a module and of its class of this name say; None if it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    nodes: list[ast.Module | ast.ClassDef] = [tree, *own]
    docs = [doc for node in nodes if (doc := ast.get_docstring(node))]
    heads = [" ".join(doc.split("\n\n", 1)[0].split("\n", 1)[0].split()) for doc in docs]
    return Said(next(iter(heads), ""), tuple(found for doc in docs for found in departures(doc)))


def departures(doc: str) -> list[Departures]:
    """The departures that a docstring lists: under lines that begin so, numbered or as one sentence."""
    found: list[tuple[str, list[str]]] = []
    listed = False  # whether the lines still belong to a list
    for line in doc.splitlines():
        if heading := _HEADING.fullmatch(line):
            found.append((heading[1], [heading[2]] if heading[2] else []))
            listed = True
        elif item := _ITEM.fullmatch(line) if listed else None:
            found[-1][1].append(f"{item[1]}. {item[2]}")
        elif listed and _goes_on(line, found[-1][1]):
            found[-1][1][-1] += f" {line.strip()}"
        else:
            listed = False
    return [Departures(re.sub(r"^Departures?[ ,]*", "", scope), tuple(items)) for scope, items in found if items]


def _goes_on(line: str, items: list[str]) -> bool:
    """Whether a line continues the item before it: of a numbered one it is indented, of a sentence it is any line."""
    if not items or not line.strip() or re.match(r"[A-Z][\w ]*:", line):
        return False
    return line.startswith(" ") or not _ITEM.match(items[-1])
