"""A results folder for readers, with the reference runs of pflbench."""

from __future__ import annotations

from pathlib import Path

from pflbench.store.store import Store


class ShownStore(Store):
    """The runs under a results folder, and those that came with pflbench.

    `fresh`: without runs that came with pflbench.
    """

    def __init__(self, root: Path, fresh: bool = False) -> None:
        super().__init__(root, packaged=True, fresh=fresh)
