"""Reference pages of the site: all options of the command line, and all keys of a suite file."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import typer

from pflbench.cli.main import program
from pflbench.suite.document import Document
from pflbench.suite.strict import TomlTable

OPTIONS = (
    "# Every option\n\nFor users of the command line who look an option up. `pflbench VERB --help` prints the same. "
    "The last column names the environment variable that sets the option, too."
)
KEYS = (
    "# Every key of a suite file\n\nFor authors of suite files who look a key up. [Write a suite](../suites.md) "
    "introduces the keys by task. A required key may come from the suite that a file `extends`."
)


def reference_pages() -> dict[str, str]:
    """Text of both pages, by path below `docs/`."""
    return {"reference/options.md": options_page(), "reference/keys.md": keys_page()}


def options_page() -> str:
    """All verbs with their arguments and options, from the Typer app."""
    parts = [OPTIONS]
    for name, command in _commands(typer.main.get_command(program()), "pflbench"):
        lines = [
            (_spelling(one), _value(one), _code(one.default), one.help or "", _code(one.envvar))
            for one in command.params
        ]
        parts += [f"## {name}", inspect.cleandoc(command.help or "")]
        parts += [_table(("option", "value", "default", "meaning", "variable"), lines)]
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Commands below a group, each with its name on the command line."""
    for verb, one in command.commands.items():
        if hasattr(one, "commands"):
            yield from _commands(one, f"{name} {verb}")
        else:
            yield f"{name} {verb}", one


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _value(parameter: Any) -> str:
    """Type of an option's value, in words; a dash for a flag."""
    kind = parameter.type_descriptor.annotation
    text = kind.__name__ if inspect.isclass(kind) and not hasattr(kind, "__args__") else str(kind)
    text = text.removeprefix("typing.Literal")
    inner = re.fullmatch(r"list\[(?:\w+\.)*(\w+)\]", text)
    words = {"str": "text", "int": "integer", "float": "number", "bool": "–", "Path": "path"}
    text = f"{words[inner[1]]}, may be repeated" if inner else words.get(text, text)
    return f"{text} ≥ {parameter.min:g}" if parameter.min is not None else text


def keys_page() -> str:
    """All tables and keys of a suite file, from the pydantic models, in the order of a file."""
    schema = Document.model_json_schema()
    titles = {"": "The file"} | _titles(schema)
    parts, models = [KEYS], {model.__name__: model for model in _models(TomlTable)}
    for name, title in titles.items():
        meanings = _meanings(models[name or "Document"])
        table = schema["$defs"][name] if name else schema
        required = table.get("required", [])
        lines = [
            (
                _code(key),
                _kind(one, titles),
                "required" if key in required else _code(_toml(one.get("default"))),
                meanings[key],
            )
            for key, one in table.get("properties", {}).items()
        ]
        about = " ".join(table.get("description", "").split()) if name else ""
        parts += [f"## {title}", about, _table(("key", "value", "default", "meaning"), lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(model: type) -> Iterator[type]:
    """A model and all that derive from it."""
    yield model
    for one in model.__subclasses__():
        yield from _models(one)


def _meanings(model: type) -> dict[str, str]:
    """Docstring below each key of a model."""
    found: dict[str, str] = {}
    for one in [base for base in reversed(model.__mro__) if issubclass(base, TomlTable)]:
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        for line, below in pairwise(getattr(declared, "body", ())):
            if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(line.target, ast.Name):
                found[line.target.id] = ast.literal_eval(below.value)
    return found


def _titles(schema: Mapping[str, Any]) -> dict[str, str]:
    """Heading of each table by the name of its model: the place in a file where it occurs first."""
    found: dict[str, str] = {}
    places = [(schema, "")]
    for table, prefix in places:
        keys = dict(table.get("properties", {}))
        if isinstance(table.get("additionalProperties"), dict):
            keys["NAME"] = table["additionalProperties"]  # a key that the author chooses, such as a method's id
        for key, one in keys.items():
            named = list(_references(one))
            listed = any(option.get("type") == "array" for option in (one, *one.get("anyOf", ())))
            for name, levels in named:
                path = f"{prefix}{key}{'.NAME' * levels}"
                kind = schema["$defs"][name]["properties"].get("kind", {}).get("const")
                title = f"[[{path}]]" if listed and not prefix else f"[{path}]"
                if name not in found:
                    found[name] = f"`{title}`" + (f", kind `{kind}`" if kind else "")
                    places.append((schema["$defs"][name], f"{path}."))
    return found


def _references(value: Mapping[str, Any], levels: int = 0) -> Iterator[tuple[str, int]]:
    """Models that a key's value is made of, each with the number of free names in between."""
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2], levels
    for option in (*value.get("anyOf", ()), *value.get("oneOf", ())):
        yield from _references(option, levels)
    if isinstance(value.get("items"), dict):
        yield from _references(value["items"], levels)
    if isinstance(value.get("additionalProperties"), dict):
        yield from _references(value["additionalProperties"], levels + 1)


def _kind(value: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Type of a key's value, in words; a table is a link to its section."""
    if "$ref" in value:
        title = titles[value["$ref"].rpartition("/")[2]]
        anchor = re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-")
        return f"[{title}](#{anchor})"
    if options := value.get("anyOf") or value.get("oneOf"):
        return " or ".join(dict.fromkeys(_kind(one, titles) for one in options if one.get("type") != "null"))
    if "enum" in value:
        return ", ".join(_code(_toml(one)) for one in value["enum"])
    if "const" in value:
        return _code(_toml(value["const"]))
    match value.get("type"):
        case "array":
            return f"list of {_kind(value.get('items', {}), titles)}"
        case "object":
            inner = value.get("additionalProperties")
            return f"table of {_kind(inner, titles)}" if isinstance(inner, dict) and inner else "table"
        case kind:
            words = {"string": "text", "boolean": "true or false", None: "any value"}
            return words.get(kind, str(kind)) + _range(value)


def _range(value: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ",".join(f" {sign} {value[key]:g}" for key, sign in signs.items() if key in value)


def _toml(value: Any) -> Any:
    """A default as TOML has it; None for an empty one."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and value else None if value in ("", [], {}) else value


def _code(value: Any) -> str:
    return "" if value is None or value == () or callable(value) else f"`{value}`"


def _table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table without the columns that are empty in every line; an empty text where there is no line."""
    columns = [
        (head, texts) for head, *texts in zip(heads, *(map(_cell, one) for one in lines), strict=True) if any(texts)
    ]
    if not columns:
        return ""
    rows = zip(*([head, "---", *texts] for head, texts in columns), strict=True)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
