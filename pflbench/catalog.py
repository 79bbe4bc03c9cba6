"""The options of methods, datasets and partitions, read from their source, so that nothing heavy is imported."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

from pflbench import classes, names, stages, usercode
from pflbench.classes import Declared
from pflbench.errors import UsageError, unknown
from pflbench.hyper import RANGE, Bounds, check_declared
from pflbench.stages import Stages

REQUIRED: Final = object()
"""The default of a field that has none."""


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
    """A dataclass behind a name.

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


@dataclass(frozen=True)
class _Schema:
    fields: dict[str, FieldInfo]
    doc: str
    version: int | None
    minibatches: bool = True
    reads: bool = False


def describe(name: str) -> MethodInfo:
    """The method behind an id, `path/to/file.py:Class` or `module:Class`."""
    return _built_in_method(name) if name in names.BUILT_IN["methods"] else _method(name)


def _method(name: str) -> MethodInfo:
    reference = names.locate("methods", name)
    schema = _schema(reference)
    found = stages.of_reference(reference)
    if names.is_reference(name) and names.is_users(reference):
        version = names.code(reference).version
        name = names.without_folder(reference)
        return MethodInfo(
            name, reference, schema.fields, schema.doc, version=version, stages=found, minibatches=schema.minibatches
        )
    declared = schema.version
    if declared is None:  # perhaps inherited
        declared = _imported(reference).version
    if declared is None:
        raise UsageError(f"The method {name!r} declares no version: write `version: ClassVar[int] = 1`.")
    return MethodInfo(
        name, reference, schema.fields, schema.doc, version=str(declared), stages=found, minibatches=schema.minibatches
    )


def of_source(name: str, version: str, text: str) -> MethodInfo | None:
    """User-supplied method of a stored run, from its stored source alone; None if that does not suffice.

    No file is read but those of pflbench, and nothing is imported.
    """
    try:
        tree = ast.parse(text)
        declared = classes.lineage(name, tree)
        schema = None if declared is None else _of_lineage(declared)
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if declared is None or schema is None:
        return None
    found = stages.of_lineage(declared)
    return MethodInfo(
        name, name, schema.fields, schema.doc, version=version, stages=found, minibatches=schema.minibatches
    )


def describe_options(kind: names.Kind, name: str) -> Info:
    """The dataset or partition behind a name, `path/to/file.py:Class` or `module:Class`; a network, without options."""
    return _built_in_options(kind, name) if name in names.BUILT_IN[kind] else _options(kind, name)


def _options(kind: names.Kind, name: str) -> Info:
    reference = names.locate(kind, name)
    if kind != "models":
        schema = _schema(reference)
    else:
        schema = _Schema({}, "", None)
        if names.is_reference(name):
            path, attribute = names.source_file(reference), names.split_reference(reference)[1]
            _defined(usercode.syntax(path), path, attribute, "attribute", ast.ClassDef | ast.FunctionDef)
    version = names.code(reference).version if names.is_users(reference) else None
    return Info(names.without_folder(name), reference, schema.fields, schema.doc, version, schema.reads)


# pflbench's own files stay what they are while it runs, and suites ask for the same few hundreds of times.
_built_in_method, _built_in_options = cache(_method), cache(_options)


def coerce(info: Info, key: str, value: Any) -> Any:
    """Convert `value` to the type of the field `key`: integers become floats for a float, nothing else changes type.

    TOML has no None: "none" stands for it where the field may be None and is no text.
    """
    field = _field(info, key)
    types = _types(field.type)
    if field.choices is not None and any(value == c and type(value) is type(c) for c in field.choices):
        return value
    if type(value) is int and "int" not in types and "float" in types and abs(value) < 2**53:
        value = float(value)
    if isinstance(value, str) and value and "Path" in types:  # of which a spec keeps the last part, see `suite.layers`
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


def complete(info: Info, given: Mapping[str, Any]) -> dict[str, Any]:
    """Value of every field: from `given` (already coerced), else the default. A missing required field is an error.

    A field is left out at its default where that is None, or where the field says that it was `added` later: options
    may come without moving old runs' ids.
    """
    missing = [k for k, field in info.fields.items() if field.default is REQUIRED and k not in given]
    if missing:
        raise UsageError(f"{info.name} needs a value for {', '.join(missing)}.")
    values = {k: given.get(k, field.default) for k, field in info.fields.items()}
    later = {k: field.default for k, field in info.fields.items() if field.default is None or field.added}
    return {k: v for k, v in values.items() if not (k in later and v == later[k])}


def _field(info: Info, key: str) -> FieldInfo:
    if key not in info.fields:
        raise unknown(f"{info.noun} of {info.name}", key, info.fields)
    return info.fields[key]


def _refusal(info: Info, key: str, field: FieldInfo, value: Any) -> UsageError:
    if field.choices is not None:
        return unknown(f"value of {info.name}.{key}", str(value), map(str, field.choices))
    if isinstance(value, float) and "float" in _types(field.type):
        return UsageError(f"{info.name}.{key} must be a finite number, not {value}.")
    return UsageError(f"{info.name}.{key} must be {field.type}, not {value!r}.")


def _schema(reference: str) -> _Schema:
    path = names.source_file(reference)
    return _read(usercode.syntax(path), path, reference) or _imported(reference)


@lru_cache(maxsize=256)
def _read(tree: ast.Module, path: Path, reference: str) -> _Schema | None:
    # None where the source alone does not tell: a user's base, computed defaults, re-exported classes.
    # A suite asks for the same few classes hundreds of times.
    if _defined(tree, path, names.split_reference(reference)[1], "class") is None:
        return None
    declared = classes.lineage(reference)
    if declared is None or any(one.module != declared[0].module and names.is_users(one.reference) for one in declared):
        return None  # a base that may change while this file does not
    return _of_lineage(declared)


def _of_lineage(declared: Sequence[Declared]) -> _Schema | None:
    """Declarations of a class and its bases; None where their source does not tell."""
    if not _is_dataclass(declared[0].node):
        return None
    try:
        own = [_own_fields(one.node) if _is_dataclass(one.node) else {} for one in declared]
        fields = {key: field for some in own for key, field in some.items()}  # its own first, then what it shares
        for one, some in zip(reversed(declared), reversed(own), strict=True):
            fields |= some
            for changed in one.node.keywords:
                if changed.arg in fields:
                    default = ast.literal_eval(changed.value)
                    fields[changed.arg] = dataclasses.replace(fields[changed.arg], default=default)
    except ValueError:
        return None
    version = next((one.body["version"] for one in declared if one.body.get("version") is not None), None)
    doc = _first_line(ast.get_docstring(declared[0].node))
    return _Schema(fields, doc, version, _draws_minibatches(declared), _reads(declared))


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(d).split("(")[0].endswith("dataclass") for d in node.decorator_list)


def _own_fields(node: ast.ClassDef) -> dict[str, FieldInfo]:
    """The fields that a class statement declares itself. Raises `ValueError` if a default is no literal."""
    fields, docs = {}, _docs(node)
    for item in node.body:
        if not (isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)):
            continue
        kind, name, value = ast.unparse(item.annotation), item.target.id, item.value
        if "ClassVar" in kind:
            continue
        if isinstance(value, ast.Call) and _base_name(value.func) == "hyper":
            default, help = (ast.literal_eval(argument) for argument in value.args)
            said = {k.arg: ast.literal_eval(k.value) for k in value.keywords if k.arg}
            added = said.pop("added", False)
            fields[name] = FieldInfo(kind, default, _choices(kind), help, str(Bounds(**said)), added)
        else:
            default = REQUIRED if value is None else ast.literal_eval(value)
            fields[name] = FieldInfo(kind, default, _choices(kind), docs.get(name, ""))
    return fields


def _imported(reference: str) -> _Schema:
    cls = names.load(reference)
    if not isinstance(cls, type):
        raise UsageError(f"{reference!r} is not a class: write a dataclass, whose fields a suite can set.")
    check_declared(cls)
    path = names.source_file(reference)
    node = _defined(usercode.syntax(path), path, cls.__name__, "class")
    docs = _docs(node) if node else {}
    fields = {}
    for f in dataclasses.fields(cls):
        kind = f.type if isinstance(f.type, str) else f.type.__name__ if type(f.type) is type else str(f.type)
        default = REQUIRED if f.default is MISSING else f.default
        default = default if f.default_factory is MISSING else f.default_factory()
        said = f.metadata.get("help") or docs.get(f.name, "")
        allowed = str(f.metadata.get(RANGE, ""))
        fields[f.name] = FieldInfo(kind, default, _choices(kind), said, allowed, f.metadata.get("added", False))
    return _Schema(fields, _first_line(cls.__doc__), getattr(cls, "version", None), reads=hasattr(cls, "files"))


def _reads(declared: Sequence[Declared]) -> bool:
    """True if a dataset or partition declares the files that it reads."""
    return any("files" in one.body for one in declared)


def _draws_minibatches(declared: Sequence[Declared]) -> bool:
    """True if a method's clients draw minibatches, to train or to adapt, or where its source does not tell."""
    calls: list[ast.Call] = []
    for name in ("draws", "personal_draws"):
        written = (item for one in declared for item in one.node.body if isinstance(item, ast.FunctionDef))
        nearest = next((item for item in written if item.name == name), None)
        calls += [] if nearest is None else [call for call in ast.walk(nearest) if isinstance(call, ast.Call)]
    whole = {"whole": "True"}.items()
    return not all(
        _base_name(call.func) == "Draw" and whole <= {k.arg: ast.unparse(k.value) for k in call.keywords}.items()
        for call in calls
    )


def _defined(tree: ast.Module, path: Path, name: str, what: str, kinds: Any = ast.ClassDef) -> Any:
    """The statement that defines a name in a file; None if it is imported or assigned there. Raises `UsageError`."""
    defined = {n.name: n for n in tree.body if isinstance(n, kinds)}
    if name in defined:
        return defined[name]
    bound = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if not {name, "*"} & bound:
        raise unknown(f"{what} of {path}", name, defined)
    return None


def _docs(node: ast.ClassDef) -> dict[str, str]:
    # A field's doc is the string literal right below it.
    docs = {}
    for item, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[ast.unparse(item.target)] = " ".join(str(below.value.value).split())
    return docs


def _base_name(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return ast.unparse(node).rpartition(".")[2]


def _first_line(doc: str | None) -> str:
    return doc.strip().splitlines()[0] if doc and doc.strip() else ""


def _alternatives(annotation: str) -> list[ast.expr]:
    def split(node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return split(node.left) + split(node.right)
        if isinstance(node, ast.Subscript) and _base_name(node) == "Optional":
            return [*split(node.slice), ast.Constant(None)]
        return [node]

    return split(ast.parse(annotation, mode="eval").body)


@cache
def _types(annotation: str) -> frozenset[str]:
    return frozenset({"NoneType" if ast.unparse(n) == "None" else ast.unparse(n) for n in _alternatives(annotation)})


def _choices(annotation: str) -> tuple[Any, ...] | None:
    for node in _alternatives(annotation):
        if isinstance(node, ast.Subscript) and _base_name(node) == "Literal":
            values = ast.literal_eval(node.slice)
            return values if isinstance(values, tuple) else (values,)
    return None
