"""From options to the objects that verbs take: a verb's `selection` and `execution` are asked for option by option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from pflbench.cli import common

if TYPE_CHECKING:
    from pflbench.running.execution import Execution
    from pflbench.selection import Selection, Wanted

Verb = Callable[..., int]


class _Option(NamedTuple):
    """An option: which field of the object it sets, its type, and its default."""

    field: str
    annotation: Any
    default: Any = None


_SELECTION = {
    "suite": _Option("suites", common.Suites),
    "method": _Option("methods", common.Methods),
    "dataset": _Option("datasets", common.Datasets),
    "clients": _Option("clients", common.Clients),
    "partition": _Option("partitions", common.Partitions),
    "column": _Option("columns", common.Columns),
    "seeds": _Option("seeds", common.Seeds),
    "profile": _Option("profile", common.Profile, "paper"),
    "rounds": _Option("rounds", common.Rounds),
    "set_": _Option("overrides", common.Sets),
    "precision": _Option("precision", common.Precision, "fp32"),
}
_EXECUTION = {
    "device": _Option("device", common.Device, "auto"),
    "jobs": _Option("jobs", common.Jobs),
    "evaluate_every": _Option("evaluate_every", common.EvaluateEvery),
    "memory_limit": _Option("memory_limit", common.MemoryLimit),
    "deterministic": _Option("deterministic", common.Deterministic, False),
    "redo": _Option("redo", common.Redo, "missing"),
    "fail_fast": _Option("fail_fast", common.FailFast, False),
    "unchecked": _Option("unchecked", common.Unchecked, False),
    "data_dir": _Option("data_dir", common.DataDir),
}
_WANTED = {
    **{name: option for name, option in _SELECTION.items() if name != "set_"},
    "profile": _Option("profile", common.AnyProfile),
    "precision": _Option("precision", common.AnyPrecision),
    "failed": _Option("failed", common.Failed),
    "trials": _Option("trials", common.Trials),
}
SELECTORS = tuple(_SELECTION)
"""The options that choose part of some suites."""
WANTED = tuple(_WANTED)
"""The options that choose among stored runs."""


def asking(
    selection: Sequence[str] = (), execution: Sequence[str] = (), wanted: Sequence[str] = (), **types: Any
) -> Callable[[Verb], Verb]:
    """A decorator for verbs whose parameters `selection`, `execution` and `wanted` are asked for by these options.

    `types`: what an option is annotated with here, where it is other than elsewhere; it is then left out by default.
    """
    selects = {name: _SELECTION[name] for name in selection}
    selects |= {name: _Option(_SELECTION[name].field, annotation) for name, annotation in types.items()}
    groups = {
        "selection": selects,
        "execution": {name: _EXECUTION[name] for name in execution},
        "wanted": {name: _WANTED[name] for name in wanted},
    }

    def made(verb: Verb) -> Verb:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(verb).parameters.values():
            options = groups.get(parameter.name)
            if options is not None:
                parameters += [_parameter(name, option.annotation, option.default) for name, option in options.items()]
            else:
                annotation = eval(parameter.annotation, verb.__globals__)
                parameters.append(_parameter(parameter.name, annotation, parameter.default))

        @wraps(verb)
        def asked(**given: Any) -> int:
            taken = {kind: _taken(options, given) for kind, options in groups.items() if options}
            objects: dict[str, Any] = {kind: _MAKE[kind](fields) for kind, fields in taken.items()}
            return verb(**objects, **given)

        del asked.__wrapped__  # its options are others
        asked.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        asked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return asked

    return made


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _taken(options: Mapping[str, _Option], given: dict[str, Any]) -> dict[str, Any]:
    return {option.field: given.pop(name) for name, option in options.items()}


def _selection(fields: dict[str, Any]) -> Selection:
    from pflbench.selection import selection
    from pflbench.units import parse_seeds

    if fields.get("seeds"):
        fields["seeds"] = parse_seeds(fields["seeds"])
    return selection(**fields)


def _execution(fields: dict[str, Any]) -> Execution:
    from pflbench.running.execution import Execution
    from pflbench.units import size

    if fields.get("memory_limit"):
        fields["memory_limit"] = size(fields["memory_limit"])
    return Execution(**fields)


def _wanted(fields: dict[str, Any]) -> Wanted:
    from pflbench.selection import Wanted

    chosen = _selection({name: value for name, value in fields.items() if name not in ("failed", "trials")})
    return Wanted(**vars(chosen), failed=fields.get("failed"), trials=fields.get("trials"))


_MAKE: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "selection": _selection,
    "execution": _execution,
    "wanted": _wanted,
}
