"""The federation that a cell's runs are made in, as facts."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pflbench.errors import PflbenchError
from pflbench.names import Places, place
from pflbench.spec import RunSpec


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


def facts(run: RunSpec, root: Path, places: Places) -> Facts | str:
    """The facts of a run's federation; without its data, what is missing. Imports torch.

    `places`: where the code is of what it has of the user's own.
    """
    from pflbench.executor import build

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            federation = build.federation(run, root, places)
        except PflbenchError as error:
            return " ".join(str(error).split())
    parameters = None
    with contextlib.suppress(PflbenchError):  # the method or the network is nowhere to be found
        method = build.construct(place("methods", run.method.name, places), run.method.hyper)
        parameters = len(method.network(build.network(run, places)).init(run.seed))
    training = np.flatnonzero(federation.training)
    others = np.flatnonzero(~federation.training)
    return Facts(
        seed=run.seed,
        hash=federation.hash,
        support=_numbers([len(federation.support[k]) for k in training]),
        query=_numbers([len(rows) for rows in federation.query]),
        held_out=_numbers([len(federation.support[k]) for k in others]) if len(others) else None,
        kinds=_numbers([len(np.unique(federation.labels[rows])) for rows in federation.support]),
        classes=federation.classes,
        test=len(federation.test),
        shared=federation.shared,
        parameters=parameters,
        warnings=tuple(dict.fromkeys(str(one.message) for one in caught)),
    )


def _numbers(found: Sequence[int]) -> Numbers:
    return Numbers(min(found), float(np.median(found)), max(found))
