"""Sources of the values in a suite file.

They stand beside a value, or in `[sources]` where the value stands elsewhere. No source is part of a run's identity, so
adding one trains nothing again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ModelWrapValidatorHandler, PrivateAttr, model_validator

from pflbench.suite.strict import TomlTable, check_keys, fault

Source = Literal["paper", "code", "inferred", "guess", "tuned"]
KNOWN: tuple[str, ...] = get_args(Source)

PROFILE = "profile"
"""Source of a value that a profile has in place of the whole protocol's."""

SETTINGS = (
    "model",
    "batch",
    "rounds",
    "clients",
    "training_clients",
    "cohort",
    "query",
    "arrival",
    "weights",
    "batches",
    "augment",
    "tail",
    "tiny_client",
    "dataset",
    "partition",
    "finetune.steps",
    "finetune.lr",
    "finetune.decay",
    "finetune.every",
)
"""Settings that have a source, beside the methods' hyperparameters. `dataset`, `partition` and `model` mean all that is
not an option with a source of its own, such as `dataset.normalize`."""

_SINGLE = frozenset(name.rpartition(".")[2] for name in SETTINGS)


def flat(table: Any) -> Any:
    """`{"pfedme": {"inner_lr": "guess"}}` → `{"pfedme.inner_lr": "guess"}`; what is no table stays as it is."""
    if not isinstance(table, dict):
        return table
    result: dict[str, Any] = {}
    for key, value in table.items():
        result |= (
            {f"{key}.{name}": source for name, source in value.items()} if isinstance(value, dict) else {key: value}
        )
    return result


Sources = Annotated[dict[str, Source], BeforeValidator(flat)]
"""`[sources]`: by a setting's name, or by a method (or row) and its hyperparameter, with a dot between."""


class Settled(TomlTable):
    """A table whose single values may be written with their source: `batch = { value = 30, source = "code" }`."""

    _given: dict[str, Source] = PrivateAttr(default_factory=dict)

    @property
    def given(self) -> Mapping[str, Source]:
        """The sources that are written beside values, by key; an option's by `dataset.normalize`."""
        return self._given

    @model_validator(mode="wrap")
    @classmethod
    def _with_sources(cls, table: Any, handler: ModelWrapValidatorHandler[Settled]) -> Settled:
        if not isinstance(table, dict):
            return handler(table)
        plain, given = _parted(table, _SINGLE & cls.__pydantic_fields__.keys(), "")
        settled = handler(plain)
        settled._given = given
        return settled


def _parted(table: Mapping[str, Any], keys: Collection[str], prefix: str) -> tuple[dict[str, Any], dict[str, Source]]:
    """The table with plain values, and the sources that stood beside those of `keys`."""
    plain: dict[str, Any] = {}
    given: dict[str, Source] = {}
    for key, value in table.items():
        plain[key] = value
        if key not in keys or not isinstance(value, dict):
            continue
        if key in ("dataset", "partition") and not prefix:
            plain[key], options = _parted(value, value.keys() - {"name"}, key)
            given |= options
        elif "value" in value:
            plain[key] = value["value"]
            path = (prefix, key) if prefix else (key,)
            check_keys(path, value, ["value", "source"])
            if "source" in value and value["source"] not in KNOWN:
                raise fault((*path, "source"), f"one of {', '.join(KNOWN)}, not {value['source']!r}")
            if "source" in value:
                given[".".join(path)] = value["source"]
    return plain, given
