"""Meta-Dataset as CAFeMe uses it (Table 2, Fig. 5): tasks of ten classes from eight collections of images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.few_shot_sources import CIFARFS, FewShotCIFAR100, MiniImageNet
from pflbench.data.datasets.image_sources import (
    SIDE,
    Aircraft,
    Birds,
    ByClass,
    Characters,
    Flowers,
    ImageSource,
    Textures,
    TrafficSigns,
)
from pflbench.data.datasets.tasks import draw_task
from pflbench.data.partition import Rows
from pflbench.data.prepared import prepared
from pflbench.data.source import Source
from pflbench.errors import DataMissing, UsageError, unknown
from pflbench.rng import stream

SOURCES: dict[str, ImageSource] = {
    "aircraft": Aircraft(),
    "birds": Birds(),
    "dtd": Textures(),
    "gtsrb": TrafficSigns(),
    "flowers": Flowers(),
    "omniglot": Characters(),
    "mini-imagenet": MiniImageNet(),
    "cifar-fs": CIFARFS(),
    "fc100": FewShotCIFAR100(),
}
PAPER = ("aircraft", "birds", "dtd", "gtsrb", "flowers", "omniglot", "mini-imagenet", "cifar-fs")
"""The eight of CAFeMe's code; its text has FC100 in place of CIFAR-FS."""


@dataclass(frozen=True)
class MetaDataset:
    """Tasks of ten classes of one of eight collections of color images, 32x32, each with labels of its own.

    A task is a source, drawn uniformly, ten of its classes, drawn without replacement, and equally many images of each,
    as far as there are so many. Its classes are numbered at random, so tasks disagree on what a label means.
    With the partition "natural", every client has one task.

    Attributes:
        sources: The sources to use, separated by commas, of aircraft, birds, dtd, gtsrb, flowers, omniglot,
            mini-imagenet, cifar-fs and fc100; None: all of them but fc100.
        tasks: Tasks in the pool.
        ways: Classes of a task.
        images: Images of a task, unless its classes have fewer.
        swapped: Sources of these whose red and blue change places, separated by commas; None: none.
    """

    sources: str | None = None
    tasks: int = 100
    ways: int = 10
    images: int = 600
    swapped: str | None = None

    seeded: ClassVar[bool] = True
    shape: ClassVar = (3, SIDE, SIDE)

    def __post_init__(self) -> None:
        names = self._names()
        for name in names:
            if name not in SOURCES:
                raise unknown("source of meta-dataset", name, SOURCES)
        if len(set(names)) != len(names):
            raise UsageError(f"MetaDataset: sources = {self.sources!r} names a source twice.")
        for name in self._swapped():
            if name not in names:
                raise unknown("source in use", name, names)
        if self.tasks < 1 or self.ways < 2 or self.images < self.ways:
            raise UsageError(
                f"MetaDataset: tasks = {self.tasks} must be at least 1, ways = {self.ways} at least 2, and images = "
                f"{self.images} at least one for each of the ways."
            )
        for name in names:
            if SOURCES[name].classes < self.ways:
                raise UsageError(f"MetaDataset: {name} has {SOURCES[name].classes} classes, fewer than {self.ways}.")

    @property
    def classes(self) -> int:
        """Labels of a task."""
        return self.ways

    @property
    def examples(self) -> int:
        """Images of the pool, if all classes have enough."""
        return self.tasks * self.ways * (self.images // self.ways)

    def load(self, root: Path, seed: int) -> Source:
        """The tasks, one after the other; `kind` is the task. `hash` is that of the sources, the same for every seed.

        The source of a task is the one in use with the largest number from the streams
        `(seed, "meta-dataset", task, "source", name)`; further draws are those of `draw_task` with the names
        "meta-dataset", task, source. So whichever sources are used, a task of a source is the same. The pool is
        `prepared`, so the processes of a machine share it.

        Raises:
            DataMissing: Sources are not there; the message says of each how to get it.
            PflbenchError: One is damaged.
        """
        import torch

        names = sorted(self._names(), key=list(SOURCES).index)
        if missing := [name for name in names if SOURCES[name].missing(root)]:
            raise self._lacking(missing, root)
        held = {name: SOURCES[name].load(root) for name in names}
        content = " ".join(f"{name} {held[name].hash}" for name in names)
        content += "".join(f" {name} swapped" for name in names if name in self._swapped())
        recipe = f"meta-dataset: {self.tasks} tasks, {self.ways} ways, {self.images} images, seed {seed}, {content}: 1"
        pool, labels, kind = prepared(recipe, [], lambda: self._drawn(held, seed))
        hash = hashlib.sha256(content.encode()).hexdigest()[:16]
        return Source(torch.from_numpy(pool), labels, kind, self.ways, hash)

    def _drawn(self, held: dict[str, ByClass], seed: int) -> tuple[npt.NDArray[np.uint8], Rows, Rows]:
        """The tasks' images, labels and numbers."""
        drawn = []
        for task in range(self.tasks):
            name = max(held, key=lambda name: stream(seed, "meta-dataset", task, "source", name).random())
            each = self.images // self.ways
            drawn.append((name, *draw_task(held[name].counts, self.ways, each, seed, "meta-dataset", task, name)))
        labels = np.concatenate([labels for _, _, labels in drawn])
        kind = np.repeat(np.arange(self.tasks, dtype=np.int64), [len(rows) for _, rows, _ in drawn])
        pool = np.empty((len(labels), *self.shape), dtype=np.uint8)
        for task, (name, rows, _) in enumerate(drawn):
            images = held[name].images[rows]  # gray ones in all three channels
            pool[kind == task] = images[:, ::-1] if name in self._swapped() else images
        return pool, labels, kind

    def fetch(self, root: Path) -> None:
        """Download what torchvision can: all but the birds and mini-ImageNet.

        Raises:
            DataMissing: Not everything is there now; the message says what to put where.
        """
        reasons = {}
        for name in self._names():
            if SOURCES[name].missing(root):
                try:
                    SOURCES[name].fetch(root)
                except Exception as error:  # torchvision lets through what urllib and its own readers raise
                    reasons[name] = f" (downloading failed: {error})"
        if missing := [name for name in self._names() if SOURCES[name].missing(root)]:
            raise self._lacking(missing, root, reasons)

    def status(self, root: Path) -> str:
        """One line, from the presence of the sources' folders or files."""
        missing = [name for name in self._names() if SOURCES[name].missing(root)]
        ready = [name for name in self._names() if name not in missing]
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        return "; ".join([*parts, *([f"ready: {', '.join(ready)} in {root}"] if ready else [])])

    def _names(self) -> list[str]:
        """The sources in use."""
        return list(PAPER) if self.sources is None else [name.strip() for name in self.sources.split(",")]

    def _swapped(self) -> list[str]:
        """Those whose red and blue change places."""
        return [] if self.swapped is None else [name.strip() for name in self.swapped.split(",")]

    def _lacking(self, missing: list[str], root: Path, reasons: dict[str, str] | None = None) -> DataMissing:
        lines = [
            f"meta-dataset lacks {len(missing)} of its {len(self._names())} sources (what torchvision can download is "
            "fetched by `pflbench data fetch meta-dataset`):"
        ]
        for name in missing:
            lines.append(f"- {name}{(reasons or {}).get(name, '')}: {SOURCES[name].title}. {SOURCES[name].how(root)}")
        if there := ", ".join(name for name in self._names() if name not in missing):
            lines.append(f'Without these it is another dataset: {{ name = "meta-dataset", sources = "{there}" }}.')
        return DataMissing("\n".join(lines))
