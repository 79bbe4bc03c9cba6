"""Collections of images by class that few-shot learning draws its tasks from, each as its publisher distributes it.

Files are never held against torchvision's checksums: what counts is that every class is there with enough images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.prepared import prepared
from pflbench.data.published import Known, Published, opened, reading
from pflbench.data.source import check_labels, content_hash
from pflbench.errors import DataMissing, PflbenchError

SIDE = 32
"""Pixels of an image in Meta-Dataset; the aspect ratio is not kept."""
SUFFIXES = (".jpeg", ".jpg", ".png", ".ppm")
"""Of image files; whatever else lies in a folder is passed over."""

Box = tuple[int, int, int, int]
"""Left, upper, right and lower edge, in pixels, the last two exclusive."""


class ByClass(NamedTuple):
    """All images of a source.

    Attributes:
        images: uint8 ["images", "channels", "side", "side"], the images of a class in a row, classes by name.
        counts: How many there are of each class, int64 ["classes"].
        hash: `content_hash` of the images and the numbers of their classes.
    """

    images: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]
    hash: str


class ImageSource(Published):
    """One of the collections."""

    title: ClassVar[str]
    url: ClassVar[str]
    size: ClassVar[str]
    """Of what is to be downloaded, in words."""
    where: ClassVar[str]
    """What to do with it, half a sentence in which {root} is the data root."""
    classes: ClassVar[int]
    least: ClassVar[int]
    """Images of the smallest class as published; with fewer, files are missing."""

    def load(self, root: Path) -> ByClass:
        """The images, decoded once and kept (see `prepared`).

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged, or a class has too few images.
        """
        if missing := self.missing(root):
            raise DataMissing(f"{self.title} is not there: no {', no '.join(missing)}. {self.how(root)}")
        try:
            images, counts, hash = self.read(root)
        except PflbenchError as error:
            raise type(error)(f"{self.title} is damaged: {error} {self.how(root)}") from error
        return ByClass(images, counts, str(hash))

    def read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        """What `load` returns, from files that are there, the hash as an array. Raises as `load`."""
        raise NotImplementedError

    def how(self, root: Path) -> str:
        """Where it comes from, how large it is, and where to put it; a sentence."""
        return f"Get {self.url} ({self.size}) and {self.where.format(root=root)}."

    def check(self, names: Sequence[str], counts: Sequence[int]) -> None:
        """Raise `PflbenchError` unless every class is there, with as many images as the smallest one has."""
        if len(names) != self.classes:
            raise PflbenchError(f"there are {len(names):,} of {self.classes:,} classes.")
        fewest, name = min(zip(counts, names, strict=True))
        if fewest < self.least:
            raise PflbenchError(f"{name} has {fewest} of at least {self.least} images.")


class FileSource(ImageSource):
    """A source of image files."""

    mode: ClassVar[Literal["L", "RGB"]] = "RGB"
    """Gray or color."""

    def __init__(self, side: int = SIDE):
        self.side = side

    def listed(self, root: Path) -> dict[str, list[Path]]:
        """The files of each class, in the order of the pool. Raises `PflbenchError`."""
        raise NotImplementedError

    def boxes(self, root: Path) -> dict[Path, Box]:
        """What the files are cropped to, where they are. Raises `PflbenchError`."""
        return {}

    def lists(self, root: Path) -> list[Path]:
        """The files that `listed` and `boxes` read."""
        return []

    def read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        by_class = self.listed(root)
        counts = np.array([len(files) for files in by_class.values()], dtype=np.int64)
        self.check(list(by_class), counts.tolist())
        files = [file for some in by_class.values() for file in some]
        boxes = self.boxes(root)

        def make() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.str_]]:
            images = decoded(files, self.mode, self.side, boxes)
            return images, hashed(images, counts)

        images, hash = prepared(
            f"{self.title} as {self.mode}, {self.side} pixels: 1", [*self.lists(root), *files], make
        )
        return images, counts, hash


class Folders(FileSource):
    """A source with a folder for each class.

    Attributes:
        places: Where these may lie below the data root; the first that exists counts.
    """

    places: ClassVar[tuple[str, ...]]

    def parts(self, root: Path) -> dict[Path, Known]:
        there = [root / place for place in self.places if (root / place).is_dir()]
        return {there[0] if there else root / self.places[0]: Known()}

    def listed(self, root: Path) -> dict[str, list[Path]]:
        (folder,) = self.parts(root)
        return {name.name: images_in(name) for name in folders_in(folder)}


class Aircraft(FileSource):
    """FGVC-Aircraft: 100 variants, 100 images each, cropped to the aircraft's bounding box as Meta-Dataset does.

    `data/images/*.jpg`, named by `images_variant_{train,val,test}.txt` and `images_box.txt`.
    """

    title: ClassVar = "FGVC-Aircraft"
    url: ClassVar = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"
    size: ClassVar = "2.8 GB"
    where: ClassVar = "unpack it in {root}, so that {root}/fgvc-aircraft-2013b/data/images is there"
    classes: ClassVar = 100
    least: ClassVar = 100

    def parts(self, root: Path) -> dict[Path, Known]:
        return {root / "fgvc-aircraft-2013b" / "data" / "images": Known(), **dict.fromkeys(self.lists(root), Known())}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import FGVCAircraft

        FGVCAircraft(root, download=True)

    def lists(self, root: Path) -> list[Path]:
        names = [*(f"images_variant_{split}.txt" for split in ("train", "val", "test")), "images_box.txt"]
        return [root / "fgvc-aircraft-2013b" / "data" / name for name in names]

    def listed(self, root: Path) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in self.lists(root)[:-1]:
            for image, variant in _lines(path, 2):
                found.setdefault(variant, []).append(path.parent / "images" / f"{image}.jpg")
        return {variant: sorted(found[variant]) for variant in sorted(found)}

    def boxes(self, root: Path) -> dict[Path, Box]:
        path = self.lists(root)[-1]
        found: dict[Path, Box] = {}
        for image, *edges in _lines(path, 5):
            with reading(f"{path} is no list of images and boxes"):
                left, upper, right, lower = map(int, edges)
            if not (0 <= left < right and 0 <= upper < lower):
                raise PflbenchError(f"{path} has no box for {image}, but {' '.join(edges)}.")
            found[path.parent / "images" / f"{image}.jpg"] = left, upper, right, lower
        for files in self.listed(root).values():
            for file in files:
                if file not in found:
                    raise PflbenchError(f"{path} has no box for {file.stem}.")
        return found


class Birds(Folders):
    """Caltech-UCSD Birds 200, 2011: 200 species, 41 to 60 images each, not cropped; `images/<class>/*.jpg`."""

    title: ClassVar = "CUB-200-2011"
    url: ClassVar = "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz"
    size: ClassVar = "1.2 GB"
    where: ClassVar = "unpack it in {root}, so that {root}/CUB_200_2011/images is there"
    classes: ClassVar = 200
    least: ClassVar = 41
    places: ClassVar = ("CUB_200_2011/images",)


class Textures(Folders):
    """Describable Textures: 47 classes, 120 images each; `images/<class>/*.jpg`."""

    title: ClassVar = "DTD (Describable Textures)"
    url: ClassVar = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"
    size: ClassVar = "0.6 GB"
    where: ClassVar = "unpack it in {root}, so that {root}/dtd/images is there"
    classes: ClassVar = 47
    least: ClassVar = 120
    places: ClassVar = ("dtd/images", "dtd/dtd/images")

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import DTD

        DTD(root, download=True)


class TrafficSigns(Folders):
    """The training images of the German Traffic Sign Recognition Benchmark: 43 classes, 210 to 2250 images each.

    Parts of it are in use, such as a few frames of each track, so one image of a class is enough.
    """

    title: ClassVar = "GTSRB (traffic signs)"
    url: ClassVar = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/GTSRB-Training_fixed.zip"
    size: ClassVar = "0.2 GB"
    where: ClassVar = (
        "unpack it in {root}/gtsrb, so that {root}/gtsrb/GTSRB/Training/<class>/*.ppm are there (or put images into "
        "{root}/gtsrb/train/<class>)"
    )
    classes: ClassVar = 43
    least: ClassVar = 1
    places: ClassVar = ("gtsrb/GTSRB/Training", "gtsrb/train")

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import GTSRB

        GTSRB(root, split="train", download=True)


class Flowers(FileSource):
    """VGG Flowers: 102 classes, 40 to 258 images each; `jpg/image_*.jpg`, with labels from 1 in `imagelabels.mat`."""

    title: ClassVar = "VGG Flowers 102"
    url: ClassVar = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/102flowers.tgz and imagelabels.mat beside it"
    size: ClassVar = "0.3 GB"
    where: ClassVar = (
        "unpack the one into {root}/flowers-102, so that its folder jpg is there, and put the other beside it"
    )
    classes: ClassVar = 102
    least: ClassVar = 40

    def parts(self, root: Path) -> dict[Path, Known]:
        return {root / "flowers-102" / "jpg": Known(), **dict.fromkeys(self.lists(root), Known())}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import Flowers102

        Flowers102(root, download=True)

    def lists(self, root: Path) -> list[Path]:
        return [root / "flowers-102" / "imagelabels.mat"]

    def listed(self, root: Path) -> dict[str, list[Path]]:
        from scipy.io import loadmat

        (path,) = self.lists(root)
        with reading(f"Cannot read {path}"):
            labels = np.asarray(loadmat(path)["labels"]).reshape(-1).astype(np.int64) - 1
        check_labels(path, labels, self.classes)
        files: dict[str, list[Path]] = {}
        for label in np.unique(labels).tolist():
            numbers = np.flatnonzero(labels == label) + 1
            files[f"class {label + 1}"] = [path.parent / "jpg" / f"image_{number:05}.jpg" for number in numbers]
        return files


class Characters(FileSource):
    """Omniglot: 1,623 handwritten characters of 50 alphabets, 20 images each, black on white.

    `images_background` and `images_evaluation`, both of them: `<alphabet>/<character>/*.png`.
    """

    title: ClassVar = "Omniglot"
    url: ClassVar = (
        "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_background.zip and "
        "images_evaluation.zip beside it"
    )
    size: ClassVar = "16 MB"
    where: ClassVar = "unpack both in {root}/omniglot-py"
    classes: ClassVar = 1623
    least: ClassVar = 20
    mode: ClassVar = "L"

    def parts(self, root: Path) -> dict[Path, Known]:
        folder = root / "omniglot-py"
        return {folder / "images_background": Known(), folder / "images_evaluation": Known()}

    def fetch(self, root: Path) -> None:
        from torchvision.datasets import Omniglot

        for background in (True, False):
            Omniglot(root, background=background, download=True)

    def listed(self, root: Path) -> dict[str, list[Path]]:
        return {f"{folder.parent.name}/{folder.name}": images_in(folder) for folder in self.characters(root)}

    def characters(self, root: Path) -> list[Path]:
        """The folder of each class, in the order of the pool. Raises `PflbenchError`."""
        alphabets = [alphabet for part in self.parts(root) for alphabet in folders_in(part)]
        return [character for alphabet in alphabets for character in folders_in(alphabet)]


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder by name, but for hidden ones. Raises `PflbenchError` if it cannot be read."""
    return [path for path in _entries(folder) if path.is_dir()]


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder by name, but for hidden ones. Raises `PflbenchError` if it cannot be read."""
    return [path for path in _entries(folder) if path.suffix.lower() in SUFFIXES]


def _entries(folder: Path) -> list[Path]:
    with reading(f"Cannot look into {folder}"):
        return sorted((path for path in folder.iterdir() if path.name[0] != "."), key=lambda path: path.name)


def decoded(
    files: Iterable[Path], mode: Literal["L", "RGB"], side: int, boxes: dict[Path, Box] | None = None
) -> npt.NDArray[np.uint8]:
    """Image files, cropped to their boxes if they have one, as uint8 ["files", "channels", "side", "side"].

    Raises `PflbenchError` naming a file that is no image, or a damaged one.
    """
    return np.stack([shrunk(file, mode, side, (boxes or {}).get(file)) for file in files])


def shrunk(
    image: Path | npt.NDArray[np.uint8], mode: Literal["L", "RGB"], side: int, box: Box | None = None
) -> npt.NDArray[np.uint8]:
    """An image, resized bilinearly (with Pillow's antialiasing), uint8 ["channels", "side", "side"].

    Raises `PflbenchError` if it is no image, or a damaged one.
    """
    from PIL.Image import Resampling

    found = opened(image, mode)
    if box is not None:
        found = found.crop(box)
    pixels = np.asarray(found.resize((side, side), Resampling.BILINEAR))
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def hashed(images: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    """The hash of a `ByClass`, as an array of no dimensions."""
    return np.array(content_hash(images, np.repeat(np.arange(len(counts), dtype=np.int64), counts)))


def _lines(path: Path, columns: int) -> list[list[str]]:
    """The lines of a text file, cut at their first blanks; in the first column stands an image's number."""
    with reading(f"{path} is no list of images"):
        text = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line.split(None, columns - 1) for line in text if line]
    for line in lines:
        if len(line) != columns or not line[0].isdigit():
            raise PflbenchError(f"{path} has a line that names no image: {' '.join(line)[:80]!r}.")
    return lines
