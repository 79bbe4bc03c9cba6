"""CIFAR-10, and CIFAR-100 by superclass (pFedVEM, Table 1) or by fine class (FedEC), read by torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from pflbench.data.published import Torchvision
from pflbench.data.source import HALF, Normalization, Source
from pflbench.hyper import hyper

NORMALIZATIONS: dict[bool | str | None, Normalization] = {
    True: Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": HALF,
}
"""Those of CIFAR-10, by its option: pFedVEM's code, FedRep's code, PFLlib."""
NORMALIZATIONS_100: dict[str | None, Normalization] = {
    None: Normalization((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025)),
    "fedrep": Normalization((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "half": HALF,
}
"""Those of CIFAR-100, likewise."""
COARSE = np.array(
    (
        "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 "
        "8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 "
        "4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
    ).split(),
    dtype=np.int64,
)
"""Superclass of each fine class of CIFAR-100, from its official files; torchvision reads the fine classes alone."""


@dataclass(frozen=True)
class CIFAR10(Torchvision):
    """50,000 color images of 10 kinds of objects, 32x32: CIFAR-10, with its test split on request."""

    test: bool | None = hyper(None, "End the pool with the 10,000 images of the test split.")
    normalize: bool | Literal["imagenet", "half"] | None = hyper(
        None,
        "true: pFedVEM's mean and deviation of each channel; imagenet: ImageNet's, as FedEC and FedRep; half: values "
        "from -1 to 1, as PFLlib.",
    )
    merged: bool | None = hyper(None, "Deal the test split's images like the others; then there is no test split.")

    name: ClassVar = "cifar10"
    downloads: ClassVar = (("CIFAR10", "", {"train": True}), ("CIFAR10", "", {"train": False}))
    needs: ClassVar = tuple(
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta")
    )
    shape: ClassVar = (3, 32, 32)
    classes: ClassVar = 10

    @property
    def examples(self) -> int:
        """Images that are dealt to clients."""
        return 60_000 if self.merged else 50_000

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first."""
        images, labels, rows = self.pool(root, "train", *(["test"] if self.test or self.merged else []))
        test = 0 if self.merged else int(sum(rows[1:]))
        return Source.of(images, labels, 10, test=test, normalization=NORMALIZATIONS.get(self.normalize))


@dataclass(frozen=True)
class CIFAR100(Torchvision):
    """50,000 + 10,000 color images, 32x32, in 20 superclasses of 5 classes: CIFAR-100 with its test split."""

    fine: bool | None = hyper(None, "Labels are the 100 classes instead of the superclasses; then there are no kinds.")
    normalize: Literal["fedrep", "half"] | None = hyper(
        None, "none: pFedVEM's mean and deviation of each channel; fedrep: FedRep's, as FedEC; half: from -1 to 1."
    )
    merged: bool | None = hyper(None, "Deal the test split's images like the others; then there is no test split.")

    name: ClassVar = "cifar100"
    downloads: ClassVar = (("CIFAR100", "", {"train": True}), ("CIFAR100", "", {"train": False}))
    needs: ClassVar = tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta"))
    shape: ClassVar = (3, 32, 32)

    @property
    def classes(self) -> int:
        """Twenty superclasses, or a hundred classes."""
        return 100 if self.fine else 20

    @property
    def examples(self) -> int:
        """Images that are dealt to clients."""
        return 60_000 if self.merged else 50_000

    def read(self, root: Path, seed: int) -> Source:
        """The same pool for every seed; `kind` is the fine class, unless labels are. `hash` covers both labels."""
        images, fine, rows = self.pool(root, "train", "test")
        coarse = COARSE[fine]
        return Source.of(
            images,
            fine if self.fine else coarse,
            self.classes,
            None if self.fine else fine,
            hashed=np.stack([coarse, fine], axis=1),
            test=0 if self.merged else int(rows[1]),
            normalization=NORMALIZATIONS_100[self.normalize],
        )
