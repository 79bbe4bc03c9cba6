"""Selections of parts of suites and of stored runs, in Python as on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypedDict, get_args

from typing_extensions import Self, Unpack

from pflbench.errors import UsageError, unknown
from pflbench.spec import Precision
from pflbench.units import seed_text


class Choices(TypedDict, total=False):
    """The fields of a `Selection` as they may be passed: any iterable stands for a tuple, None for the default."""

    suites: Iterable[str] | None
    rows: Iterable[str] | None
    columns: Iterable[str] | None
    methods: Iterable[str] | None
    datasets: Iterable[str] | None
    partitions: Iterable[str] | None
    clients: Iterable[int] | None
    seeds: Iterable[int] | None
    profile: str | None
    rounds: int | None
    overrides: Iterable[str] | None
    precision: str | None


@dataclass(frozen=True)
class Selection:
    """Part of some suites. A field that is empty or None selects everything, or what the suite has.

    Attributes:
        suites: Names of suites, or paths of `.toml` files.
        rows: Keeps these rows, by id.
        columns: Keeps these columns, by id.
        methods: Keeps rows by method or row id; `file.py:Class` or `module:Class` stands for a row of its own.
        datasets: Keeps the columns on these datasets (the paper's or the profile's).
        partitions: Keeps the columns with these partitions.
        clients: Keeps the columns with these numbers of clients.
        seeds: Instead of the suite's.
        profile: Which of a suite's profiles. None: `paper`, and in reports each that has results.
        rounds: Instead of each column's; a row that has rounds of its own keeps them if they are not more.
        overrides: `method.key=value` (a method's id or class name) and `finetune.key=value`, stronger than the suite
            file. On a hyperparameter of a grid, it leaves the grid this one value.
        precision: Of the runs. None: fp32.

    Raises:
        UsageError: There is no such precision, or fewer than one round.
    """

    suites: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    profile: str | None = None
    rounds: int | None = None
    overrides: tuple[str, ...] = ()
    precision: Precision | None = None

    def __post_init__(self) -> None:
        """Reject what no suite could have."""
        if self.precision not in (None, *get_args(Precision)):
            raise UsageError(f"Unknown precision {self.precision!r}; known: {', '.join(get_args(Precision))}.")
        if self.rounds is not None and _checked("rounds", self.rounds) < 1:
            raise UsageError(f"At least one round, not {self.rounds}.")

    @property
    def options(self) -> str:
        """As options of the command line, each with a blank before it, quoted for a shell; `rows` have none."""
        given: dict[str, Any] = {
            "suite": self.suites,
            "method": self.methods,
            "dataset": self.datasets,
            "clients": self.clients,
            "partition": self.partitions,
            "column": self.columns,
            "profile": None if self.profile == "paper" else self.profile,
            "rounds": self.rounds,
            "seeds": seed_text(self.seeds) or None,
            "set": self.overrides,
            "precision": None if self.precision == "fp32" else self.precision,
        }
        several = {name: value if isinstance(value, tuple) else (value,) for name, value in given.items()}
        options = ((name, one) for name, values in several.items() for one in values if one is not None)
        return "".join(f" --{name} {shlex.quote(str(one))}" for name, one in options)

    def but(self, **choices: Unpack[Choices]) -> Self:
        """The same with some fields changed.

        Raises:
            UsageError: There is no such field, or a value has another type.
        """
        if wrong := sorted(choices.keys() - vars(self).keys()):
            raise unknown("argument", wrong[0], vars(self))
        return replace(self, **{key: self._settled(key, value) for key, value in choices.items()})

    def _settled(self, key: str, value: Any) -> Any:
        several = isinstance(getattr(self, key), tuple)
        if value is None:
            return () if several else None
        if not several:
            return _checked(key, value)
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise UsageError(f"`{key}` is {value!r}; expected a list: `{key}=[...]`.")
        return tuple(dict.fromkeys(_checked(key, one) for one in value))


def _checked(key: str, value: Any) -> Any:
    """Return a value of a field, or one of its values; a whole number of another type becomes an int."""
    if key in ("clients", "seeds", "rounds"):
        if not isinstance(value, Integral) or value < 0:
            raise UsageError(f"`{key}` has {value!r}; expected a whole number from 0.")
        return int(value)
    if key in Choices.__annotations__ and not isinstance(value, str):
        raise UsageError(f"`{key}` has {value!r}; expected a text.")
    return value


@dataclass(frozen=True)
class Wanted(Selection):
    """Stored runs to look for. A field that is empty or None selects all; names are those of `pflbench run`.

    With suites, the runs that stand in their tables: under every profile unless one is named, with the suites' seeds
    and rounds unless others are, in fp32 unless another precision is. Without, `methods` are those in the runs' specs.
    A method of one's own goes by `file.py:Class` or `Class`, whatever version, by either with `@` and a version's
    beginning, or by a path with a folder: then it is the version that the file has now.

    `trials`: True for trials of `pflbench tune` alone; False for none of them, see `is_trial`. `failed`: only runs that
    failed, or only those that are done.
    """

    trials: bool | None = None
    failed: bool | None = None

    @property
    def everything(self) -> bool:
        """True if nothing is left out."""
        return self == Wanted()


def selection(**choices: Unpack[Choices]) -> Selection:
    """The selection with these fields."""
    return EVERYTHING.but(**choices)


EVERYTHING = Selection()
