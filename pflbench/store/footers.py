"""The footers of a results folder's Parquet files, remembered from process to process.

Listing runs then neither imports Arrow nor parses the footers of files that have not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.store import files
from pflbench.store.header import Texts, decoded

_FRESH = 2e9
"""A file changed again within so many nanoseconds may look the same: the clocks of file systems are coarse."""
_FORMAT = "1"
"""The format of the file in the cache. It is part of the file's name, so another format is never read as this one."""
T = TypeVar("T")


class Footer(NamedTuple):
    """Footer of a Parquet file: the entries of pflbench in its metadata, and the rows of each row group.

    `identity` tells the file from others of its name. `parsed` is the footer as Arrow reads it, if it was read now.
    """

    identity: files.Identity
    metadata: Texts
    columns: list[str]
    groups: list[int]
    parsed: Any = None


class Footers:
    """The footers of the files below `root`, each parsed once until its file becomes another.

    `remembered`: whether other processes are to know them; not of a folder that will be gone.
    """

    def __init__(self, root: Path, remembered: bool = True) -> None:
        self._remembered = remembered
        folder = f"{_FORMAT} {root.absolute()}".encode(errors="surrogateescape")
        self._file = cache_folder() / "footers" / f"{hashlib.sha256(folder).hexdigest()[:16]}.json"
        self._changed = False

    @cached_property
    def _known(self) -> dict[str, Any]:
        known = read_json(self._file)
        return known if isinstance(known, dict) else {}

    def read(self, path: Path) -> Footer:
        """The footer of one file. Raises `Unfit` or `OSError`."""
        key, status = str(path.absolute()), path.stat()
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # remembered by a damaged file
            identity, texts, columns, groups = self._known[key]
            if tuple(identity) == files.identity(status):
                return Footer(files.identity(status), dict(texts), list(columns), list(groups))
        footer = read_footer(path)
        if time.time_ns() - footer.identity[2] > _FRESH:
            self._known[key] = footer[:-1]
            self._changed = True
        return footer

    def describe(self, path: Path, make: Callable[[Footer], T]) -> T:
        """Call `make` with a file's footer, and again with the footer in the file if it refuses a remembered one.

        So a wrong memory never makes a good file look damaged. Raises what `make` raises, and `OSError`.
        """
        footer = self.read(path)
        try:
            return make(footer)
        except Exception:
            if footer.parsed is not None:
                raise
            del self._known[str(path.absolute())]
            self._changed = True
            return make(self.read(path))

    def keep(self) -> None:
        """Remember, for other processes, what was read of files that are still there; without room for it, nothing."""
        if self._changed and self._remembered:
            with contextlib.suppress(OSError):
                self._known = {key: kept for key, kept in self._known.items() if Path(key).exists()}
                write_json(self._file, self._known)
                self._changed = False


def read_footer(path: Path) -> Footer:
    """A Parquet file's footer, from the file itself. Raises `Unfit` or `OSError`."""
    from pflbench.store import schema

    with path.open("rb") as file:
        footer = schema.parquet_footer(file)
        identity = files.identity(os.fstat(file.fileno()))
    groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    return Footer(identity, decoded(footer.metadata), list(footer.schema.names), groups, footer)
