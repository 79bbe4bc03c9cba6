"""Descriptions of methods: paper, departures, hyperparameters and stages, read from the source without importing it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import NamedTuple

from pflbench.catalog import REQUIRED, FieldInfo, MethodInfo, describe
from pflbench.errors import PflbenchError
from pflbench.names import locate, source_file, split_reference
from pflbench.usercode import syntax

_HEADING = re.compile(r"(Departures?\b[^:]*):\s*(.*)")
_ITEM = re.compile(r"(\d+)\.\s+(.*)")


class Departures(NamedTuple):
    """Departures under one heading, numbered as in the docstring; `scope` is what the heading says of all of them."""

    scope: str
    items: tuple[str, ...]


class Docstring(NamedTuple):
    """First line of a method's docstring, and its departures from its paper."""

    head: str
    departures: tuple[Departures, ...]


@dataclass(frozen=True)
class Hyperparameter:
    """One of a method's: its default as text, what else it may be, and what it means."""

    name: str
    default: str
    allowed: str
    meaning: str


@dataclass(frozen=True)
class MethodDescription:
    """Description of a method, from its source.

    Attributes:
        info: Its entry in the catalog.
        citation: The first paragraph of its module's docstring, or what stands there of its paper.
        departures: Where it departs from the paper, and why.
        special_cases: In which cases it is another method.
        hyperparameters: In the order of its fields.
        stages: Those that a table can show, each with what it depends on in brackets.
    """

    info: MethodInfo
    citation: str
    departures: tuple[Departures, ...]
    special_cases: str
    hyperparameters: tuple[Hyperparameter, ...]
    stages: tuple[str, ...]


def describe_method(name: str) -> MethodDescription:
    """The method behind an id, `path/to/file.py:Class` or `module:Class`. Raises `UsageError` if it is unknown."""
    info = describe(name)
    text = _docstrings(syntax(source_file(info.reference)), split_reference(info.reference)[1])
    return MethodDescription(
        info=info,
        citation=" ".join(text.split("\n\n")[0].split()),
        departures=tuple(departures_in(text)),
        special_cases=_special_cases(text),
        hyperparameters=tuple(_hyperparameter(key, field) for key, field in info.fields.items()),
        stages=tuple(_stages(info)),
    )


def _special_cases(text: str) -> str:
    found = re.search(r"^Special cases?: (.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def _hyperparameter(key: str, field: FieldInfo) -> Hyperparameter:
    default = "required" if field.default is REQUIRED else "none" if field.default is None else str(field.default)
    others = [str(choice) for choice in field.choices or () if choice != field.default]
    return Hyperparameter(key, default, f"or {', '.join(others)}" if others else field.range, field.doc)


def _stages(info: MethodInfo) -> list[str]:
    every = info.stages.present(dict.fromkeys(info.fields, 1), moment="before-aggregation", held_out=False)
    always = info.stages.present({}, moment="after-aggregation", held_out=False)
    before = info.stages.present({}, moment="before-aggregation", held_out=False)
    needs = f"with {info.stages.personal_needs}"
    return [
        stage if stage in always else f"{stage} ({needs}{', or before aggregation' if stage in before else ''})"
        for stage in every
    ]


def of_method(name: str) -> Docstring | None:
    """Docstring of a method, by its id; None if its source cannot be found."""
    try:
        reference = locate("methods", name)
        text = source_file(reference).read_text(encoding="utf-8")
    except (PflbenchError, OSError, UnicodeDecodeError):
        return None
    return docstring_of(text, split_reference(reference)[1])


def docstring_of(text: str, name: str) -> Docstring | None:
    """Docstrings of a module and of its class of this name; None if it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return None
    text = _docstrings(tree, name)
    return Docstring(text.partition("\n")[0], tuple(departures_in(text)))


def _docstrings(tree: ast.Module, name: str) -> str:
    """Texts of the docstrings of a module and of its class of this name; empty if there are none."""
    own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    nodes: list[ast.Module | ast.ClassDef] = [tree, *own]
    return "\n\n".join(doc for node in nodes if (doc := ast.get_docstring(node)))


def departures_in(doc: str) -> list[Departures]:
    """The departures that a docstring lists: under lines that begin so, numbered or as one sentence."""
    found: list[tuple[str, list[str]]] = []
    listed = False  # whether the lines still belong to a list
    for line in doc.splitlines():
        if heading := _HEADING.fullmatch(line):
            found.append((heading[1], [heading[2]] if heading[2] else []))
            listed = True
        elif item := _ITEM.fullmatch(line) if listed else None:
            found[-1][1].append(f"{item[1]}. {item[2]}")
        elif listed and line.strip() and (items := found[-1][1]) and not re.match(r"[A-Z][\w ]*:", line):
            # A numbered item goes on where lines are indented, a sentence on any line.
            listed = line.startswith(" ") or not _ITEM.match(items[-1])
            items[-1] += f" {line.strip()}" * listed
        else:
            listed = False
    return [Departures(re.sub(r"^Departures?[ ,]*", "", scope), tuple(items)) for scope, items in found if items]
