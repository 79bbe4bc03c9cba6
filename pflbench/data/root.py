"""Where datasets lie on this machine, and small JSON files in which pflbench remembers what took long to find out."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def data_root(override: Path | None = None) -> Path:
    """The folder that holds the datasets, in torchvision's layouts (it may not exist yet).

    `override` (`--data-dir`), else `$PFLBENCH_DATA_DIR`, else `$XDG_CACHE_HOME/pflbench/data`, else
    `~/.cache/pflbench/data`. An empty variable counts as unset.
    """
    named = override or os.environ.get("PFLBENCH_DATA_DIR")
    return Path(named).expanduser() if named else cache_folder() / "data"


def cache_folder() -> Path:
    """The folder for what pflbench keeps on this machine (it may not exist yet)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pflbench"


def read_json(path: Path) -> Any:
    """What a JSON file of the cache holds; None if it is not there or cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file of the cache: nobody meets half of it. Raises `OSError` if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=2, sort_keys=True)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
