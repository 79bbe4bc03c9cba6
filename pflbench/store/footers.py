"""The footers of a results folder's Parquet files, remembered from process to process.

Listing runs then neither imports Arrow nor parses the footers of files that have not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.store import files

_FRESH = 2e9
"""A file changed again within so many nanoseconds may look the same: the clocks of file systems are coarse."""
_PREFIX = b"pflbench."
_FORMAT = "1"
"""The format of the file in the cache. It is part of the file's name, so another format is never read as this one."""
T = TypeVar("T")


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
        folder = f"{_FORMAT} {root.absolute()}".encode(errors="surrogateescape")
        self._name = hashlib.sha256(folder).hexdigest()[:16]
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

    def describe(self, path: Path, make: Callable[[Footer], T]) -> T:
        """What `make` makes of a file's footer; it is asked again with the file's own if it refuses a remembered one.

        So a wrong memory never makes a good file look damaged. Raises what `make` raises, and `OSError`.
        """
        footer = self.read(path)
        try:
            return make(footer)
        except Exception:
            if footer.parsed is not None or self._known is None:
                raise
            del self._known[str(path.absolute())]
            self._changed = True
            return make(self.read(path))

    def keep(self) -> None:
        """Remember, for other processes, what was read of files that are still there; without room for it, nothing."""
        if not self._changed or self._known is None:
            return
        with contextlib.suppress(OSError):
            self._known = {key: kept for key, kept in self._known.items() if Path(key).exists()}
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
    return Footer((inode, size, time), metadata, list(map(str, columns)), list(map(int, groups)))
