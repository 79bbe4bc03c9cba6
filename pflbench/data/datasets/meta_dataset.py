"""Few-shot tasks, which disagree on the meaning of a label: Meta-Dataset as CAFeMe uses it, and tasks of digits.

A task has some classes of a source, numbered at random (CAFeMe, Table 2, Fig. 5: ten classes of one of eight sources).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.digits import Bundled, Digits
from pflbench.data.datasets.image_sources import SIDE, SOURCES, ByClass, ImageSource
from pflbench.data.partition import Rows
from pflbench.data.prepared import prepared
from pflbench.data.published import SeveralSources
from pflbench.data.source import Source
from pflbench.errors import UsageError, unknown
from pflbench.hyper import hyper
from pflbench.rng import stream

PAPER = ("aircraft", "birds", "dtd", "gtsrb", "flowers", "omniglot", "mini-imagenet", "cifar-fs")
"""The eight of CAFeMe's code; its text has FC100 in place of CIFAR-FS."""


@dataclass(frozen=True)
class MetaDataset(SeveralSources[ImageSource]):
    """Tasks of ten classes of one of eight collections of color images, 32x32, each with other meanings of labels.

    A task is a source, drawn uniformly, ten of its classes, drawn without replacement, and equally many images of each,
    as far as there are so many. Its classes are numbered at random, so tasks disagree on what a label means.
    With the partition "natural", every client has one task. Sources are aircraft, birds, dtd, gtsrb, flowers, omniglot,
    mini-imagenet, cifar-fs and fc100.
    """

    sources: str | None = hyper(None, "Sources in use, separated by commas; none: all of them but fc100.")
    tasks: int = hyper(100, "Tasks in the pool.", least=1)
    ways: int = hyper(10, "Classes of a task.", least=2)
    images: int = hyper(600, "Images of a task, unless its classes have fewer.", least=2)
    swapped: str | None = hyper(None, "Sources in use whose red and blue are exchanged, separated by commas.")

    name: ClassVar = "meta-dataset"
    seeded: ClassVar = True
    shape: ClassVar = (3, SIDE, SIDE)
    known: ClassVar = SOURCES
    usual: ClassVar = PAPER

    def __post_init__(self) -> None:
        for name in self._swapped():
            if name not in self.chosen:
                raise unknown("source in use", name, self.chosen)
        most = min([self.images, *(source.classes for source in self.chosen.values())])
        if self.ways > most:
            raise UsageError(
                f"MetaDataset: ways = {self.ways} must be at most {most}, of images or a source's classes."
            )

    @property
    def classes(self) -> int:
        """Labels of a task."""
        return self.ways

    @property
    def examples(self) -> int:
        """Images of the pool, if all classes have enough."""
        return self.tasks * self.ways * (self.images // self.ways)

    def read(self, root: Path, seed: int) -> Source:
        """The tasks, one after the other; `kind` is the task. `hash` is that of the sources, the same for every seed.

        The source of a task is the one in use with the largest number from the streams
        `(seed, "meta-dataset", task, "source", name)`; further draws are those of `draw_task` with the names
        "meta-dataset", task, source. So a task of a source is the same whatever the other sources are. The pool is
        `prepared`, so the processes of a machine share it.
        """
        import torch

        loaded = {name: source.images(root) for name, source in self.chosen.items()}
        content = " ".join(f"{name} {one.hash}" for name, one in loaded.items())
        content += "".join(f" {name} swapped" for name in loaded if name in self._swapped())
        recipe = f"meta-dataset: {self.tasks} tasks, {self.ways} ways, {self.images} images, seed {seed}, {content}: 1"
        pool, labels, kind = prepared(recipe, [], lambda: self._drawn(loaded, seed))
        hash = hashlib.sha256(content.encode()).hexdigest()[:16]
        return Source(torch.from_numpy(pool), labels, kind, self.ways, hash)

    def _drawn(self, loaded: dict[str, ByClass], seed: int) -> tuple[npt.NDArray[np.uint8], Rows, Rows]:
        """The tasks' images, labels and numbers."""
        drawn = []
        for task in range(self.tasks):
            name = max(loaded, key=lambda name: stream(seed, "meta-dataset", task, "source", name).random())
            each = self.images // self.ways
            drawn.append((name, *draw_task(loaded[name].counts, self.ways, each, seed, "meta-dataset", task, name)))
        labels = np.concatenate([labels for _, _, labels in drawn])
        kind = np.repeat(np.arange(self.tasks, dtype=np.int64), [len(rows) for _, rows, _ in drawn])
        pool = np.empty((len(labels), *self.shape), dtype=np.uint8)
        for task, (name, rows, _) in enumerate(drawn):
            images = loaded[name].images[rows]  # gray ones in all three channels
            pool[kind == task] = images[:, ::-1] if name in self._swapped() else images
        return pool, labels, kind

    def _swapped(self) -> list[str]:
        """Names of the sources whose red and blue are exchanged."""
        return [] if self.swapped is None else [name.strip() for name in self.swapped.split(",")]


@dataclass(frozen=True)
class DigitTasks(Bundled):
    """Tasks of the bundled digits, in each of which labels mean other digits; needs no files.

    Stands in for Meta-Dataset. With the partition "natural", every client has one task. Tasks share images.
    """

    tasks: int = hyper(20, "Tasks in the pool.", least=1)
    images: int = hyper(200, "Images of a task, a tenth of each digit.", least=20, most=1740)
    channels: int = hyper(3, "Copies of the gray channel.", least=1)
    size: int = hyper(32, "Height and width, in pixels.", least=1)

    seeded: ClassVar[bool] = True

    @property
    def examples(self) -> int:
        """Images of all tasks."""
        return self.tasks * 10 * (self.images // 10)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.size, self.size

    def load(self, root: Path, seed: int) -> Source:
        """The tasks, one after the other; `kind` is the task. As `MetaDataset.load`, with the name "digit-tasks"."""
        import torch

        digits = Digits(channels=self.channels, size=self.size).load(root, seed)
        order = np.argsort(digits.labels, kind="stable")
        counts = np.bincount(digits.labels)
        drawn = [draw_task(counts, 10, self.images // 10, seed, "digit-tasks", task) for task in range(self.tasks)]
        rows, labels = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        kind = np.repeat(np.arange(self.tasks, dtype=np.int64), [len(rows) for rows, _ in drawn])
        return Source(digits.images[torch.from_numpy(order[rows])], labels, kind, self.classes, digits.hash)


def draw_task(counts: Rows, ways: int, each: int, seed: int, *names: str | int) -> tuple[Rows, Rows]:
    """Rows and labels of a task, int64 ["rows"]: `ways` classes, at most `each` images of every one.

    Classes are drawn without replacement, in an order that is random, too; their labels are their places in it. From
    the stream `(seed, *names, "classes")`. Of a class with fewer images all are taken; from the stream
    `(seed, *names, "images", class)`, so fewer images are a part of more.

    `counts`: how many rows there are of each class, int64 ["classes"], at least `ways` of them; a class's are in a row.
    """
    chosen = stream(seed, *names, "classes").permutation(len(counts))[:ways].tolist()
    starts = np.cumsum(counts) - counts
    drawn = [stream(seed, *names, "images", name).permutation(counts[name])[:each] for name in chosen]
    rows = np.concatenate([starts[name] + part for name, part in zip(chosen, drawn, strict=True)])
    return rows, np.repeat(np.arange(ways, dtype=np.int64), [len(part) for part in drawn])
