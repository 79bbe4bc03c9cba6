"""User images from one .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.numpy_files import Header, array_headers, read_npz
from pflbench.data.pixels import Pixels, Shape, as_pixels, image_shape, resized
from pflbench.data.prepared import prepared
from pflbench.data.source import Source
from pflbench.data.user_images import Labels, UserArrays, as_groups, as_labels
from pflbench.errors import PflbenchError

NAMES: Mapping[str, tuple[str, ...]] = {
    "images": ("images", "train_images", "x_train"),
    "labels": ("labels", "train_labels", "y_train"),
    "kind": ("kind", "clients", "train_kind", "train_clients"),
    "test_images": ("test_images", "x_test"),
    "test_labels": ("test_labels", "y_test"),
    "test_kind": ("test_kind", "test_clients"),
}
"""Arrays that are read, each with its names: pflbench's, MedMNIST's and Keras's."""
NEEDS = (
    ("images", "labels"),
    ("labels", "images"),
    ("test_images", "test_labels"),
    ("test_labels", "test_images"),
    ("test_kind", "kind"),
    ("test_kind", "test_images"),
)
"""Pairs of arrays, the first of which needs the second."""
UNUSED = "val"
"""Beginning of the names of arrays that are passed over."""


@dataclass(frozen=True, kw_only=True)
class Arrays(UserArrays):
    """Your own images from one .npz file with the arrays `images` and `labels`.

    `images`: (n, height, width), (n, channels, height, width) or (n, height, width, channels), uint8, or floats from 0
    to 1, which are rounded to 255 levels. `labels`: whole numbers from 0 on, or text, whose order then numbers the
    classes. Optional: `test_images` and `test_labels`, the test split; `kind` (or `clients`) and `test_kind`, whose
    each row is, numbers or text. Nothing in the file is ever unpickled.

    Attributes:
        file: The .npz file.
    """

    file: Path

    name: ClassVar = "arrays"
    option: ClassVar = "file"

    @cached_property
    def original(self) -> Shape:
        """Shape of an image of the file."""
        shapes = {}
        for name in ("images", "test_images"):
            if name in self._names:
                where, header = self._where(name), self._headers[self._names[name]]
                shapes[name] = image_shape(where, header.shape, self.layout)[0]
        train, test = shapes["images"], shapes.get("test_images", shapes["images"])
        if test != train and (self.size is None or test[0] != train[0]):
            raise PflbenchError(
                f"{self.file} has training images of {train} and test images of {test} (channels, height, width)"
                + (": say their size." if test[0] == train[0] else ".")
            )
        return train

    @cached_property
    def labels(self) -> Labels:
        """The labels of the file."""
        train, test = (self._read(name) if name in self._names else None for name in ("labels", "test_labels"))
        assert train is not None
        return as_labels(self._where("labels"), train, test, self.known_classes)

    @property
    def examples(self) -> int:
        """Number of training images."""
        return self._headers[self._names["images"]].shape[0]

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: training rows, then test rows, each in the file's order.

        Raises:
            DataMissing: The file is not there.
            PflbenchError: It is damaged, or holds something else.
        """
        recipe = f"arrays 1 {self.shape} {self.layout} {self.range}"
        (images,) = prepared(recipe, [self.file], lambda: (self._images(),))
        kinds = [self._read(name) for name in ("kind", "test_kind") if name in self._names]
        kind = as_groups(self._where("kind"), _joined(self._where("kind"), kinds)) if kinds else None
        return self.source(images, len(images) - self.examples, kind)

    def _images(self) -> Pixels:
        parts = [self._pixels(name) for name in ("images", "test_images") if name in self._names]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _pixels(self, name: str) -> Pixels:
        return resized(as_pixels(self._where(name), self._read(name), self.layout, self.levels()), self.size)

    def _read(self, name: str) -> npt.NDArray[Any]:
        return read_npz(self.file, self._names[name])

    def _where(self, name: str) -> str:
        return f"{self.file}: {self._names[name]}"

    @cached_property
    def _headers(self) -> dict[str, Header]:
        self.require()
        return array_headers(self.file)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Name in the file of each array that is there. Raises `PflbenchError` unless all fit together."""
        found = self._found()
        for needs, needed in NEEDS:
            if needs in found and needed not in found:
                raise PflbenchError(f"{self.file} has {found[needs]}, but no {needed}.")
        if not found:
            raise PflbenchError(f"{self.file} has no images and labels.")
        if "kind" in found and "test_images" in found and "test_kind" not in found:
            raise PflbenchError(f"{self.file} has {found['kind']} and test images, but no test_kind: whose are they?")
        for what, name in found.items():
            self._check_rows(name, found["test_images" if what.startswith("test_") else "images"])
        return found

    def _found(self) -> dict[str, str]:
        there = [name for name in self._headers if not name.startswith(UNUSED)]
        found: dict[str, str] = {}
        for what, spellings in NAMES.items():
            several = [name for name in spellings if name in there]
            if len(several) > 1:
                raise PflbenchError(f"{self.file} has both {several[0]} and {several[1]}: leave one out.")
            if several:
                found[what] = several[0]
        if other := [name for name in there if name not in found.values()]:
            raise PflbenchError(
                f"{self.file} has an array {other[0]!r}, which means nothing here: it may have {', '.join(NAMES)} (or "
                "clients)."
            )
        return found

    def _check_rows(self, name: str, images: str) -> None:
        shape, rows = self._headers[name].shape, self._headers[images].shape
        if rows and not rows[0]:
            raise PflbenchError(f"{self.file}: {images} holds no image.")
        if shape[:1] != rows[:1] or not shape:
            raise PflbenchError(f"{self.file}: {images} has shape {rows}, and {name} {shape}: a row for each image.")


def _joined(where: str, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len({part.dtype.kind in "US" for part in parts}) > 1:
        raise PflbenchError(f"{where} is text for some rows and numbers for others.")
    return np.concatenate(parts)
