"""Hyperparameters: fields of a method's dataclass that say their range and what they mean."""

from __future__ import annotations

import inspect
import math
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from pflbench.errors import UsageError

RANGE: Final = "range"
"""Key of a field's metadata that holds its `Bounds`."""


@dataclass(frozen=True)
class Bounds:
    """Range of a hyperparameter: `least` and `most` are allowed, `above` and `below` are not."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        ends = {"at least": self.least, "greater than": self.above, "at most": self.most, "less than": self.below}
        return " and ".join(f"{words} {end:g}" for words, end in ends.items() if math.isfinite(end))


def hyper(default: Any, help: str, *, added: bool = False, **range: float) -> Any:
    """A hyperparameter: a dataclass field with its default value, its meaning, and the numbers it may be.

    Its type is the field's annotation; a `Literal` lists its choices.

    Args:
        default: The value unless a suite sets another. `None` means "off" and is no part of a run's identity.
        help: What it means, in a sentence.
        added: It came after runs were stored, so its default is no part of a run's identity either.
        **range: Any of `least`, `above`, `most`, `below`, see `Bounds`.
    """
    metadata = {"help": help, "added": added, RANGE: Bounds(**range)}
    return field(default=default, metadata=metadata)


def check_declared(cls: type) -> None:
    """Check how a class declares its options.

    Raises:
        UsageError: The class, or one of its bases that declares options, is no dataclass, so that no suite can set
            them; or the default of an option cannot be stored.
    """
    for one in cls.__mro__:
        options = [name for name, kind in inspect.get_annotations(one).items() if "ClassVar" not in str(kind)]
        if (one is cls or options) and "__dataclass_params__" not in vars(one):
            raise UsageError(f"{one.__name__} is not a dataclass: write @dataclass(frozen=True) above it.")
    for option in fields(cls):
        default = option.default if option.default_factory is MISSING else option.default_factory()
        if default is not MISSING and not _storable(default):
            raise UsageError(
                f"{cls.__name__}.{option.name} is a {type(default).__name__}, which a run cannot store: write a "
                "number, a text, True, False, None, or a tuple of these. A text can name a function that the class has."
            )


def check_method(cls: type) -> None:
    """Check that a method's class has what every run needs.

    Raises:
        UsageError: Its objects can be changed, or a function does not take `round` by keyword.
    """
    # A class without `@dataclass` is refused by `check_declared`.
    if not getattr(getattr(cls, "__dataclass_params__", None), "frozen", True):
        raise UsageError(f"{cls.__name__} is a dataclass without frozen=True: write @dataclass(frozen=True) above it.")
    for name in ("client", "personal_model"):
        taken = inspect.signature(getattr(cls, name)).parameters
        others = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
        if not others and ("round" not in taken or taken["round"].kind is inspect.Parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"{cls.__name__}.{name}() does not take `round`: the function's signature must take `round` by "
                f"keyword. Write `def {name}(self, f, server, state, *batches, round)`."
            )


def _storable(value: object) -> bool:
    """True for values that a run's spec holds as JSON."""
    if isinstance(value, tuple | list):
        return all(map(_storable, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _storable(one) for key, one in value.items())
    return value is None or isinstance(value, bool | int | float | str | Path)


def check_ranges(method: Any) -> None:
    """Check an object's hyperparameters; raises `UsageError` for the first that is outside its range."""
    for one in fields(method):
        value, allowed = getattr(method, one.name), one.metadata.get(RANGE)
        numbers = [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, int | float)]
        if allowed and not all(number in allowed for number in numbers):
            raise UsageError(f"{type(method).__name__}: {one.name} must be {allowed}, not {value}.")
