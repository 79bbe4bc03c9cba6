"""Models of runs: `<results>/models/<run id>.safetensors` has all of a run, and appears whole.

Tensor `3/weight` is the `weight` of the run's fourth model. Metadata: `run`, and as JSON `models` (the number of a
model by stage and client) and `provenance`. Clients whose models are the same, to the last bit, share one.
"""

from __future__ import annotations

import json
import shutil
import stat
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from pflbench.errors import StoreError
from pflbench.store import files
from pflbench.store.files import CorruptFile
from pflbench.store.header import check_id

Numbers = dict[str, dict[int, int]]
"""Number of a model by stage and client (-1: scored on the federation's test rows)."""


def path_of(root: Path, id: str) -> Path:
    """Path of the models of a run, in a results folder. Raises `ValueError` if the id is none."""
    return root / "models" / f"{check_id(id)}.safetensors"


def link(root: Path, id: str) -> Path | None:
    """The link that leads from a results folder to the models of a run; None if there is none."""
    return next((path for path in (root / "models", path_of(root, id)) if path.is_symlink()), None)


def find(root: Path, id: str) -> Path | None:
    """The file of a run's models; None: they are not stored. Follows no link."""
    path = path_of(root, id)
    return path if path.exists() and not link(root, id) else None


def write(
    root: Path, id: str, numbers: Numbers, provenance: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> None:
    """Write a run's models, in place of older ones. Raises `StoreError`, also for a link."""
    from safetensors.numpy import save

    if (linked := link(root, id)) is not None:
        raise StoreError(f"{str(linked)!r} is a link, which is not followed; move its content here")
    path = path_of(root, id)
    metadata = {"run": id, "models": json.dumps(numbers), "provenance": json.dumps(provenance)}
    with files.replacing(path) as (file, temporary):
        file.write(save(dict(tensors), metadata))
        files.sync(file)
        temporary.replace(path)
    files.sync_folder(path.parent)


def read(path: Path, id: str) -> tuple[dict[str, Any], Numbers]:
    """The provenance of a file of models, and the number of each.

    Raises `StoreError` for a damaged file, and for the models of another run.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # opening a pipe or a device may wait for ever
            raise ValueError("it is no regular file")
        with safe_open(path, "numpy") as file:
            texts = file.metadata() or {}
        if texts.get("run") != id:
            raise ValueError(f"it has the models of run {texts.get('run')}")
        provenance = TypeAdapter(dict[str, Any]).validate_json(texts["provenance"])
        return provenance, TypeAdapter(Numbers).validate_json(texts["models"])
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise StoreError(f"{str(path)!r} is damaged: {files.error_text(error)}.") from error


def remove(root: Path, ids: Iterable[str]) -> None:
    """Remove the models of runs, as far as there are some. Follows no link, and warns of one. Raises `StoreError`."""
    for id in ids:
        if (linked := link(root, id)) is None:
            files.unlink(path_of(root, id))
        else:
            warnings.warn(f"{str(linked)!r} is a link, which is not followed: the models behind it stay.", stacklevel=2)
    with suppress(OSError):
        (root / "models").rmdir()  # if they were the last


def copy(source: Path, root: Path, id: str) -> None:
    """Copy a run's models from one results folder into another, unless it has some. Warns of a damaged file.

    Raises `StoreError`.
    """
    path, into = find(source, id), path_of(root, id)
    if path is None or into.exists() or link(root, id):
        return
    try:
        read(path, id)
    except StoreError as error:
        warnings.warn(f"{error} It is not merged.", CorruptFile, stacklevel=2)
        return
    with files.replacing(into) as (_, temporary):
        shutil.copyfile(path, temporary)
        temporary.replace(into)
