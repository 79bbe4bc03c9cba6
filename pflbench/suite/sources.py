"""Sources of the values in a suite file.

They stand beside a value, or in `[sources]` where the value stands elsewhere. No source is part of a run's identity, so
adding one trains nothing again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from pflbench.errors import UsageError

Source = Literal["paper", "code", "inferred", "guess", "tuned"]
KNOWN: tuple[str, ...] = get_args(Source)

PROFILE = "profile"
"""Source of a value that a profile has in place of the whole protocol's."""


def flat(table: Any) -> Any:
    """`{"pfedme": {"inner_lr": "guess"}}` → `{"pfedme.inner_lr": "guess"}`; what is no table stays as it is."""
    result = dict[str, Any]()
    for key, value in table.items() if isinstance(table, dict) else ():
        nested = isinstance(value, dict) and "value" not in value
        result |= {f"{key}.{name}": one for name, one in value.items()} if nested else {key: value}
    return result if isinstance(table, dict) else table


Sources = Annotated[dict[str, Source], BeforeValidator(flat)]
"""`[sources]`: by a setting's name, or by a method (or row) and its hyperparameter, with a dot between."""
_WHOLE = ("reference", "profile")
"""Tables that have no sources, or are merged first."""


def split(value: Any, path: str, origins: dict[str, str]) -> Any:
    """A table with plain values: `batch = 30` for `batch = { value = 30, source = "code" }`.

    The sources are put into `origins` by the path of their key, such as `column[0].dataset.normalize`.
    """
    if isinstance(value, list):
        return [split(one, f"{path}[{i}]", origins) for i, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if not value.keys().isdisjoint(("value", "like")) and value.keys() <= {"value", "like", "source"}:
        if value.get("source", KNOWN[0]) not in KNOWN:
            raise UsageError(f"{path}.source: one of {', '.join(KNOWN)}, not {value['source']!r}")
        origins |= {path: value["source"]} if "source" in value else {}
        return value["value"] if "value" in value else {"like": value["like"]}
    keys = {key: f"{path}.{key}".removeprefix(".") for key in value}
    return {key: one if key in _WHOLE else split(one, keys[key], origins) for key, one in value.items()}
