"""Folders of this machine for datasets and for the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pflbench.errors import UsageError

_DAY = 24 * 60 * 60
"""Seconds."""


def data_root(override: str | Path | None = None) -> Path:
    """The folder that holds the datasets, in torchvision's layouts (it may not exist yet).

    `override` (`--data-dir`), else `$PFLBENCH_DATA_DIR`, else `$XDG_CACHE_HOME/pflbench/data`, else
    `~/.cache/pflbench/data`. An empty variable counts as unset.
    """
    named = override or os.environ.get("PFLBENCH_DATA_DIR")
    if not named:
        return cache_folder() / "data"
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{str(named)!r} names a home folder that is unknown here: write the whole path.") from error


def cache_folder() -> Path:
    """The folder for what pflbench keeps on this machine (it may not exist yet).

    It is below that of temporary files where there is no home folder, as in containers.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "pflbench").expanduser()
    except RuntimeError:
        return Path(tempfile.gettempdir(), f"cache-{os.getuid()}", "pflbench")


def clear_halves(folder: Path) -> None:
    """Delete what processes that were killed a day ago or earlier left half-written in a folder of the cache."""
    with suppress(OSError):
        for path in folder.glob(".*"):
            if time.time() - path.stat().st_mtime > _DAY:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
