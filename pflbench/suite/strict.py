"""Strict models of a TOML file's tables: errors name the key's place and, for a wrong name, the nearest known one."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pflbench.errors import UsageError, unknown

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


class at:  # a class, since a report enters it 50,000 times
    """Put a value's place in the file in front of the errors about it."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UsageError):
            raise UsageError(f"{self.place}: {error}") from error
        if isinstance(error, ValidationError):
            raise UsageError("\n".join(f"{self.place}.{explain(e)}" for e in error.errors())) from error


def validated(model: type[Model], content: Any, prefix: str) -> Model:
    """The content of a file as a model has it; raises `UsageError` with all that is wrong, after `prefix`."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UsageError("\n".join(prefix + explain(e) for e in error.errors())) from error


def fault(path: KeyPath, message: str) -> PydanticCustomError:
    """The error for what is at `path`, counted from the table that is validated."""
    return PydanticCustomError("suite", "{message}", {"path": path, "message": message})


def check_keys(path: KeyPath, keys: Iterable[str], known: Collection[str]) -> None:
    """Raise the error for the first key of the table at `path` that is none of `known`, with the nearest of them."""
    for key in keys:
        if key not in known:
            begins = sorted((one for one in known if len(one) > 2 and key.startswith(one)), key=len)  # batchsize: batch
            near = begins[-1:] or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f", did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
            raise fault((*path, key), f"unknown key{hint}")


def check_names(path: KeyPath, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise the error for the first name in the list at `path` that is none of `known`."""
    for i, name in enumerate(names):
        if name not in known:
            raise fault((*path, i), str(unknown(kind, name, known)))


def explain(error: Mapping[str, Any]) -> str:
    """One of a `ValidationError`'s errors in a line: the key's path (`column[2].batch`), the problem, an example."""
    context, loc = error.get("ctx", {}), error["loc"]
    loc = (loc[0], *loc[2:]) if loc[:1] == ("figure",) else loc  # then its kind, which is no key
    path = (*loc, *context.get("path", ()))
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    if error["type"] == "missing":
        return f"{key}: missing"
    if error["type"] == "suite":
        return f"{key}: {error['msg']}"
    no_table = error["type"] in ("dict_type", "model_type")  # pydantic's words have the name of the class
    expected = "It should be a table" if no_table else error["msg"].replace("Input should", "It should")
    problem = f"{key}: {reprlib.repr(error['input'])} does not fit. {expected}."
    known = re.findall("'([^']*)'", context.get("expected", ""))
    near = difflib.get_close_matches(str(error["input"]), known, n=1, cutoff=0.5)
    example = json.dumps(near[0]) if near else _EXAMPLES.get(error["type"])
    name = next((part for part in reversed(path) if isinstance(part, str)), "key")
    return f"{problem} Write `{name} = {example}`." if example else problem


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
        if isinstance(table, dict):
            fields = cls.__pydantic_fields__  # what `model_fields` gives, slowly
            check_keys((), (key for key, value in table.items() if not cls.admits(value)), fields)
        return table

    @classmethod
    def admits(cls, value: Any) -> bool:
        """True if a key that is no field may hold `value`."""
        return False
