"""Facts of the federation that a cell's runs are made in; `running.federations.facts` finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Numbers(NamedTuple):
    """The least, the median and the greatest of some numbers."""

    least: float
    median: float
    most: float

    def of(self, noun: str) -> str:
        """`5 images`, or `5 to 90 images, median 60`."""
        if self.least == self.most:
            return f"{self.least:g} {noun}"
        return f"{self.least:g} to {self.most:g} {noun}, median {self.median:g}"


@dataclass(frozen=True)
class Facts:
    """A federation with a seed, built from its data, and the network in it.

    `support`, `query`: images of the training clients; `held_out`: support images of the others (None: there are none).
    `kinds`: how many classes a client's support images are of. `test`: images that the global model is scored on.
    `shared`: images that several clients hold. `parameters`: of the network as the method trains it; None if it cannot
    be built here. `warnings`: that files of the dataset are not the official ones.
    """

    seed: int
    hash: str
    support: Numbers
    query: Numbers
    held_out: Numbers | None
    kinds: Numbers
    classes: int
    test: int
    shared: int
    parameters: int | None
    warnings: tuple[str, ...]
