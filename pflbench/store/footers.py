"""The footers of a results folder's Parquet files, remembered from process to process.

Who only lists runs then waits neither for Arrow nor for footers to be parsed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.store import files

_FRESH = 2e9
"""A file changed again within so many nanoseconds may look the same: the clocks of file systems are coarse."""
_PREFIX = b"pflbench."


class Footer(NamedTuple):
    """What a Parquet file's footer says. `metadata` are the entries of pflbench, `groups` the rows of each row group.

    `identity` tells the file from others of its name. `parsed` is the footer as Arrow reads it, if it was read now.
    """

    identity: files.Identity
    metadata: dict[bytes, bytes]
    columns: list[str]
    groups: list[int]
    parsed: Any = None


class Footers:
    """The footers of the files below `root`, each parsed once until its file becomes another."""

    def __init__(self, root: Path) -> None:
        self._name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
        self._known: dict[str, Any] | None = None
        self._changed = False

    def read(self, path: Path) -> Footer:
        """The footer of one file. Raises `Unfit` or `OSError`."""
        if self._known is None:
            self._known = self._load()
        key, status = str(path.absolute()), path.stat()
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # remembered by a damaged file
            kept = _decoded(*self._known[key])
            if kept.identity == files.identity(status):
                return kept
        footer = read_footer(path)
        if time.time_ns() - footer.identity[2] > _FRESH:
            self._known[key] = _encoded(footer)
            self._changed = True
        return footer

    def keep(self) -> None:
        """Remember, for other processes, what was read of files that are still there; without room for it, nothing."""
        if not self._changed or self._known is None:
            return
        self._known = {key: kept for key, kept in self._known.items() if Path(key).exists()}
        with contextlib.suppress(OSError):
            write_json(self._file(), self._known)
            self._changed = False

    def _file(self) -> Path:
        return cache_folder() / "footers" / f"{self._name}.json"

    def _load(self) -> dict[str, Any]:
        known = read_json(self._file())
        return known if isinstance(known, dict) else {}


def read_footer(path: Path) -> Footer:
    """A Parquet file's footer, from the file itself. Raises `Unfit` or `OSError`."""
    from pflbench.store import parquet

    with path.open("rb") as file:
        footer = parquet.footer(file)
        identity = files.identity(os.fstat(file.fileno()))
    metadata = {key: value for key, value in (footer.metadata or {}).items() if key.startswith(_PREFIX)}
    groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    return Footer(identity, metadata, list(footer.schema.names), groups, footer)


def _encoded(footer: Footer) -> list[Any]:
    # surrogateescape brings any bytes through JSON and back, an error's invalid Unicode included.
    texts = {
        key.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")
        for key, value in footer.metadata.items()
    }
    return [list(footer.identity), texts, footer.columns, footer.groups]


def _decoded(identity: list[int], texts: dict[str, str], columns: list[str], groups: list[int]) -> Footer:
    inode, size, time = identity
    metadata = {
        key.encode(errors="surrogateescape"): text.encode(errors="surrogateescape") for key, text in texts.items()
    }
    return Footer((inode, size, time), metadata, columns, groups)
