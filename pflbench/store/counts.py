"""Counts of datasets, in `counts/` of the results folder: a JSON file for each federation, by its id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from pflbench.spec import RunSpec
from pflbench.store import files


class Counts(NamedTuple):
    """Number of images that a federation's clients hold together; one that several hold counts as often.

    `train` are their support images, `test` their query images, `classes` the labels among both. `data` identifies the
    dataset's content.
    """

    total: int
    train: int
    test: int
    classes: int
    data: str


def write_counts(results: Path, federation: RunSpec, counts: Counts) -> None:
    """Store what was counted of a run's federation; the file appears whole or not at all. Raises `StoreError`."""
    path = _path(results, federation)
    with files.replacing(path) as (file, temporary):
        file.write(json.dumps(counts._asdict(), indent=2).encode() + b"\n")
        files.sync(file)
        temporary.replace(path)


def read_counts(results: Path, federation: RunSpec) -> Counts | None:
    """Return the counts of a run's federation; None if there are none, or if the file is damaged."""
    try:
        return TypeAdapter(Counts).validate_json(_path(results, federation).read_bytes(), strict=True)
    except (OSError, ValueError):
        return None


def _path(results: Path, federation: RunSpec) -> Path:
    return results / "counts" / f"{federation.id}.json"
