"""A results folder as whoever only reads it sees it: no file in it is renamed or removed, whatever it holds.

The reference runs that come with pflbench are there, too: those that an installed package holds or, of a checkout, its
packs. A run of one's own goes before a packaged one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pflbench import package
from pflbench.result import RunResult
from pflbench.store.folder import Packs
from pflbench.store.footers import Footers
from pflbench.store.header import Stored
from pflbench.store.store import Store


def packaged_folder() -> Path:
    """The packs that came with pflbench: those that a wheel holds, or else those beside the package in a checkout."""
    installed, checkout = (folder / "results" / "packs" for folder in (package.FOLDER, package.FOLDER.parent))
    return installed if installed.is_dir() or not (package.FOLDER.parent / "pyproject.toml").is_file() else checkout


class ShownStore(Store):
    """The runs under a results folder, read and never written, and those that came with pflbench if `packaged`."""

    def __init__(self, root: Path, packed: bool = True, packaged: bool = True, remembered: bool = True) -> None:
        super().__init__(root, packed, mends=False, remembered=remembered)
        folder = packaged_folder()
        packaged = packaged and folder.resolve() != (root / "packs").resolve()  # in a checkout they are its own runs
        self._of_packaged = Footers(folder.parent)
        self._came_along = Packs(folder, self._of_packaged, packaged, mends=False)

    @property
    def folders(self) -> tuple[Path, ...]:
        """As in a store."""
        return (*super().folders, self._came_along.folder) if self._came_along.seen else super().folders

    def find(self, id: str) -> Stored | None:
        """As in a store."""
        found = super().find(id)
        if found is None and (pack := self._came_along.find(id)):
            return pack.entries[id]._replace(packaged=True)
        return found

    def _read(self, stored: Stored) -> RunResult | None:
        pack = self._came_along.known.get(stored.path)
        if pack is None:
            return super()._read(stored)
        return self._came_along.read(pack, stored.spec.id) if stored.spec.id in pack.entries else None

    def _read_several(self, path: Path, ids: Sequence[str]) -> dict[str, RunResult]:
        pack = self._came_along.known.get(path)
        if pack is None:
            return super()._read_several(path, ids)
        return self._came_along.read_several(pack, pack.entries.keys() & ids)

    def every(self) -> dict[str, Stored]:
        """As in a store."""
        packaged = {
            id: run._replace(packaged=True) for pack in self._came_along.all() for id, run in pack.entries.items()
        }
        self._of_packaged.keep()
        return packaged | super().every()
