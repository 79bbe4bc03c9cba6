"""Selections of parts of suites and of stored runs, in Python as on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, TypedDict, get_args

from typing_extensions import Self, Unpack

from pflbench.commands import option
from pflbench.errors import UsageError, unknown
from pflbench.spec import Precision
from pflbench.units import parse_seeds, seed_text


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
    like: str | None


@dataclass(frozen=True)
class Selection:
    """Part of some suites. A field that is empty or None selects everything, or what the suite has.

    Fields are the options of `pflbench run`; `rows` keeps rows by id. A method `file.py:Class` or `module:Class` is a
    row of its own, with the hyperparameters of the row `like` where names agree. Without `profile`, reports show each
    that has results. A row that has rounds of its own keeps them if they are not more. An override is stronger than the
    suite file, and leaves a grid this one value.

    Raises:
        UsageError: There is no such precision, or fewer than one round.
    """

    suites: tuple[str, ...] = option((), "A suite's name, or a .toml file.", "--suite", "-s")
    rows: tuple[str, ...] = ()
    methods: tuple[str, ...] = option((), "A method or row id, or path/to/file.py:Class.", "--method", "-m")
    datasets: tuple[str, ...] = option((), "Only columns on this dataset.", "--dataset", "-d")
    clients: tuple[int, ...] = option((), "Only columns with this number of clients.")
    partitions: tuple[str, ...] = option((), "Only columns with this partition.", "--partition")
    columns: tuple[str, ...] = option((), "Only this column, by id.", "--column")
    profile: str | None = option(None, "paper (default; reports: all), quick, smoke.")
    rounds: int | None = option(None, "Number of rounds; overrides the suite's.", min=1)
    seeds: tuple[int, ...] = option((), "Seeds; override the suite's: 0-4 or 0,2,5.", read=parse_seeds)
    overrides: tuple[str, ...] = option((), "Hyperparameter: method.key=value, finetune.key=…", "--set")
    precision: Precision | None = option(None, "fp32 (default), bf16, tf32, fp64; part of the id.")
    like: str | None = option(None, "Row whose hyperparameters a file.py:Class takes.")

    def __post_init__(self) -> None:
        """Reject what no suite could have."""
        if self.precision not in (None, *get_args(Precision)):
            raise UsageError(f"Unknown precision {self.precision!r}; known: {', '.join(get_args(Precision))}.")
        if self.rounds is not None and _checked("rounds", self.rounds) < 1:
            raise UsageError(f"At least one round, not {self.rounds}.")

    @property
    def options(self) -> str:
        """As options of the command line, each with a blank before it, quoted for a shell; `rows` have none."""
        options = []
        for one in fields(Selection):
            value = getattr(self, one.name)
            if one.metadata and value not in (one.default, "paper", "fp32"):  # the last two are run by default
                name = (one.metadata["names"] or [f"--{one.name}"])[0]
                several = value if isinstance(value, tuple) else (value,)
                several = (seed_text(self.seeds),) if one.name == "seeds" else several
                options += [f" {name} {shlex.quote(str(text))}" for text in several]
        return "".join(options)

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

    profile: str | None = option(None, "With --suite: only the runs of this profile.")
    precision: Precision | None = option(None, "Only runs in fp32, bf16, tf32 or fp64 (a suite's: in fp32).")
    failed: bool | None = option(None, "Only runs that failed, or are done.", "--failed/--done")
    trials: bool | None = option(None, "Only trials of `pflbench tune`, or none of them.", "--trials/--no-trials")

    @property
    def everything(self) -> bool:
        """True if nothing is left out."""
        return self == Wanted()


def selection(**choices: Unpack[Choices]) -> Selection:
    """The selection with these fields."""
    return EVERYTHING.but(**choices)


EVERYTHING = Selection()
