"""Strict models of a TOML file's tables: errors name the key's place and, for a wrong name, the nearest known one."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pflbench.errors import UsageError, unknown
from pflbench.units import count

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
    """One of a `ValidationError`'s errors in a line: the key's path (`column[2].batch`), what is wrong, an example."""
    context, loc = error.get("ctx", {}), error["loc"]
    loc = (loc[0], *loc[2:]) if loc[:1] == ("figure",) else loc  # then its kind, which is no key
    path = (*loc, *context.get("path", ()))
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    if error["type"] == "missing":
        return f"{key}: missing"
    if error["type"] == "suite":
        return f"{key}: {error['msg']}"
    problem, example = _problem(error["type"], error["input"], context, path)
    return f"{key}: {reprlib.repr(error['input'])} {problem}. Write `{example}`."


_TYPES = {
    "string_type": ("a text in quotes", '"text"'),
    "int_type": ("a whole number", "1"),
    "float_type": ("a number", "0.1"),
    "finite_number": ("a finite number", "0.1"),
    "bool_type": ("true or false", "true"),
}
"""By pydantic's type of error, the expected value in words, and an example."""
_OF_NUMBERS = ("seeds", "steps", "rounds", "at", "y", "separators", "looks", "value")
"""Lists of numbers; other lists have names."""
_OF_TABLES = ("row", "column", "derived", "suspect", "inferred", "follows", "departure", "claim")
"""Lists of tables."""


def _problem(kind: str, value: Any, context: Mapping[str, Any], path: KeyPath) -> tuple[str, str]:
    """The words behind a wrong value, and an example of a right line; `kind`: pydantic's type of error."""
    names = [part for part in path if isinstance(part, str)]
    name, listed = names[-1] if names else "value", bool(path) and isinstance(path[-1], int)

    def line(example: object) -> str:
        return f"{name} = [{example}]" if listed else f"{name} = {example}"

    if kind in _TYPES:
        wanted, example = _TYPES[kind]
        return f"is not {wanted}", line(example)
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return "is not a table", f"[[{_header(names)}]]" if listed else f"[{_header(names)}]"
    if kind in ("list_type", "too_short", "too_long"):
        several = f"[[{name}]]" if name in _OF_TABLES else line("[1, 2]" if name in _OF_NUMBERS else '["a", "b"]')
        return _list_problem(kind, context), several
    if kind == "literal_error":
        texts = re.findall("'([^']*)'", context["expected"])
        near = difflib.get_close_matches(str(value), texts, n=1, cutoff=0.5) or texts
        return f"is none of {context['expected']}", line(f'"{near[0]}"' if near else context["expected"][0])
    problem, allowed = _bound_problem(kind, value, context)
    return problem, line(allowed)


def _header(names: Iterable[str]) -> str:
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in names)


def _list_problem(kind: str, context: Mapping[str, Any]) -> str:
    if kind == "list_type":
        return "is not a list"
    size, number = ("more", context["max_length"]) if kind == "too_long" else ("less", context["min_length"])
    return f"has {size} than {count(number, 'item')}"


def _bound_problem(kind: str, value: Any, context: Mapping[str, Any]) -> tuple[str, object]:
    """Problem and example of a text or number that is outside its bounds."""
    if kind == "string_pattern_mismatch":
        id_ = re.sub("[^a-z0-9]+", "-", str(value).lower()).strip("-") or "my-id"
        return "is no id: an id has small letters, digits and single hyphens between them", f'"{id_}"'
    if kind == "string_too_short":
        return "is empty", '"text"'
    for bound, words, step in _BOUNDS:
        if bound in context:
            limit = context[bound]
            return f"is not {words} {limit:g}", limit + step * (1 if isinstance(limit, int) else 0.1)
    return "does not fit here", "…"


_BOUNDS = (("gt", "above", 1), ("ge", "at least", 0), ("lt", "below", -1), ("le", "at most", 0))
"""Bounds of a number in pydantic's context, in words, and the step from the bound to a number that is allowed."""


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
