"""Models beside the results: `<results>/models/<run id>/`, a safetensors file for each, and which is whose in a JSON.

The folder of a run appears whole. Clients whose models are the same, to the last bit, share a file.
"""

from __future__ import annotations

import errno
import json
import shutil
import stat
import uuid
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pflbench.errors import StoreError
from pflbench.store import files
from pflbench.store.checked import check_id, parsed

INDEX = "models.json"
ENDING = ".safetensors"
Files = Mapping[str, Mapping[int, str]]
"""By stage and client (-1: scored on the federation's test rows), in which file its model is."""


def models_folder(root: Path, id: str) -> Path:
    """Folder of the models of a run, in a results folder. Raises `ValueError` if the id is none."""
    return root / "models" / check_id(id)


def link(root: Path, id: str) -> Path | None:
    """The link that leads from a results folder to the models of a run; None if there is none."""
    return next((path for path in (root / "models", models_folder(root, id)) if path.is_symlink()), None)


def find(root: Path, id: str) -> Path | None:
    """The folder of a run's models; None: they were not kept. Follows no link."""
    path = models_folder(root, id)
    return path if path.is_dir() and not link(root, id) else None


def begin(root: Path, id: str) -> Path:
    """A new folder to write a run's models into; what an earlier process left unfinished goes. Raises `OSError`."""
    if (linked := link(root, id)) is not None:
        raise OSError(errno.ELOOP, f"{str(linked)!r} is a link, which is not followed; move its folder here")
    _clear(root, id)
    new = models_folder(root, id).with_name(f".{id}-{uuid.uuid4().hex[:8]}")
    new.mkdir(parents=True)
    return new


def _clear(root: Path, id: str) -> None:
    """Remove what killed processes left of a run's models."""
    for path in models_folder(root, id).parent.glob(f".{id}-*"):
        shutil.rmtree(path, ignore_errors=True)


def publish_models(new: Path, root: Path, id: str, index: Mapping[str, Any]) -> None:
    """Write the index, and let the folder appear as that of the run, in place of an older one. Raises `OSError`."""
    with (new / INDEX).open("wb") as file:
        file.write(json.dumps(index, indent=1).encode())
        files.sync(file)
    files.sync_folder(new)
    final, older = models_folder(root, id), new.with_name(f"{new.name}-older")
    with suppress(FileNotFoundError):
        final.rename(older)
    new.rename(final)
    shutil.rmtree(older, ignore_errors=True)
    files.sync_folder(final.parent)


def read(path: Path, id: str) -> tuple[dict[str, Any], Files]:
    """The index of a folder of models, and which file has whose.

    Raises `StoreError` if it cannot be read, or is of another run.
    """
    try:
        _check_regular(path / INDEX)
        index = parsed((path / INDEX).read_text())
        kept = {stage: names for stage, names in index["files"].items() if names}
        found = {stage: {int(c): _name(path, name) for c, name in names.items()} for stage, names in kept.items()}
        run = str(index["run"])
    except OSError as error:
        raise files.unreadable(path / INDEX, error) from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StoreError(f"{str(path / INDEX)!r} is damaged: {error}.") from error
    if run != id:
        raise StoreError(f"{str(path)!r} has the models of run {run}, which is not its name. Move it away.")
    return index, found


def _name(path: Path, name: str) -> str:
    """The name of a file of models in the folder. Raises `ValueError` for another, and `OSError`."""
    if Path(name).name != name or not name.endswith(ENDING):
        raise ValueError(f"{name!r} is no file beside it")
    if (path / name).exists():
        _check_regular(path / name)
    return name


def _check_regular(path: Path) -> None:
    """Raise `ValueError` for a link, a folder or a device, and `OSError`."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path.name!r} is no regular file")


def remove(root: Path, ids: Iterable[str]) -> None:
    """Remove the models of runs, as far as there are some. Follows no link, and warns of one."""
    linked = set[Path]()
    for id in ids:
        if (path := link(root, id)) is not None:
            linked.add(path)
            continue
        shutil.rmtree(models_folder(root, id), ignore_errors=True)
        _clear(root, id)
    with suppress(OSError):
        (root / "models").rmdir()  # if they were the last
    for path in sorted(linked):
        warnings.warn(f"{str(path)!r} is a link, which is not followed: the models behind it stay.", stacklevel=2)


def copy(source: Path, root: Path, id: str) -> None:
    """Copy a run's models into another results folder, unless it has some: regular files, and nothing else.

    Raises `StoreError`.
    """
    if models_folder(root, id).exists():
        return
    try:
        new = begin(root, id)
        try:
            for path in sorted(source.iterdir()):
                kept = path.name == INDEX or path.name.endswith(ENDING)
                if kept and stat.S_ISREG(path.lstat().st_mode):
                    shutil.copyfile(path, new / path.name)
            new.rename(models_folder(root, id))
        finally:
            shutil.rmtree(new, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"The models in {str(source)!r} cannot be copied: {files.error_text(error)}.") from error
