"""User images: an .npz file, folders of images, PFLlib's clients, and Hugging Face's saved datasets."""

from __future__ import annotations

import importlib
import warnings
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.content import files_below
from pflbench.data.pixels import Pixels, Shape, images_by_class, resized, statistics, user_pixels
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Normalization, Source
from pflbench.data.unpickle import unpickled_array
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.hyper import hyper

FORMS = (
    "Forms of user images: image-folder (a folder of images for each class, also below train and test), arrays (one "
    ".npz file with train_images and train_labels), clients-folder (PFLlib's train/CLIENT.npz and test/CLIENT.npz with "
    "x and y), hf-disk (a folder that save_to_disk of Hugging Face's datasets wrote). Convert the data, or unpack an "
    "archive"
)
"""Advice of errors on data in another form."""


TESTS = ("test", "val", "valid", "validation")
"""Names of a test split; the first one present counts."""


class Content(NamedTuple):
    """Arrays that a dataset reads from its files, each with one entry for each image.

    Attributes:
        images: uint8 ["pool", "channels", "height", "width"], resized; training images first.
        labels: Whole numbers, or text.
        clients: Owners, likewise; empty if there are none.
        sizes: int64 [2], the numbers of test images and of classes; no classes: those of the labels.
    """

    images: Pixels
    labels: npt.NDArray[Any]
    clients: npt.NDArray[Any]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class UserImages:
    """Base of a dataset of user files. Labels are whole numbers from 0 on, or text, numbered in its order."""

    size: int | None = hyper(None, "Height and width that every image is stretched to, in pixels.", least=1)
    mean: float | str | None = hyper(None, 'Mean of images in [0, 1], a number or one for each channel: "0.5,0.4,0.4".')
    std: float | str | None = hyper(None, "Standard deviation that normalization divides by, likewise.", above=0)
    normalize: Literal["data"] | None = hyper(None, "data: mean and std are those of the training images.")

    seeded: ClassVar[bool] = False
    name: ClassVar[str]
    option: ClassVar = "root"
    """Option with the file or folder."""

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None) or (self.normalize and self.mean is not None):
            raise UsageError(f"{self.name}: set mean and std, or normalize alone.")
        numbers = [_numbers(option) for option in (self.mean, self.std) if option is not None]
        if numbers and not min(numbers[1]) > 0:
            raise UsageError(f"{self.name}: std must be greater than 0, not {self.std}.")

    @property
    def location(self) -> Path:
        """The file or folder that the dataset reads."""
        path: Path = vars(self)[self.option]
        return path

    def read(self, files: list[Path]) -> Content:
        """Content of the files; raises whatever reading them raises."""
        raise NotImplementedError

    @cached_property
    def content(self) -> Content:
        """What `read` returns. Raises `DataMissing` or `PflbenchError`."""
        if not self.location.exists():
            raise DataMissing(f"{str(self.location)!r} is missing. Correct the path of your images.")
        with file_errors(f"{self.location} cannot be read as {self.name}. {FORMS}"):
            files = sorted(files_below(self.location)) if self.location.is_dir() else [self.location]
            return Content(*prepared(f"{self!r}: 3", files, lambda: self.read(files)))

    @cached_property
    def pool(self) -> Source:
        """The pool, the same for every seed. Raises as `content`."""
        images, raw, clients, (test, known) = self.content
        with file_errors(f"{self.location} cannot be read as {self.name}. {FORMS}"):
            labels, classes = _numbered(raw, len(raw) - int(test), int(known))
            if len(clients) and clients.dtype.kind not in "biuUS":
                raise ValueError(f"clients are {clients.dtype}, not whole numbers or text")
            kind = np.unique(clients, return_inverse=True)[1].astype(np.int64) if len(clients) else None
            normalization = self._normalization(images[: len(images) - int(test)])
            return Source.of(images, labels, classes, kind, test=int(test), normalization=normalization)

    def _normalization(self, images: Pixels) -> Normalization | None:
        if self.normalize:
            return statistics(images)
        if self.mean is None or self.std is None:
            return None
        mean, std, channels = _numbers(self.mean), _numbers(self.std), images.shape[1]
        if {len(mean), len(std)} - {1, channels}:
            raise UsageError(f"{self.name}: mean and std need one number, or one for each of {channels} channel(s).")
        return Normalization(mean * (channels // len(mean)), std * (channels // len(std)))

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, training rows first. Raises `DataMissing` or `PflbenchError`."""
        return self.pool

    @property
    def shape(self) -> Shape:
        """(channels, height, width). Raises as `content`, as do `classes` and `examples`."""
        channels, height, width = self.content.images.shape[1:]
        return channels, height, width

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.pool.classes

    @property
    def examples(self) -> int:
        """Number of training images."""
        return len(self.content.labels) - int(self.content.sizes[0])

    def files(self, root: Path) -> list[Path]:
        """Path that is read."""
        return [self.location]

    def fetch(self, root: Path) -> None:
        """Raise `DataMissing` unless the path exists: nothing can be downloaded."""
        _ = self.content

    def status(self, root: Path) -> str:
        """One line, from the presence of the file or folder."""
        return f"{'ready' if self.location.exists() else 'missing'}: {self.location}"


def _numbers(text: float | str) -> tuple[float, ...]:
    """An option that is one number, or several with commas between them. Raises `ValueError`."""
    return tuple(float(part) for part in str(text).split(","))


def _numbered(labels: npt.NDArray[Any], training: int, known: int) -> tuple[npt.NDArray[np.int64], int]:
    """Labels as numbers from 0 on, and the number of classes; 0 for `known`: it is unknown. Raises `ValueError`."""
    names = None
    if labels.dtype.kind in "US":
        names, labels = np.unique(labels, return_inverse=True)
    if labels.dtype.kind not in "biu":
        raise ValueError(f"labels are {labels.dtype}, not whole numbers or text")
    numbers = labels.astype(np.int64)
    classes = known or int(numbers.max()) + 1
    if classes == 1:
        raise ValueError("all labels are 0, and there must be two classes at least")
    if numbers.min() < 0 or numbers.max() >= classes:
        raise ValueError(f"labels go from {numbers.min()} to {numbers.max()}, not from 0 to {classes - 1}")
    if not known and len(present := np.unique(numbers[:training])) < classes:
        gap = int(np.append(present != np.arange(len(present)), True).argmax())
        if names is not None:
            raise ValueError(f"class {names[gap]!s} has test images and no training image")
        raise ValueError(
            f"class {gap} has no training image: number the classes from 0 on without a gap, or set known_classes"
        )
    return numbers, classes


def _pixels(values: npt.NDArray[Any], levels: str | None, size: int | None) -> Pixels:
    """Pixels of images uint8 or of floats between two `levels`, by default 0 and 1, [n, c, h, w] or [n, h, w]."""
    images = values[:, None] if values.ndim == 3 else values
    if images.ndim != 4 or not all(images.shape):
        raise ValueError(f"images have shape {values.shape}, not [images, height, width] and an axis of channels")
    if images.dtype != np.uint8:
        low, high = _numbers(levels or "0,1")
        if images.dtype.kind != "f" or not (images.min() >= low and images.max() <= high):
            raise ValueError(
                f"images are {images.dtype} from {images.min():g} to {images.max():g}, not uint8 or floats from "
                f'{low:g} to {high:g}: set the values of black and white, as in range = "-1,1", or save them as uint8'
            )
        floats, images = images, np.empty(images.shape, np.uint8)
        for row, image in enumerate(floats):  # a copy of all of them as float64 takes eight times the memory
            images[row] = np.rint((image.astype(np.float64) - low) * (255 / (high - low)))
    return resized(images, size)


@dataclass(frozen=True, kw_only=True)
class Arrays(UserImages):
    """Your own images from one .npz file, with the arrays of MedMNIST: `train_images` and `train_labels`.

    Images are [n, height, width] or [n, height, width, channels], uint8, or floats from 0 to 1, which are rounded to
    255 levels. Optional: `test_images` and `test_labels`, the test split; `train_clients` and `test_clients`, the owner
    of each row, numbers or text. Other arrays are ignored, and nothing is unpickled.
    """

    file: Path = field(metadata={"help": "The .npz file."})
    channels_first: bool | None = hyper(None, "Images are [n, channels, height, width].")
    range: str | None = hyper(None, 'Floats that are black and white, "-1,1"; none: 0 and 1.')
    known_classes: int | None = hyper(None, "Number of classes, if a class has no training image.", least=2)

    name: ClassVar = "arrays"
    option: ClassVar = "file"

    def read(self, files: list[Path]) -> Content:
        """See `UserImages`."""
        if not zipfile.is_zipfile(self.file):
            raise ValueError("it is no .npz file, which numpy.savez writes")
        with self.file.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            parts = ["train", "test"] if "test_images" in arrays else ["train"]
            images = [arrays[f"{part}_images"] for part in parts]
            rows = list(map(len, images))
            labels = [_per_image(arrays, f"{part}_labels", n) for part, n in zip(parts, rows, strict=True)]
            owned = "train_clients" in arrays
            clients = [_per_image(arrays, f"{p}_clients", n) for p, n in zip(parts, rows, strict=True) if owned]
        if not self.channels_first:
            images = [some.transpose(0, 3, 1, 2) if some.ndim == 4 else some for some in images]
        pixels = np.concatenate([_pixels(some, self.range, self.size) for some in images])
        test = len(labels[1]) if len(parts) > 1 else 0
        owners = np.concatenate(clients) if clients else np.empty(0)
        return Content(pixels, np.concatenate(labels), owners, np.array([test, self.known_classes or 0]))


def _per_image(arrays: Any, name: str, rows: int) -> npt.NDArray[Any]:
    """An array with one entry for each image. Raises `ValueError`."""
    column: npt.NDArray[Any] = arrays[name]
    if column.size != rows:
        raise ValueError(f"{name} has shape {column.shape}, not one entry for each of {rows} images")
    return column.reshape(rows)


@dataclass(frozen=True, kw_only=True)
class ClientsFolder(UserImages):
    """Your own images of each client from `train/CLIENT.npz` and `test/CLIENT.npz`, as PFLlib writes them.

    A file has the arrays `x` (images [n, channels, height, width] or [n, height, width]) and `y` (labels), or one array
    `data`, a dictionary of both; of its pickle nothing but arrays is read. `range = "-1,1"` suits most of PFLlib's
    folders. Without `test` there is no test split.

    `kind` is the client, so the partition natural gives each one its rows, and with `query = "partition"` its
    test part. Clients are numbered in the order of their names, or as numbers if all names are numbers.
    """

    root: Path = field(metadata={"help": "The folder."})
    range: str | None = hyper(None, 'Floats that are black and white, "-1,1"; none: 0 and 1.')
    known_classes: int | None = hyper(None, "Number of classes, if a class has no training image.", least=2)

    name: ClassVar = "clients-folder"

    def read(self, files: list[Path]) -> Content:
        """See `UserImages`."""
        train, test = ({path.stem: path for path in (self.root / part).glob("*.npz")} for part in ("train", "test"))
        if unlike := sorted(test.keys() - train.keys()):
            raise PflbenchError(
                f"{self.root} has {len(unlike)} clients with a test file and no training file, such as {unlike[0]}: "
                "such clients are not supported, as nothing of them is personalized. Split each client's images in two."
            )
        order = sorted(train, key=int if all(map(str.isdecimal, train)) else str)
        images, labels, clients, tested = [], [], [], 0
        for part in (train, test):
            for number, name in enumerate(order):
                x, y = _arrays(part[name]) if name in part else (np.empty(0), np.empty(0))
                if not len(y):
                    continue
                with file_errors(f"{part[name]} cannot be read"):
                    images.append(_pixels(x, self.range, self.size))
                labels.append(y.reshape(len(x)))
                clients.append(np.full(len(y), number))
                tested += len(y) if part is test else 0
        sizes = np.array([tested, self.known_classes or 0])
        return Content(np.concatenate(images), np.concatenate(labels), np.concatenate(clients), sizes)


def _arrays(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Images `x` and labels `y` of a client's file."""
    with file_errors(f"{path} does not have images x and labels y. {FORMS}"):
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if arrays.files != ["data"]:
                return arrays["x"], arrays["y"]
        data = unpickled_array(path, "data")
        x, y = (np.asarray(data[key]) for key in ("x", "y"))
        x, y = (np.array(one.tolist()) if one.dtype.hasobject else one for one in (x, y))
        return x, y


@dataclass(frozen=True, kw_only=True)
class ImageFolder(UserImages):
    """Your own images from a folder with a folder for each class, or with `train` and `test` that have one each.

    Classes are numbered in the order of their folders' names. `val` in place of `test` will do. Images are shown
    upright, as their EXIF data say, and transparency on white. They are decoded once and cached.
    """

    root: Path = field(metadata={"help": "The folder."})
    channels: Literal[1, 3] | None = hyper(None, "1: gray, 3: colored; none: gray if all images are, else colored.")

    name: ClassVar = "image-folder"

    def read(self, files: list[Path]) -> Content:
        """See `UserImages`. Warns of files that Pillow does not read."""
        train = self.root / "train" if (self.root / "train").is_dir() else self.root
        tests = [self.root / name for name in TESTS if train != self.root and (self.root / name).is_dir()]
        several = [self._listed(folder) for folder in (train, *tests[:1])]
        if not several[0]:
            raise ValueError(f"{train} has no image in a folder of a class")
        pictures, labels = zip(*(one for some in several for one in some), strict=True)
        images = user_pixels(pictures, self.size, self.channels)
        return Content(images, np.array(labels), np.empty(0), np.array([len(pictures) - len(several[0]), 0]))

    def _listed(self, folder: Path) -> list[tuple[Path, str]]:
        """Images of a folder and their classes, by class and by name."""
        listed = [(path, name) for name, paths in images_by_class(folder).items() for path in paths]
        paths = {path for path, _ in listed}
        if deep := [path for path in paths if len(path.relative_to(folder).parts) - (path.parent.name == "images") > 2]:
            raise ValueError(f"{deep[0].parent} lies in the folder of a class")
        folders = {one.name: one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(".")}
        if empty := folders.keys() - {name for _, name in listed}:
            raise ValueError(f"{folders[min(empty)]} has no image that Pillow reads")
        if unread := sorted(set(files_below(folder)) - paths):
            kinds = ", ".join(sorted({path.suffix.lower() or "no suffix" for path in unread}))
            text = f"{folder}: Pillow reads {len(listed)} files; {len(unread)} others are not used ({kinds}), such as"
            warnings.warn(f"{text} {unread[0]}.", stacklevel=2)
        return listed


@dataclass(frozen=True, kw_only=True)
class HfDisk(UserImages):
    """Your own images as `save_to_disk` of the Hugging Face library datasets writes them (`pip install pflbench[hf]`).

    A `Dataset`, which has no test split, or a `DatasetDict` with the splits `train` and `test`. Images, of the type
    `Image`, are shown upright, as their EXIF data say, and transparency on white.
    """

    path: Path = field(metadata={"help": "The folder that was saved."})
    image: str | None = hyper(None, "Column of the images; none: the only one of type Image.")
    label: str | None = hyper(None, "Column of the labels; none: the only one of type ClassLabel.")
    client: str | None = hyper(None, "Column of each image's owner, numbers or text: the kinds; none: no kinds.")
    train: str | None = hyper(None, "Training split; none: train, or the only one.")
    test: str | None = hyper(None, "Test split; none: test or validation, if present.")
    channels: Literal[1, 3] | None = hyper(None, "1: gray, 3: colored; none: gray if all images are, else colored.")

    name: ClassVar = "hf-disk"
    option: ClassVar = "path"

    def files(self, root: Path) -> list[Path]:
        """All files of the folder but those that the library caches."""
        return [path for path in files_below(self.path) if not path.name.startswith(("cache-", "tmp"))]

    def read(self, files: list[Path]) -> Content:
        """See `UserImages`."""
        try:
            library = importlib.import_module("datasets")
        except ImportError as error:
            raise PflbenchError("hf-disk needs the library datasets: pip install 'pflbench[hf]'.") from error
        chosen = self._chosen(library.load_from_disk(str(self.path)))
        for split in chosen:
            split.data.table.validate(full=True)  # invalid values can end the process when they are read
        features = chosen[0].features
        image, label = _column(features, "Image", self.image), _column(features, "ClassLabel", self.label)
        raw = library.Image(decode=False)
        pictures = [row["bytes"] for split in chosen for row in split.cast_column(image, raw)[image]]
        labels, clients = (
            np.concatenate([np.array(list(split[name])) for split in chosen]) if name else np.empty(0)
            for name in (label, self.client)
        )
        sizes = np.array([sum(map(len, chosen[1:])), getattr(features[label], "num_classes", 0)])
        return Content(user_pixels(pictures, self.size, self.channels), labels, clients, sizes)

    def _chosen(self, saved: Any) -> list[Any]:
        """The training split, and the test split if there is one."""
        splits = saved if isinstance(saved, dict) else {"train": saved}
        train = self.train or (next(iter(splits)) if len(splits) == 1 else "train")
        test = self.test or next((name for name in TESTS if name in splits and name != train), None)
        return [splits[name] for name in (train, test) if name is not None]


def _column(features: Any, kind: str, chosen: str | None) -> str:
    """Name of a column: `chosen`, else the only one of this type. Raises `PflbenchError`."""
    columns = [name for name, one in features.items() if type(one).__name__ == kind] if chosen is None else [chosen]
    if len(columns) != 1 or columns[0] not in features:
        option = "image" if kind == "Image" else "label"
        raise PflbenchError(f'Set the column of the {option}s, as in {option} = "…": one of {", ".join(features)}.')
    return str(columns[0])
