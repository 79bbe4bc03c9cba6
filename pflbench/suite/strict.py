"""Strict models of a TOML file's tables: errors name the key's path and, for a wrong name, the nearest known one."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pflbench.errors import UsageError, unknown

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


class at:  # a class, since a report enters it 50,000 times
    """Put a value's path in the file in front of the errors about it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UsageError):
            raise UsageError(f"{self.path}: {error}") from error
        if isinstance(error, ValidationError):
            raise UsageError("\n".join(f"{self.path}.{explain(e)}" for e in error.errors())) from error


def validated(model: type[Model], content: Any, prefix: str) -> Model:
    """The content of a file as a model has it; raises `UsageError` with all that is wrong, after `prefix`."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UsageError("\n".join(prefix + explain(e) for e in error.errors())) from error


def fault(path: KeyPath, message: str) -> PydanticCustomError:
    """The error for what is at `path`, counted from the table that is validated."""
    return PydanticCustomError("suite", "{message}", {"path": path, "message": message})


def all_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `UsageError` with near matches for the first name that is none of `known`."""
    known = set(known)
    for name in names:
        if name not in known:
            raise unknown(kind, name, known)


def explain(error: Mapping[str, Any]) -> str:
    """One of a `ValidationError`'s errors in a line: the key's path (`column[2].batch`), the problem, an example."""
    context, loc = error.get("ctx", {}), error["loc"]
    loc = (loc[0], *loc[2:]) if loc[:1] == ("figure",) else loc  # then its kind, which is no key
    path = [part for part in (*loc, *context.get("path", ())) if not re.match(_UNION, str(part))]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    if error["type"] == "missing":
        return f"{key}: missing (its table has {', '.join(error['input']) or 'no key'})"
    if error["type"] == "suite":
        return f"{key}: {error['msg']}"
    no_table = error["type"] in ("dict_type", "model_type")  # pydantic's words have the name of the class
    expected = "It should be a table" if no_table else error["msg"].replace("Input should", "It should")
    problem = f"{key}: {reprlib.repr(error['input'])} does not fit. {expected}."
    known = re.findall("'([^']*)'", context.get("expected", ""))
    near = difflib.get_close_matches(str(error["input"]), known, n=1, cutoff=0.5)
    example = json.dumps(near[0]) if near else _EXAMPLES.get(error["type"])
    return f"{problem}{_suggestion(path, example)}"


def _suggestion(path: Sequence[str | int], example: str | None) -> str:
    """A sentence with the key of a right value; empty without an example, and where a key itself is wrong."""
    name = next((part for part in reversed(path) if isinstance(part, str)), "key")
    if example is None or name == "[key]":  # pydantic's name of a key
        return ""
    is_item = bool(path) and isinstance(path[-1], int)
    return f" Write `{name} = [{example}]`." if is_item else f" Write `{name} = {example}`."


_UNION = r"((list|dict|literal)\[|constrained-|(float|int|str)$)"
"""Names of a union's members in pydantic's paths."""
_EXAMPLES = {
    "string_type": '"text"',
    "string_pattern_mismatch": '"my-id"',
    "int_type": "1",
    "float_type": "0.1",
    "bool_type": "true",
    "list_type": "[…]",
    "dict_type": "{ … }",
    "model_type": "{ … }",
}
"""Example of a right value, by pydantic's type of error."""


class TomlTable(BaseModel):
    """A TOML table. Its unknown keys are found before anything else, so that they hide the errors they cause."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, table: Any) -> Any:
        fields = cls.__pydantic_fields__  # what `model_fields` gives, slowly
        for key in table if isinstance(table, dict) else ():
            if key not in fields and cls.model_config["extra"] == "forbid":
                raise fault((key,), str(unknown("key", key, fields)))
        return table
