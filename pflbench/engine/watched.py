"""A round that records whether a method reads its number."""

from __future__ import annotations

from torch import Tensor

from pflbench.methods.base import Round


class Watched(Round):
    """A round that notes in `asked` when a method reads its index: a CUDA graph of such a round cannot be replayed."""

    def __init__(self, index: int, key: Tensor, asked: set[int]):
        for name, value in (("_index", index), ("key", key), ("coin", None), ("_asked", asked)):
            object.__setattr__(self, name, value)

    @property
    def index(self) -> int:
        """See `Round`."""
        found: int = self.__dict__["_index"]
        self.__dict__["_asked"].add(found)
        return found
