"""The options of the verbs, and the objects that verbs take for them: what to run, where, and which stored runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

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
    return typer.Option(*names, help=help, envvar=VARIABLES.get(names[0]), **more)


Results = Annotated[Path, option("--results", "-r", metavar="FOLDER", help="Folder of the results.")]
Fresh = Annotated[bool, option("--fresh", help="Leave out the runs that came with pflbench.")]
DataDir = Annotated[
    Path | None, option("--data-dir", metavar="FOLDER", help="Folder of the datasets (~/.cache/pflbench/data).")
]
DryRun = Annotated[bool, option("--dry-run", help="List what would run, and stop.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print problems only.")]
Output = Annotated[Path | None, option("--output", "-o", metavar="FILE", help="Write to this file.")]
PART = [name for name in Selection.__annotations__ if name not in ("rows", "overrides", "like")]
"""Fields of the selection of verbs that read."""
TEXTS: Any = list[str] | None
TEXT: Any = str | None
FLAG: Any = bool | None


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """A verb's parameter for Typer."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


KINDS: Mapping[Any, Any] = {
    **{kind: kind for kind in (bool, FLAG, int | None, float | None)},
    **{tuple[str, ...]: TEXTS, Mapping[str, str]: TEXTS, tuple[int, ...]: list[int] | None},
}
"""Types of options by those of fields; other fields are typed as text."""


def _option(name: str, kind: Any, default: Any, read: Any = None, **more: Any) -> inspect.Parameter:
    """The option of a field (`commands.option`). Its help names the default."""
    names = more.pop("names") or (f"--{name.replace('_', '-')}",)
    kind = TEXT if read and kind != Mapping[str, str] else KINDS.get(kind, TEXT)
    metavar = None if kind in (bool, FLAG) else "TEXT" if kind in (TEXT, TEXTS) else "N"
    typed = Annotated[kind, option(*names, show_default=False, metavar=metavar, **more)]
    return _parameter(name, typed, default if isinstance(default, str | bool) else None)


def _options(kind: type) -> dict[str, inspect.Parameter]:
    """The options of a dataclass, by field."""
    hints = get_type_hints(kind)
    return {
        one.name: _option(one.name, hints[one.name], one.default, **one.metadata)
        for one in fields(kind)
        if one.metadata
    }


SELECTION, EXECUTION = _options(Selection), _options(Execution) | {"data_dir": _parameter("data_dir", DataDir)}
WANTED = {name: one for name, one in _options(Wanted).items() if name not in ("overrides", "like")}
SUITES = Annotated[TEXTS, typer.Argument(metavar="[SUITE]...", help="Same as --suite.", show_default=False)]
"""Suites without an option's name before them, for verbs that have no other arguments."""
DEFAULTS = {"selection": EVERYTHING, "execution": Execution(), "wanted": Wanted()}
"""Parameters of verbs whose fields are options, with their defaults."""


def asking(
    selection: Iterable[str] = (), execution: Iterable[str] = (), wanted: Iterable[str] = ()
) -> Callable[[Verb], Verb]:
    """Decorate a verb whose parameters `selection`, `execution` and `wanted` are typed field by field."""
    groups = {
        "selection": {name: SELECTION[name] for name in selection},
        "execution": {name: EXECUTION[name] for name in execution},
        "wanted": {name: WANTED[name] for name in wanted},
    }

    def decorate(verb: Verb) -> Verb:
        offered = _offered(verb, groups)

        @wraps(verb)
        def called(**typed: Any) -> int:
            if "suites" in typed:
                typed["suites"] = [*(typed.pop("named", None) or ()), *(typed["suites"] or ())]
            for kind, options in groups.items():
                if options:
                    typed[kind] = _read(DEFAULTS[kind], {name: typed.pop(name) for name in options})
            return verb(**typed)

        del called.__wrapped__  # its options are others
        called.__signature__ = inspect.Signature(list(offered.values()))  # type: ignore[attr-defined]
        called.__annotations__ = {name: one.annotation for name, one in offered.items()}
        return called

    return decorate


def _offered(verb: Verb, groups: Mapping[str, Mapping[str, inspect.Parameter]]) -> dict[str, inspect.Parameter]:
    """Options and arguments of a verb; with `--suite` and without arguments, the suites are arguments, too."""
    hints = get_type_hints(verb, include_extras=True)
    offered: dict[str, inspect.Parameter] = {}
    for name, one in inspect.signature(verb).parameters.items():
        offered |= groups.get(name) or {name: _parameter(name, hints[name], one.default)}
    has_arguments = any(isinstance(one, ArgumentInfo) for kind in offered.values() for one in get_args(kind.annotation))
    return offered | ({"named": _parameter("named", SUITES)} if "suites" in offered and not has_arguments else {})


def _read(default: Any, typed: Mapping[str, Any]) -> Any:
    """The selection, execution or `Wanted` with the fields that were typed."""
    reads = {one.name: one.metadata["read"] for one in fields(default) if "read" in one.metadata}
    values = {name: reads.get(name, lambda text: text)(one) for name, one in typed.items() if one is not None}
    return Execution(**values) if isinstance(default, Execution) else default.but(**values)
