"""MNIST's training split, upright and rotated (CAFeMe sheet §1.2), from torchvision's layout `MNIST/raw`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.rotation import rotate_by_group, rotation_groups
from pflbench.data.source import Source, check_labels, content_hash, read_bytes, warn_unofficial
from pflbench.errors import DataMissing, PflbenchError

COUNT = 60_000
IMAGES = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"
MD5 = {IMAGES: "6bbc9ace898e44ae57da46a324031adb", LABELS: "a25bea736e30d166cdddb491f175f624"}


@dataclass(frozen=True)
class MNIST:
    """60,000 handwritten digits, 28x28 gray: MNIST's training split."""

    seeded: ClassVar[bool] = False

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return 60_000

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return 1, 28, 28

    @property
    def classes(self) -> int:
        """Ten digits."""
        return 10

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed. Raises `DataMissing`, or `PflbenchError` for a damaged file."""
        import torch

        folder = _folder(root)
        if missing := _missing(folder):
            raise DataMissing(f"MNIST is not there. Run `pflbench data fetch mnist`, or {_by_hand(missing)}.")
        images = read_idx(folder / IMAGES, (COUNT, 28, 28))
        labels = read_idx(folder / LABELS, (COUNT,)).astype(np.int64)
        check_labels(folder / LABELS, labels, self.classes)
        warn_unofficial({folder / name: md5 for name, md5 in MD5.items()})
        pool = torch.from_numpy(images).unsqueeze(1)
        return Source(pool, labels, None, self.classes, content_hash(images, labels))

    def fetch(self, root: Path) -> None:
        """Download all four MNIST files with torchvision. Raises `DataMissing` if its mirrors fail."""
        if not (missing := _missing(_folder(root))):
            return
        from torchvision.datasets import MNIST as Download

        try:
            Download(root, download=True)
        except Exception as error:  # torchvision lets through what urllib and gzip raise
            raise DataMissing(f"Downloading MNIST failed ({error}). To go on, {_by_hand(missing)}.") from error

    def status(self, root: Path) -> str:
        """One line, from the presence and size of the two files."""
        folder = _folder(root)
        if missing := _missing(folder):
            return f"missing: {', '.join(map(str, missing))}"
        for name, header, size in ((IMAGES, 16, 28 * 28), (LABELS, 8, 1)):
            if (folder / name).stat().st_size != header + COUNT * size:
                return f"missing: {folder / name} is damaged (wrong size)"
        return f"ready: {COUNT:,} images in {folder}"


@dataclass(frozen=True)
class RMNIST:
    """MNIST's training split in equal rotation groups: group g is turned by g * degrees."""

    rotations: int = 10
    degrees: float = 20.0

    seeded: ClassVar[bool] = True

    @property
    def examples(self) -> int:
        """Size of the pool."""
        return 60_000

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return MNIST().shape

    @property
    def classes(self) -> int:
        """Ten digits."""
        return MNIST().classes

    def load(self, root: Path, seed: int) -> Source:
        """MNIST, turned; `kind` is the rotation group, which depends on the seed. Raises as `MNIST.load`."""
        upright = MNIST().load(root, seed)
        kind = rotation_groups(len(upright.labels), self.rotations, seed)
        return replace(upright, images=rotate_by_group(upright.images, kind, self.degrees), kind=kind)

    def fetch(self, root: Path) -> None:
        """As `MNIST.fetch`."""
        MNIST().fetch(root)

    def status(self, root: Path) -> str:
        """As `MNIST.status`."""
        return MNIST().status(root)


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """A whole idx file of unsigned bytes, the format of MNIST's publisher.

    Args:
        path: The uncompressed file.
        shape: The shape it must have.

    Raises:
        PflbenchError: The file is unreadable, has another size, or its header says another type or shape.
    """
    header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    data = read_bytes(path, len(header) + int(np.prod(shape)))
    if data[: len(header)].tobytes() != header:
        raise PflbenchError(
            f"{path} is not an idx file of unsigned bytes of shape {shape}: delete it and fetch it again."
        )
    return data[len(header) :].reshape(shape)


def _folder(root: Path) -> Path:
    return root / "MNIST" / "raw"


def _missing(folder: Path) -> list[Path]:
    return [folder / name for name in (IMAGES, LABELS) if not (folder / name).is_file()]


def _by_hand(missing: list[Path]) -> str:
    return f"put there, uncompressed: {', '.join(map(str, missing))}"
