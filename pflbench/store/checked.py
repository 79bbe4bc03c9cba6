"""Checks of what files in a results folder say: the folder may come from anybody."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import from_json
from typing_extensions import Required, TypedDict

from pflbench.units import MOST_SEEDS

ID = re.compile(r"[0-9a-f]{16}")
"""Id of a run. Text that is one names no other file or folder."""
parsed = from_json
"""The JSON of a stored file. Raises `ValueError` for text that is no JSON, nests too deeply, or is no Unicode."""

Text = str | None
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Whole | Annotated[float, Field(allow_inf_nan=False)] | None
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Asked(TypedDict, total=False):
    """The first request of a run: the suite, profile, row and column that it was made for, and options."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    suite: Required[str]
    profile: Required[str]
    file: Text
    row: Text
    column: Text
    precision: Text
    seeds: str | Annotated[list[Seed], Field(max_length=MOST_SEEDS)] | None
    rounds: Whole | None
    set: list[Any] | None


class Provenance(TypedDict, total=False):
    """How a run was made, and what it cost. Files may have further entries."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    asked: Asked | None
    pflbench: Text
    commit: Text
    dirty: bool | None
    python: Text
    torch: Text
    torchvision: Text
    numpy: Text
    device: Text
    execution: Text
    protocol: Text
    finished: Text
    data_hash: Text
    method_source: Text
    dataset_source: Text
    partition_source: Text
    model_source: Text
    unchecked: bool | None
    deterministic: bool | None
    batch_norm: bool | None
    seeds_together: Text
    threads: Whole | None
    product_seconds: Number
    resumed: Whole | None
    guards: Whole | None
    evaluate_every: Whole | None
    shared_rows: Whole | None
    kept_rounds: Whole | None
    wall_seconds: Number
    client_seconds: Number
    rounds_per_second: Number
    peak_memory: Number
    peak_device_memory: Number
    bytes_up: Number
    bytes_down: Number
    floats_up: Number
    floats_down: Number
    padding: Number
    client_gradients: Number
    client_gradients_least: Number
    client_gradients_most: Number


check_provenance = TypeAdapter(Provenance).validate_python
"""Raises `ValueError` for provenance with other types or ranges."""


def check_id(id: object) -> str:
    """The id of a run. Raises `ValueError` for another value."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        raise ValueError(f"{id!r:.40} is no id of a run")
    return id
