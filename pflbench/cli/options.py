"""The options of the verbs, and the objects that verbs take for them: what to run, where, and which stored runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from pflbench.commands import DEFAULT_RESULTS as DEFAULT_RESULTS
from pflbench.running.execution import Execution
from pflbench.selection import EVERYTHING, Selection, Wanted

Verb = Callable[..., int]
VARIABLES = {
    **{"--results": "PFLBENCH_RESULTS", "--data-dir": "PFLBENCH_DATA_DIR"},
    **{"--jobs": "PFLBENCH_JOBS", "--device": "PFLBENCH_DEVICE"},
}
"""Environment variables, by their options."""


def option(*names: str, help: str, **more: Any) -> Any:
    """An option of a verb. Those of `VARIABLES` can be set by an environment variable."""
    how = {"envvar": VARIABLES.get(names[0]), "show_envvar": False, "callback": _finite, **more}
    return typer.Option(*names, help=help, **how)


def _finite(value: Any) -> Any:
    """The value of an option. Raises an error of the command line for infinity and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number: write a number such as 1.5.")
    return value


Results = Annotated[Path, option("--results", "-r", metavar="FOLDER", help="Folder of the results.")]
Fresh = Annotated[bool, option("--fresh", help="Leave out the runs that came with pflbench.")]
DataDir = Annotated[
    Path | None, option("--data-dir", metavar="FOLDER", help="Folder of the datasets (~/.cache/pflbench/data).")
]
DryRun = Annotated[bool, option("--dry-run", help="List what would run, and stop.")]
ShardText = Annotated[str | None, option("--shard", help="Only part K of N of the runs, as 1/3.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print problems only.")]
TEXTS: Any = list[str] | None
TEXT: Any = str | None
NUMBER: Any = int | None
FLAG: Any = bool | None


class Asked(NamedTuple):
    """An option that sets a field of an object: its type for Typer, and its default."""

    annotation: Any
    default: Any = None


KINDS: Mapping[Any, Any] = {
    **{kind: kind for kind in (bool, FLAG, NUMBER, float | None)},
    **{tuple[str, ...]: TEXTS, Mapping[str, str]: TEXTS, tuple[int, ...]: list[int] | None},
}
"""Types of options by those of fields; other fields are typed as text."""


def _asked(name: str, kind: Any, default: Any, read: Any = None, **how: Any) -> Asked:
    """The option of a field (`commands.option`). Its help names the default."""
    names = how.pop("names") or (f"--{name.replace('_', '-')}",)
    default = how.pop("typed", default if isinstance(default, str | bool) else None)
    kind = str if isinstance(default, str) else TEXT if read and kind != Mapping[str, str] else KINDS.get(kind, TEXT)
    metavar = None if kind in (bool, FLAG) else "TEXT" if kind in (str, TEXT, TEXTS) else "N"
    return Asked(Annotated[kind, option(*names, show_default=False, **{"metavar": metavar, **how})], default)


def _options(kind: type) -> dict[str, Asked]:
    """The options of a dataclass, by field."""
    hints = get_type_hints(kind)
    return {
        one.name: _asked(one.name, hints[one.name], one.default, **one.metadata) for one in fields(kind) if one.metadata
    }


SELECTION, EXECUTION = _options(Selection), _options(Execution) | {"data_dir": Asked(DataDir)}
WANTED = {name: asked for name, asked in _options(Wanted).items() if name != "overrides"}
SUITES = Asked(Annotated[TEXTS, typer.Argument(metavar="[SUITE]...", help="Same as --suite.", show_default=False)])
"""Suites without an option's name before them, for verbs that have no other arguments."""


def asking(
    selection: Iterable[str] = (), execution: Iterable[str] = (), wanted: Iterable[str] = (), **other: Any
) -> Callable[[Verb], Verb]:
    """A decorator for verbs whose parameters `selection`, `execution` and `wanted` are asked for field by field.

    `other`: further fields of the selection, each with a type of the verb's own for Typer; left out by default.
    """
    groups = {
        "selection": {name: SELECTION[name] for name in selection}
        | {name: Asked(kind) for name, kind in other.items()},
        "execution": {name: EXECUTION[name] for name in execution},
        "wanted": {name: WANTED[name] for name in wanted},
    }

    def made(verb: Verb) -> Verb:
        asked: dict[str, Asked] = {}
        for name, parameter in inspect.signature(verb).parameters.items():
            asked |= groups.get(name) or {name: Asked(eval(parameter.annotation, verb.__globals__), parameter.default)}
        asked |= _arguments(asked)

        @wraps(verb)
        def called(**given: Any) -> int:
            if "suites" in given:
                given["suites"] = [*(given.pop("named", None) or ()), *(given["suites"] or ())]
            for kind, options in groups.items():
                if options:
                    given[kind] = _object(kind, {name: given.pop(name) for name in options})
            return verb(**given)

        del called.__wrapped__  # its options are others
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=a)
                for name, (a, d) in asked.items()
            ]
        )
        called.__annotations__ = {name: one.annotation for name, one in asked.items()}
        return called

    return made


def _arguments(asked: Mapping[str, Asked]) -> dict[str, Asked]:
    """The suites as arguments of a verb that has `--suite` and no arguments of its own; else nothing."""
    own = any(isinstance(one, ArgumentInfo) for kind, _ in asked.values() for one in get_args(kind))
    return {} if own or "suites" not in asked else {"named": SUITES}


def _object(kind: str, typed: dict[str, Any]) -> Any:
    """The selection, execution or `Wanted` that was typed."""
    made: Any = {"selection": EVERYTHING, "wanted": Wanted(), "execution": Execution()}[kind]
    reads = {one.name: one.metadata["read"] for one in fields(made) if "read" in one.metadata}
    values = {
        name: reads[name](value) if name in reads else value for name, value in typed.items() if value is not None
    }
    return Execution(**values) if isinstance(made, Execution) else made.but(**values)
