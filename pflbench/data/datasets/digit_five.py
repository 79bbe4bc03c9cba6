"""Digit-Five (pFedVEM, Table 7): handwritten, printed and drawn digits from five datasets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.digit_sources import SIDE, SOURCES, Which, as_color
from pflbench.data.published import warn_unofficial
from pflbench.data.source import Normalization, Source
from pflbench.errors import DataMissing, PflbenchError, UsageError, unknown
from pflbench.rng import stream

MOST = {"train": 25_000, "test": 9_000}
"""At most so many images of a source are used; the paper gives no number."""
PUBLISHED = {"mnist": 60_000, "svhn": 73_257, "usps": 7_291, "mnist-m": 59_001, "synthetic": 10_000}
"""Training images of the sources as published; what is used is what the files hold."""
NORMALIZATION = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""The paper names none."""


@dataclass(frozen=True)
class DigitFive:
    """92,291 + 31,007 color digits from five sources, 32x32: MNIST, SVHN, USPS, MNIST-M, Synthetic Digits.

    Attributes:
        sources: The sources to use, separated by commas; None: all five.
    """

    sources: str | None = None

    seeded: ClassVar[bool] = False
    shape: ClassVar = (3, SIDE, SIDE)
    classes: ClassVar = 10

    def __post_init__(self) -> None:
        chosen = list(map(str.strip, self.sources.split(","))) if self.sources is not None else []
        for name in chosen:
            if name not in SOURCES:
                raise unknown("source of digit-five", name, SOURCES)
        if len(set(chosen)) != len(chosen):
            raise UsageError(f"DigitFive: sources = {self.sources!r} names a source twice.")

    @property
    def examples(self) -> int:
        """Size of the training split if the files are those that were published."""
        return sum(min(PUBLISHED[name], MOST["train"]) for name in self._names())

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: the training rows of all sources, then their test rows.

        `kind` is 10 * source + digit, where sources are numbered in the order above, whichever are used. `hash` covers
        images and kinds. Warns once with `UnofficialFile` where files are not the official ones.

        Raises:
            DataMissing: Files of a source are not there.
            PflbenchError: A file is damaged, or what reads it is not installed.
        """
        if missing := self._missing(root):
            raise DataMissing(
                f"Digit-Five lacks {_listed(missing)}. Run `pflbench data fetch digit-five`, which says how to get "
                "them, or choose among the others with the option sources."
            )
        parts = [_part(root, name, which) for which in ("train", "test") for name in self._names()]
        warn_unofficial({path: known for name in self._names() for path, known in SOURCES[name].parts(root).items()})
        images = np.concatenate([images for images, _ in parts])
        kind = np.concatenate([kind for _, kind in parts])
        test = sum(len(kind) for _, kind in parts[len(self._names()) :])
        return Source.of(images, kind % 10, self.classes, kind, hashed=kind, test=test, normalization=NORMALIZATION)

    def fetch(self, root: Path) -> None:
        """Download MNIST, SVHN and USPS with torchvision; the others are left to the user.

        Raises:
            DataMissing: Not everything is there now; the message says what to put where.
        """
        reasons = {name: source.by_hand for name, source in SOURCES.items() if source.by_hand}
        for name in self._missing(root):
            try:
                SOURCES[name].fetch(root)
            except Exception as error:  # torchvision lets through what urllib and its own readers raise
                reasons[name] = str(error) if isinstance(error, DataMissing) else f"downloading failed: {error}"
        if missing := self._missing(root):
            raise DataMissing(f"Digit-Five lacks {_listed(missing, reasons)}.")

    def status(self, root: Path) -> str:
        """One line, from the presence of the files."""
        if missing := self._missing(root):
            return f"missing: {_listed(missing)}"
        return f"ready: {', '.join(self._names())} in {root}"

    def _names(self) -> list[str]:
        """The sources used, in the order of their numbers."""
        return [n for n in SOURCES if self.sources is None or n in map(str.strip, self.sources.split(","))]

    def _missing(self, root: Path) -> dict[str, list[str]]:
        return {name: missing for name in self._names() if (missing := SOURCES[name].missing(root))}


def _part(root: Path, name: str, which: Which) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The images used of one split of one source, uint8 ["images", 3, 32, 32], and their kinds."""
    split = SOURCES[name].read(root, which)
    if not len(split.labels):
        raise PflbenchError(f"Digit-Five: the {which} split of {name} is empty.")
    rows = stream(0, "digit-five", name, which).permutation(len(split.labels))[: MOST[which]]
    images = np.empty((len(rows), 3, SIDE, SIDE), dtype=np.uint8)
    for image, row in zip(images, rows, strict=True):
        image[:] = as_color(split.images[row])
    return images, 10 * list(SOURCES).index(name) + split.labels[rows]


def _listed(missing: dict[str, list[str]], reasons: dict[str, str] | None = None) -> str:
    """`mnist (FILE, FILE), usps (FILE; why)`."""
    why = {name: f"; {reason}" for name, reason in (reasons or {}).items()}
    return ", ".join(f"{name} ({', '.join(files)}{why.get(name, '')})" for name, files in missing.items())
