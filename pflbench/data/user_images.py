"""Bases of datasets of user images, with size and normalization as options; labels and groups as numbers from 0 on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.pixels import Layout, Pixels, Shape, statistics
from pflbench.data.source import Normalization, Source
from pflbench.errors import DataMissing, PflbenchError, UsageError, unknown

FORMS = (
    "Forms of user images: image-folder (a folder of images for each class, also below train and test), arrays (one "
    ".npz file with images and labels), clients-folder (PFLlib's train/CLIENT.npz and test/CLIENT.npz with x and y), "
    "hf-disk (a folder that save_to_disk of Hugging Face's datasets wrote). Convert the data, or unpack an archive."
)
"""Sentence of errors for data in another form."""


class UnreadFiles(UserWarning):
    """A folder of images has files that are not read."""


class Labels(NamedTuple):
    """int64 ["pool"], in [0, classes)."""

    values: npt.NDArray[np.int64]
    classes: int


class ResizedImages(NamedTuple):
    """Resized images, labels as they are in the files, and clients; the last `test` rows are the test split."""

    images: Pixels
    labels: npt.NDArray[Any]
    clients: npt.NDArray[Any] | None
    test: int


@dataclass(frozen=True, kw_only=True)
class UserImages:
    """Base of a dataset of user files: a subclass says where they are, and reads images and labels.

    Attributes:
        size: Height and width that every image is resized to, in pixels; None: as they are.
        mean: What normalization subtracts from images in [0, 1]: one number, or text with one for each channel,
            "0.49,0.48,0.45"; None: images are not normalized.
        std: What normalization divides by then, likewise.
        normalize: "data": mean and standard deviation of each channel are those of the training images.
    """

    size: int | None = None
    mean: float | str | None = None
    std: float | str | None = None
    normalize: Literal["data"] | None = None

    seeded: ClassVar[bool] = False
    name: ClassVar[str]
    """Name in suite files and messages."""
    option: ClassVar = "root"
    """Option with the file or folder."""

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UsageError(f"{self.name}: size = {self.size} must be positive.")
        if self.normalize not in (None, "data"):
            raise unknown(f"value of {self.name}.normalize", str(self.normalize), ["data"])
        self._check_normalization()

    def _check_normalization(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise UsageError(f"{self.name}: mean and std go together.")
        if self.normalize and self.mean is not None:
            raise UsageError(f'{self.name}: normalize = "data" computes mean and std: leave them out.')
        if self.mean is not None:
            self.numbers("mean", self.mean)
        if self.std is not None and not all(value > 0 for value in self.numbers("std", self.std)):
            raise UsageError(f"{self.name}: std = {self.std!r} must be positive.")

    @property
    def place(self) -> Path:
        """The file or folder that the dataset reads."""
        path: Path = getattr(self, self.option)
        return path

    @property
    def pool(self) -> ResizedImages:
        """Content of the files; only of datasets that read all at once. Raises `DataMissing` or `PflbenchError`."""
        raise NotImplementedError

    @property
    def original(self) -> Shape:
        """Shape of the images before they are resized, or of the pool's. Raises `DataMissing` or `PflbenchError`."""
        channels, height, width = self.pool.images.shape[1:]
        return channels, height, width

    @property
    def examples(self) -> int:
        """Number of training images."""
        return len(self.pool.labels) - self.pool.test

    @property
    def labels(self) -> Labels:
        """Labels of the whole pool, training rows first. Raises `DataMissing` or `PflbenchError`."""
        raise NotImplementedError

    @cached_property
    def shape(self) -> Shape:
        """(channels, height, width). Raises `DataMissing` or `PflbenchError`, as does `classes`."""
        channels, height, width = self.original
        self._chosen(channels)
        return (channels, height, width) if self.size is None else (channels, self.size, self.size)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.labels.classes

    def files(self, root: Path) -> list[Path]:
        """Path that is read."""
        return [self.place]

    def fetch(self, root: Path) -> None:
        """Nothing can be fetched: raises `DataMissing` unless it is there."""
        self.require()

    def status(self, root: Path) -> str:
        """One line, from the presence of the file or folder."""
        return f"{'ready' if self.place.exists() else 'missing'}: {self.place}"

    def require(self) -> None:
        """Raise `DataMissing` unless it is there."""
        if not self.place.exists():
            raise DataMissing(f"There is no {str(self.place)!r}. Correct the path of your images.")

    def require_folder(self) -> None:
        """Raise `DataMissing` unless `place` is there, and `PflbenchError` unless it is a folder."""
        self.require()
        if not self.place.is_dir():
            raise PflbenchError(f"{self.place} is a file, and {self.name} reads a folder. {FORMS}")

    def source(self, images: Pixels, test: int, kind: npt.NDArray[np.int64] | None = None) -> Source:
        """The pool of these images and its labels; the last `test` ones are the test split. Raises `PflbenchError`."""
        normalization = self._chosen(images.shape[1])
        if self.normalize:
            normalization = statistics(str(self.place), images[: len(images) - test])
        labels, classes = self.labels
        return Source.of(images, labels, classes, kind, test=test, normalization=normalization)

    def numbers(self, option: str, text: float | str) -> tuple[float, ...]:
        """An option that is one number, or several with commas between them. Raises `UsageError`."""
        try:
            found = tuple(float(part) for part in str(text).split(","))
        except ValueError:
            found = (math.nan,)
        if not all(map(math.isfinite, found)):
            raise UsageError(f'{self.name}: {option} = {text!r} must be numbers, with commas between: "0.5,0.5,0.5".')
        return found

    def _chosen(self, channels: int) -> Normalization | None:
        """The normalization that the options say. Raises `UsageError` if it has another number of channels."""
        if self.mean is None or self.std is None:
            return None
        mean, std = self.numbers("mean", self.mean), self.numbers("std", self.std)
        for option, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                raise UsageError(
                    f"{self.name}: {option} has {len(values)} numbers, and the images of {self.place} have {channels} "
                    "channel(s)."
                )
        return Normalization(mean * (channels // len(mean)), std * (channels // len(std)))


@dataclass(frozen=True, kw_only=True)
class UserPictures(UserImages):
    """Base of those whose images are files of pictures.

    Attributes:
        channels: 1: images are made gray, 3: colored; None: gray if all of them are, else colored.
    """

    channels: Literal[1, 3] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels not in (None, 1, 3):
            raise UsageError(f"{self.name}: channels = {self.channels} must be 1 (gray) or 3 (colored).")


@dataclass(frozen=True, kw_only=True)
class UserArrays(UserImages):
    """Base of those whose images are arrays of numbers.

    Attributes:
        layout: Where the axis of the channels is; None: it is the second or the last, whichever alone has 1 or 3
            entries.
        range: The floats that are black and white, "-1,1"; None: 0 and 1.
        known_classes: How many classes there are, where the training images do not have all of them.
    """

    layout: Layout | None = None
    range: str | None = None
    known_classes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in (None, "channels-first", "channels-last"):
            raise unknown(f"value of {self.name}.layout", str(self.layout), ["channels-first", "channels-last"])
        if self.known_classes is not None and self.known_classes < 2:
            raise UsageError(f"{self.name}: known_classes = {self.known_classes} must be at least 2.")
        self.levels()

    def levels(self) -> tuple[float, float] | None:
        """The floats that are black and white. Raises `UsageError`."""
        if self.range is None:
            return None
        found = self.numbers("range", self.range)
        if len(found) != 2 or found[0] >= found[1]:
            raise UsageError(f'{self.name}: range = {self.range!r} must be two numbers, black and white: "-1,1".')
        return found[0], found[1]


def as_labels(where: str, train: npt.NDArray[Any], test: npt.NDArray[Any] | None, known: int | None) -> Labels:
    """Numbers from 0 on for the labels of training and test rows; at least one training row.

    Whole numbers are taken as they are; text is numbered in its order (by code points). `known`: how many classes there
    are, where they are not all there. `where` begins messages.

    Raises:
        PflbenchError: They are something else, negative, not below `known`, or, where that is None, a class has no
            training row; or there is but one class.
    """
    parts = [one_each(where, values) for values in (train, test) if values is not None and len(values)]
    both, names = _as_text(where, parts) if parts[0].dtype.kind in "US" else _as_numbers(where, parts)
    largest = int(both.max())
    classes = known or largest + 1
    if largest >= classes:
        raise PflbenchError(f"{where} has the label {names[-1]!r}, and {classes} classes are 0 to {classes - 1}.")
    trained = np.unique(both[: len(parts[0])])
    if known is None and len(trained) < classes:
        gaps = np.flatnonzero(trained != np.arange(len(trained)))
        lacking = int(gaps[0]) if len(gaps) else len(trained)
        name = names[lacking] if len(names) == classes else lacking
        if name == 0 and both.min() == 1:
            raise PflbenchError(f"{where}: the classes are numbered from 1 on; subtract 1, so that the first one is 0.")
        raise PflbenchError(
            f"{where} goes up to class {classes - 1}, and no training image is of class {name!r}: number the classes "
            f"from 0 on without a gap, or say how many there are, as in known_classes = {classes}."
        )
    if classes < 2:
        raise PflbenchError(f"{where} has one class only: there is nothing to tell apart.")
    return Labels(both, classes)


def as_groups(where: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """int64 ["rows"]: what rows belong to, whole numbers or text, numbered in their order. Raises `PflbenchError`."""
    plain = one_each(where, values)
    if plain.dtype.kind not in "biuUS":
        raise PflbenchError(f"{where} has type {plain.dtype} instead of whole numbers or text.")
    return np.unique(plain, return_inverse=True)[1].astype(np.int64)


def one_each(where: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One entry for each row, from ["rows"] or ["rows", 1]. Raises `PflbenchError` for another shape."""
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise PflbenchError(f"{where} has shape {values.shape} instead of one entry for each image.")
    return values


def _as_text(where: str, parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Numbers for labels that are text, and what they stand for. Raises `PflbenchError`."""
    if any(part.dtype.kind not in "US" for part in parts):
        raise PflbenchError(f"{where} is text for some images and something else for others.")
    try:
        names, numbers = np.unique(np.concatenate([part.astype(str) for part in parts]), return_inverse=True)
    except UnicodeDecodeError as error:
        raise PflbenchError(f"{where} has labels that are no text: {error}.") from error
    return numbers.astype(np.int64), names.tolist()


def _as_numbers(where: str, parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Labels that are whole numbers, and those that occur. Raises `PflbenchError`."""
    if any(part.dtype.kind not in "biu" for part in parts):
        types = " and ".join(dict.fromkeys(str(part.dtype) for part in parts))
        raise PflbenchError(f"{where} has type {types} instead of whole numbers (the class of each image) or text.")
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if least < 0 or most >= 2**31:
        raise PflbenchError(f"{where} has the label {least if least < 0 else most}: number the classes from 0 on.")
    numbers = np.concatenate([part.astype(np.int64) for part in parts])
    return numbers, np.unique(numbers).tolist()
