"""A results folder for readers, who rename and remove no file in it, with the reference runs of pflbench."""

from __future__ import annotations

from pathlib import Path

from pflbench.store.store import Store


class ShownStore(Store):
    """The runs under a results folder, read and never written, and those that came with pflbench.

    `fresh`: without runs that came with pflbench.
    """

    def __init__(self, root: Path, fresh: bool = False) -> None:
        super().__init__(root, mends=False, packaged=True, fresh=fresh)
