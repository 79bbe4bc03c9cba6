"""User images as the Hugging Face library `datasets` saves them, read with that library."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.pixels import Picture, Pixels, common_shape, decode_all, picture_headers
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Source
from pflbench.data.user_images import FORMS, Labels, ResizedImages, UserPictures, as_groups, as_labels
from pflbench.errors import PflbenchError

TESTS = ("test", "validation", "valid", "val")
"""Splits that are the test split where none is named; the first one present counts."""


@dataclass(frozen=True, kw_only=True)
class HfDisk(UserPictures):
    """Your own images as `save_to_disk` of the Hugging Face library datasets writes them (`pip install pflbench[hf]`).

    A `Dataset`, which has no test split, or a `DatasetDict`, whose splits are named `train` and `test` (or
    `validation`) unless you say otherwise. Images, of the type `Image`, are shown upright, as their EXIF data say, and
    transparency on white.

    Attributes:
        path: The folder that was saved.
        image: The column of the images; None: the only one of type `Image`.
        label: The column of the labels; None: the only one of type `ClassLabel`.
        client: The column that says whose each image is, as numbers or text: the kinds; None: there are none.
        train: The split to train on; None: "train", or the only one.
        test: The split to be tested on; None: "test" or "validation", if it is there.
    """

    path: Path
    image: str | None = None
    label: str | None = None
    client: str | None = None
    train: str | None = None
    test: str | None = None

    name: ClassVar = "hf-disk"
    option: ClassVar = "path"

    @cached_property
    def labels(self) -> Labels:
        """The labels, of as many classes as the column names, if it does."""
        labels, column = self.pool.labels, self._column("ClassLabel", self.label, "label")
        known = getattr(self._splits[0].features[column], "num_classes", None)
        return as_labels(f"{self.path}: {column}", labels[: self.examples], labels[self.examples :], known)

    def files(self, root: Path) -> list[Path]:
        """All files of the folder but those that the library caches."""
        self.require_folder()
        return sorted(p for p in self.path.rglob("*") if p.is_file() and not p.name.startswith((".", "cache-", "tmp")))

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, in the order of the rows.

        Raises:
            DataMissing: The folder is missing.
            PflbenchError: It is no saved dataset, a damaged one, or has no such columns.
        """
        images, _, clients, test = self.pool
        return self.source(images, test, None if clients is None else as_groups(f"{self.path}: {self.client}", clients))

    @cached_property
    def _splits(self) -> list[Any]:
        """The training split as the library loads it, then the test split, if there is one."""
        self.require_folder()
        with file_errors(f"{self.path} is no folder that save_to_disk wrote. {FORMS}"):
            saved = _library().load_from_disk(str(self.path))
        if not isinstance(saved, dict):
            if self.train is not None or self.test is not None:
                raise PflbenchError(f"{self.path} is one dataset without splits: leave out train and test.")
            return [saved]
        train = self.train or (next(iter(saved)) if len(saved) == 1 else "train")
        test = self.test or next((name for name in TESTS if name in saved and name != train), None)
        try:
            return [saved[name] for name in (train, test) if name is not None]
        except KeyError as missing:
            raise PflbenchError(f"{self.path} has no split {missing}: it has {', '.join(saved)}.") from None

    def _column(self, kind: str, chosen: str | None, option: str) -> str:
        """Column that `chosen` names, else the only one of this type."""
        features = self._splits[0].features
        of_kind = [name for name, feature in features.items() if type(feature).__name__ == kind]
        columns = of_kind if chosen is None else [chosen]
        if len(columns) != 1 or any(columns[0] not in split.features for split in self._splits):
            raise PflbenchError(
                f'{self.path}: name the column of the {option}s, as in {option} = "…". It has {", ".join(features)}.'
            )
        return columns[0]

    @cached_property
    def pool(self) -> ResizedImages:
        """All rows; clients if a column says whose they are."""
        columns = [
            self._column("Image", self.image, "image"),
            self._column("ClassLabel", self.label, "label"),
            *([] if self.client is None else [self._column("", self.client, "client")]),
        ]
        recipe = f"hf-disk 2 {columns} {self.train} {self.test} {self.size} {self.channels}"
        images, labels, clients, test = prepared(recipe, self.files(self.path), lambda: self._read(*columns))
        return ResizedImages(images, labels, clients if self.client is not None else None, int(test))

    def _read(self, image: str, label: str, client: str | None = None) -> tuple[npt.NDArray[Any], ...]:
        with file_errors(f"Cannot read {self.path}"):
            for split in self._splits:
                split.data.table.validate(full=True)  # invalid values can end the process when they are read
            labels = self._values(label)
            clients = labels[:0] if client is None else self._values(client)
            images = self._images(image)
        return images, labels, clients, np.array(sum(map(len, self._splits[1:])))

    def _values(self, name: str) -> npt.NDArray[Any]:
        values = np.concatenate([np.array(list(split[name])) for split in self._splits])
        if values.dtype.kind not in "biufUS":
            raise PflbenchError(f"{self.path}: {name} has rows that are neither numbers nor text, or rows without any.")
        return values

    def _images(self, name: str) -> Pixels:
        where = f"{self.path}: {name}"
        if any(type(split.features[name]).__name__ != "Image" for split in self._splits):
            raise PflbenchError(f"{where} is not of the type Image. Save it so, or as .npz for the dataset arrays.")
        encoded = [split.cast_column(name, _library().Image(decode=False)) for split in self._splits]
        rows = [one for split in encoded for one in split[name]]
        if missing := [row for row, one in enumerate(rows) if not one or one["bytes"] is None]:
            raise PflbenchError(f"{where} has {len(missing)} rows without an image, such as row {missing[0]}.")
        pictures = [Picture(f"{where}, row {row}", one["bytes"]) for row, one in enumerate(rows)]
        shape = common_shape(where, pictures, picture_headers(pictures), self.size, self.channels)
        return decode_all(pictures, shape, viewed=True)


def _library() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise PflbenchError("hf-disk needs the library datasets: pip install 'pflbench[hf]'.") from error
