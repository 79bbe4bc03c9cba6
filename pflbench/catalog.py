"""Options of methods, datasets and partitions, as their classes declare them.

`catalog.json` describes everything that comes with pflbench, so that verbs that train nothing import none of it;
`python tools/docs/catalog.py` writes it. User-supplied classes and entry points are imported.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Union, get_args, get_origin

from pflbench import names
from pflbench.errors import UsageError, unknown
from pflbench.hyper import RANGE, check_declared
from pflbench.stages import Stages, of_class

REQUIRED: Final = object()
"""The default of a field that has none."""
UNREAD: Final = "unread"
"""Version of user-supplied code that a command does not import. It takes every option, as the suite writes it."""


@dataclass(frozen=True)
class FieldInfo:
    """One field.

    `type`: its annotation as text; `choices`: a `Literal`'s values; `range`: the numbers it may be, in words;
    `added`: it came after runs were stored, so its default is no part of their identity.
    """

    type: str
    default: Any = REQUIRED
    choices: tuple[Any, ...] | None = None
    doc: str = ""
    range: str = ""
    added: bool = False


@dataclass(frozen=True)
class Info:
    """A class or, of a network, a function behind a name.

    Attributes:
        name: As in specs, without a file's folder.
        reference: Where the code is.
        fields: Its options.
        doc: The first line of its docstring.
        version: Hash of user-supplied code; None for what comes with pflbench.
        reads: True if it declares `files`, whose content is part of a run's identity.
    """

    noun: ClassVar[str] = "option"

    name: str
    reference: str
    fields: dict[str, FieldInfo]
    doc: str
    version: str | None = None
    reads: bool = False

    @property
    def paths(self) -> list[str]:
        """Options that name a file or folder."""
        return [key for key, field in self.fields.items() if "Path" in _types(field.type)]


@dataclass(frozen=True)
class MethodInfo(Info):
    """A method; `version` is declared by it, or is the hash of user-supplied code."""

    noun: ClassVar[str] = "hyperparameter"

    version: str = ""
    stages: Stages = dataclasses.field(default_factory=Stages)
    minibatches: bool = True
    """True if its clients draw minibatches; else the batch size changes nothing."""
    base: str = ""
    """Name of the built-in method that a variant derives from."""
    commits: str = "arrived"
    """Clients that train when uploads get lost, see `methods.base.Method`."""


def describe(name: str) -> MethodInfo:
    """Describe the method behind an id, `path/to/file.py:Class` or `module:Class`.

    Raises:
        UsageError: It is unknown, cannot be imported, or declares no version.
        Untrusted: It is user-supplied code that was not granted.
    """
    return shipped_method(name) or imported_method(name)


@cache
def shipped_method(name: str) -> MethodInfo | None:
    """Describe a method that comes with pflbench; None for any other, of which nothing is looked up or imported."""
    if name not in names.shipped()["methods"]:
        return None
    entry = dict(names.shipped()["methods"][name])
    stages = Stages(**{key: _value(value) for key, value in entry.pop("stages", {}).items()})
    return MethodInfo(name, names.locate("methods", name), _fields(entry.pop("fields", {})), stages=stages, **entry)


def describe_options(kind: names.Kind, name: str) -> Info:
    """Describe the dataset, partition or network behind a name; networks have no options. Raises as `describe`."""
    return _shipped_options(kind, name) if name in names.shipped()[kind] else imported_options(kind, name)


@cache
def _shipped_options(kind: names.Kind, name: str) -> Info:
    entry = dict(names.shipped()[kind][name])
    return Info(name, names.locate(kind, name), _fields(entry.pop("fields", {})), **entry)


def _fields(entry: Mapping[str, Mapping[str, Any]]) -> dict[str, FieldInfo]:
    """Fields from `catalog.json`."""
    return {
        name: FieldInfo(**{key: _value(value) for key, value in one.items()}, choices=_choices(one["type"]))
        for name, one in entry.items()
    }


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def imported_method(name: str) -> MethodInfo:
    """Describe a method by its class, which is imported. Raises as `describe`."""
    reference = names.locate("methods", name)
    cls = _dataclass(reference)
    users = names.is_reference(name) and names.is_users(reference)
    version = names.code(reference).version if users else getattr(cls, "version", None)
    if version is None:
        raise UsageError(f"The method {name!r} declares no version: write `version: ClassVar[int] = 1`.")
    return MethodInfo(
        name=names.without_folder(name),
        reference=reference,
        fields=_declared(cls),
        doc=_first_line(cls.__doc__),
        version=str(version),
        stages=of_class(cls),
        minibatches=_draws_minibatches(cls),
        base=_base(cls) if names.is_variant(name) else "",
        commits=getattr(cls, "commits", "arrived"),
    )


def _base(cls: type) -> str:
    """Name of the nearest built-in method that a class derives from; empty if there is none."""
    built_in = {reference: name for name, reference in names.BUILT_IN["methods"].items()}
    references = (f"{one.__module__}:{one.__qualname__}" for one in cls.__mro__)
    return next((built_in[one] for one in references if one in built_in), "")


def imported_options(kind: names.Kind, name: str) -> Info:
    """Describe a dataset, partition or network by its class, which is imported. Raises as `describe`."""
    reference = names.locate(kind, name)
    made = names.load(reference) if kind == "models" else _dataclass(reference)
    doc = _first_line(made.__doc__ or sys.modules[made.__module__].__doc__)
    fields = {} if kind == "models" else _declared(made)
    version = names.code(reference).version if names.is_users(reference) else None
    return Info(names.without_folder(name), reference, fields, doc, version, hasattr(made, "files"))


def _dataclass(reference: str) -> type:
    cls = names.load(reference)
    if not isinstance(cls, type):
        raise UsageError(f"{reference!r} is not a class: write a dataclass, whose fields a suite can set.")
    if names.is_users(reference):
        check_declared(cls)
    return cls


def _declared(cls: type) -> dict[str, FieldInfo]:
    """Fields of a dataclass: those that it declares first, then those that it inherits."""
    fields = {one.name: one for one in dataclasses.fields(cls)}
    declared = [(name, one) for one in cls.__mro__ for name in inspect.get_annotations(one) if name in fields]
    first = dict(declared)  # the class that declares a field first, of those that do
    return {name: _field_info(fields[name]) for name, one in declared if first[name] is one}


def _field_info(field: dataclasses.Field[Any]) -> FieldInfo:
    kind = _annotation(field.type)
    default = REQUIRED if field.default is MISSING else field.default
    default = default if field.default_factory is MISSING else field.default_factory()
    meaning, allowed = field.metadata.get("help", ""), str(field.metadata.get(RANGE, ""))
    return FieldInfo(kind, default, _choices(kind), meaning, allowed, field.metadata.get("added", False))


def _annotation(kind: Any) -> str:
    """An annotation as text, as it is written under `from __future__ import annotations`."""
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(_annotation, get_args(kind)))
    if isinstance(kind, str):
        return kind
    return "None" if kind is NoneType else kind.__name__ if type(kind) is type else str(kind).replace("typing.", "")


def _draws_minibatches(method: type) -> bool:
    """True if a method's clients draw minibatches, to train or to adapt, or where it has no defaults to tell by."""
    round = sys.modules["pflbench.methods.base"].Round(0, coin=1.0)
    try:
        made = method()
        return not all(one.whole for one in (*made.draws(round), *made.personal_draws()))
    except (Exception, SystemExit):  # which a run reports
        return True


def coerce(info: Info, key: str, value: Any) -> Any:
    """Convert `value` to the type of the field `key`: integers become floats for a float, nothing else changes type.

    TOML has no None: "none" stands for it where the field may be None and is no text.
    """
    if info.version == UNREAD:
        return value
    field = _field(info, key)
    types = _types(field.type)
    if (type(value), value) in [(type(choice), choice) for choice in field.choices or ()]:
        return value
    if type(value) is int and "int" not in types and "float" in types and abs(value) < 2**53:
        value = float(value)
    if isinstance(value, str) and value and "Path" in types:  # of which a spec keeps the last part, see `suite.columns`
        return value
    if type(value).__name__ in types and _is_finite(value):
        return value
    if value == "none" and "NoneType" in types:
        return None
    raise _refusal(info, key, field, value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def parse(info: Info, key: str, text: str) -> Any:
    """The value that `text`, typed on the command line, means for the field `key`."""
    field = _field(info, key)
    types = _types(field.type)
    readings: dict[str, Any] = {str(choice): choice for choice in field.choices or ()}
    if "bool" in types:
        readings |= {"true": True, "false": False}
    if "NoneType" in types:
        readings["none"] = None
    if text in readings:
        return readings[text]
    for kind, read in (("int", int), ("float", float), ("str", str)):
        if kind in types:
            try:
                return coerce(info, key, read(text))
            except ValueError:
                continue
    raise _refusal(info, key, field, text)


def complete(info: Info, values: Mapping[str, Any]) -> dict[str, Any]:
    """Value of every field: from `values` (already coerced), else the default. A missing required field is an error.

    A field is left out at its default where that is None, or where the field says that it was `added` later: options
    may come without moving old runs' ids.
    """
    if info.version == UNREAD:
        return dict(values)
    missing = [k for k, field in info.fields.items() if field.default is REQUIRED and k not in values]
    if missing:
        raise UsageError(f"{info.name} needs a value for {', '.join(missing)}.")
    whole = {k: values.get(k, field.default) for k, field in info.fields.items()}
    later = {k: field.default for k, field in info.fields.items() if field.default is None or field.added}
    return {k: v for k, v in whole.items() if not (k in later and v == later[k])}


def _field(info: Info, key: str) -> FieldInfo:
    if info.version == UNREAD:
        return FieldInfo("bool | int | float | str | None")
    if key not in info.fields:
        raise unknown(f"{info.noun} of {info.name}", key, info.fields)
    return info.fields[key]


def _refusal(info: Info, key: str, field: FieldInfo, value: Any) -> UsageError:
    if field.choices is not None:
        return unknown(f"value of {info.name}.{key}", str(value), map(str, field.choices))
    if isinstance(value, float) and "float" in _types(field.type):
        return UsageError(f"{info.name}.{key} must be a finite number, not {value}.")
    return UsageError(f"{info.name}.{key} must be {field.type}, not {value!r}.")


def _first_line(doc: str | None) -> str:
    return doc.strip().splitlines()[0] if doc and doc.strip() else ""


def _alternatives(annotation: str) -> list[ast.expr]:
    def split(node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return split(node.left) + split(node.right)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Optional":
            return [*split(node.slice), ast.Constant(None)]
        return [node]

    return split(ast.parse(annotation, mode="eval").body)


@cache
def _types(annotation: str) -> frozenset[str]:
    return frozenset({"NoneType" if ast.unparse(n) == "None" else ast.unparse(n) for n in _alternatives(annotation)})


def _choices(annotation: str) -> tuple[Any, ...] | None:
    for node in _alternatives(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Literal":
            values = ast.literal_eval(node.slice)
            return values if isinstance(values, tuple) else (values,)
    return None
