"""A results folder for readers, who rename and remove no file in it, with the reference runs of pflbench.

These are packs of the installed package or, in a checkout, its `results/packs`. The folder's runs go before them.
"""

from __future__ import annotations

from pathlib import Path

from pflbench import package
from pflbench.store.store import Store


def packaged_folder() -> Path:
    """Packs that came with pflbench: those in the wheel, else those beside the package in a checkout."""
    installed, checkout = (folder / "results" / "packs" for folder in (package.FOLDER, package.FOLDER.parent))
    return installed if installed.is_dir() or not (package.FOLDER.parent / "pyproject.toml").is_file() else checkout


class ShownStore(Store):
    """The runs under a results folder, read and never written, and those that came with pflbench if `packaged`."""

    def __init__(self, root: Path, packed: bool = True, packaged: bool = True) -> None:
        folder = packaged_folder()
        apart = folder.resolve() != (root / "packs").resolve()  # in a checkout they are its runs
        super().__init__(root, packed, mends=False, packaged=folder if packaged and apart else None)
