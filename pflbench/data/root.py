"""Where datasets, and what is remembered of them, lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path


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
