"""Collections of images by class, each as its publisher distributes it; few-shot learning draws its tasks from them.

Files are never held against torchvision's checksums: what counts is that every class is there with enough images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.cifar import CIFAR100
from pflbench.data.numpy_files import read_arrays
from pflbench.data.pixels import Box, Picture, decode_all, files_as_pictures, folders_in, images_in
from pflbench.data.prepared import prepared
from pflbench.data.published import Download, Expected, Published, file_errors, warn_unofficial
from pflbench.data.source import check_labels, content_hash
from pflbench.errors import DataMissing, PflbenchError

SIDE = 32
"""Pixels of an image in Meta-Dataset; the aspect ratio is not kept."""


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


Prepared = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]
"""Fields of a `ByClass`, the hash as an array of no dimensions."""


def by_class(images: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64]) -> Prepared:
    """Images and counts with their hash."""
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return images, counts, np.array(content_hash(images, labels))


class ImageSource(Published):
    """One of the collections."""

    title: ClassVar[str]
    url: ClassVar[str]
    size: ClassVar[str]
    """Of what is to be downloaded, in words."""
    where: ClassVar[str]
    """Advice on it, half a sentence in which {root} is the data root."""
    classes: ClassVar[int]
    least: ClassVar[int]
    """Images of the smallest class as published; with fewer, files are missing."""

    def load(self, root: Path) -> ByClass:
        """The images, decoded once and kept (see `prepared`).

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged, or a class has too few images.
        """
        self.require(root)
        try:
            images, counts, hash = self.read(root)
        except PflbenchError as error:
            raise type(error)(f"{self.title} is damaged: {error} {self.how(root)}") from error
        return ByClass(images, counts, str(hash))

    def read(self, root: Path) -> Prepared:
        """Fields of `load`'s result, from files that are there. Raises as `load`."""
        raise NotImplementedError

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """See `Published`."""
        if failure:
            return DataMissing(f"Downloading {self.title} failed ({failure}). {self.how(root)}")
        return DataMissing(f"{self.title} is not there: no {', no '.join(self.missing(root))}. {self.how(root)}")

    def how(self, root: Path) -> str:
        """Sentence about its address, its size, and the folder to put it into."""
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

    def listed(self, root: Path) -> dict[str, list[Picture]]:
        """The images of each class, in the order of the pool. Raises `PflbenchError`."""
        raise NotImplementedError

    def read(self, root: Path) -> Prepared:
        listed = self.listed(root)
        counts = [len(pictures) for pictures in listed.values()]
        self.check(list(listed), counts)
        pictures = [picture for several in listed.values() for picture in several]
        lists = [path for path in self.parts(root) if path.is_file()]
        shape = (1 if self.mode == "L" else 3, SIDE, SIDE)
        recipe = f"{self.title} as {self.mode}, {SIDE} pixels: 2"
        files = [*lists, *(Path(picture.where) for picture in pictures)]
        images, _, hash = prepared(recipe, files, lambda: by_class(decode_all(pictures, shape), np.array(counts)))
        return images, np.array(counts, dtype=np.int64), hash


class Folders(FileSource):
    """A source with a folder for each class.

    Attributes:
        places: Where these may lie below the data root; the first that exists counts.
    """

    places: ClassVar[tuple[str, ...]]

    def parts(self, root: Path) -> dict[Path, Expected]:
        places = [root / place for place in self.places]
        return {next((path for path in places if path.is_dir()), places[0]): Expected()}

    def listed(self, root: Path) -> dict[str, list[Picture]]:
        (folder,) = self.parts(root)
        return {name.name: files_as_pictures(images_in(name)) for name in folders_in(folder)}


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

    needs: ClassVar = dict.fromkeys(
        (
            "fgvc-aircraft-2013b/data/images",
            "fgvc-aircraft-2013b/data/images_variant_train.txt",
            "fgvc-aircraft-2013b/data/images_variant_val.txt",
            "fgvc-aircraft-2013b/data/images_variant_test.txt",
            "fgvc-aircraft-2013b/data/images_box.txt",
        ),
        Expected(),
    )
    downloads: ClassVar = (Download("FGVCAircraft"),)

    def listed(self, root: Path) -> dict[str, list[Picture]]:
        folder, *lists, last = self.parts(root)
        boxes = self._boxes(last)
        found: dict[str, list[Picture]] = {}
        for path in lists:
            for image, variant in _lines(path, 2):
                if image not in boxes:
                    raise PflbenchError(f"{last} has no box for {image}.")
                file = folder / f"{image}.jpg"
                found.setdefault(variant, []).append(Picture(str(file), file, boxes[image]))
        return {variant: sorted(found[variant]) for variant in sorted(found)}

    def _boxes(self, path: Path) -> dict[str, Box]:
        """The box of each image in a list. Raises `PflbenchError`."""
        found: dict[str, Box] = {}
        for image, *edges in _lines(path, 5):
            with file_errors(f"{path} is no list of images and boxes"):
                left, upper, right, lower = map(int, edges)
            if not (0 <= left < right and 0 <= upper < lower):
                raise PflbenchError(f"{path} has no box for {image}, but {' '.join(edges)}.")
            found[image] = left, upper, right, lower
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
    downloads: ClassVar = (Download("DTD"),)


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
    downloads: ClassVar = (Download("GTSRB", options={"split": "train"}),)


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

    needs: ClassVar = dict.fromkeys(("flowers-102/jpg", "flowers-102/imagelabels.mat"), Expected())
    downloads: ClassVar = (Download("Flowers102"),)

    def listed(self, root: Path) -> dict[str, list[Picture]]:
        from scipy.io import loadmat

        folder, path = self.parts(root)
        with file_errors(f"Cannot read {path}"):
            labels = np.asarray(loadmat(path)["labels"]).reshape(-1).astype(np.int64) - 1
        check_labels(path, labels, self.classes)
        found: dict[str, list[Picture]] = {}
        for label in np.unique(labels).tolist():
            files = (folder / f"image_{number:05}.jpg" for number in np.flatnonzero(labels == label) + 1)
            found[f"class {label + 1}"] = files_as_pictures(files)
        return found


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

    needs: ClassVar = dict.fromkeys(("omniglot-py/images_background", "omniglot-py/images_evaluation"), Expected())
    downloads: ClassVar = tuple(Download("Omniglot", options={"background": part}) for part in (True, False))

    def listed(self, root: Path) -> dict[str, list[Picture]]:
        alphabets = [alphabet for part in self.parts(root) for alphabet in folders_in(part)]
        characters = [character for alphabet in alphabets for character in folders_in(alphabet)]
        return {f"{path.parent.name}/{path.name}": files_as_pictures(images_in(path)) for path in characters}


CIFAR_FS = tuple(
    (
        "apple aquarium_fish bear bee bottle bowl boy bridge bus can castle caterpillar chair clock cloud cockroach "
        "couch cup dinosaur dolphin elephant forest girl hamster house kangaroo keyboard lawn_mower lion lizard "
        "lobster mountain mouse mushroom oak_tree orange orchid palm_tree pear pine_tree plate porcupine possum rabbit "
        "raccoon ray road seal shrew skunk skyscraper snake spider squirrel streetcar sunflower tank tiger train trout "
        "tulip turtle willow_tree wolf"
    ).split()
)
"""The training classes of CIFAR-FS, as torchmeta 1.8.0 lists them."""
FINE = sorted(
    [
        *CIFAR_FS,
        *(
            "baby beaver bed beetle bicycle butterfly camel cattle chimpanzee crab crocodile flatfish fox lamp leopard "
            "man maple_tree motorcycle otter pickup_truck plain poppy rocket rose sea shark snail sweet_pepper table "
            "telephone television tractor wardrobe whale woman worm"
        ).split(),
    ]
)
"""All classes of CIFAR-100; fine labels are their order."""
FC100 = tuple(
    (
        "fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture "
        "large_man-made_outdoor_things large_natural_outdoor_scenes reptiles trees vehicles_1 vehicles_2"
    ).split()
)
"""The training superclasses of FC100, as torchmeta 1.8.0 lists them."""
COARSE = sorted(
    [
        *FC100,
        *(
            "aquatic_mammals insects large_carnivores large_omnivores_and_herbivores medium_mammals "
            "non-insect_invertebrates people small_mammals"
        ).split(),
    ]
)
"""All superclasses of CIFAR-100; coarse labels are their order."""


class FromCIFAR100(ImageSource):
    """Some classes of CIFAR-100, of both its training and its test images: 600 each."""

    url: ClassVar = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz (or cifar-100-binary.tar.gz beside it)"
    size: ClassVar = "0.2 GB"
    where: ClassVar = "unpack it in {root}"
    least: ClassVar = 600
    chosen: ClassVar[tuple[str, ...]]
    """The names of the classes, or of superclasses, which stand for all their classes."""
    level: ClassVar[Literal["fine", "coarse"]]

    def parts(self, root: Path) -> dict[Path, Expected]:
        return CIFAR100().parts(root)

    def missing(self, root: Path) -> list[str]:
        return CIFAR100().missing(root)

    def download(self, root: Path) -> None:
        CIFAR100().download(root)

    def read(self, root: Path) -> Prepared:
        parts = self.parts(root)

        def make() -> Prepared:
            images, labels = CIFAR100().batches(parts)
            coarse, fine = labels.T
            wanted = [(FINE if self.level == "fine" else COARSE).index(name) for name in self.chosen]
            rows = np.flatnonzero(np.isin(fine if self.level == "fine" else coarse, wanted))
            rows = rows[np.argsort(fine[rows], kind="stable")]
            names, counts = np.unique(fine[rows], return_counts=True)
            self.check([FINE[name] for name in names], counts.tolist())
            return by_class(images[rows], counts.astype(np.int64))

        warn_unofficial(parts)
        images, counts, hash = prepared(f"{self.title}: 1", list(parts), make)
        return images, counts, hash


class CIFARFS(FromCIFAR100):
    """The 64 training classes of CIFAR-FS."""

    title: ClassVar = "CIFAR-FS (of CIFAR-100)"
    classes: ClassVar = 64
    chosen: ClassVar = CIFAR_FS
    level: ClassVar = "fine"


class FewShotCIFAR100(FromCIFAR100):
    """FC100: the 60 classes of its 12 training superclasses."""

    title: ClassVar = "FC100 (of CIFAR-100)"
    classes: ClassVar = 60
    chosen: ClassVar = FC100
    level: ClassVar = "coarse"


class MiniImageNet(Folders):
    """The training split of mini-ImageNet: 64 classes, 600 images each.

    learn2learn's `mini-imagenet-cache-train.pkl`, in the data root or in `mini-imagenet`; or a folder for each class,
    in `mini-imagenet/train` or in `mini-imagenet`.
    """

    title: ClassVar = "mini-ImageNet (training split)"
    url: ClassVar = "https://zenodo.org/record/7978538/files/mini-imagenet-cache-train.pkl"
    size: ClassVar = "0.8 GB"
    where: ClassVar = (
        "put it into {root}/mini-imagenet (or the folders of its 64 classes into {root}/mini-imagenet/train)"
    )
    classes: ClassVar = 64
    least: ClassVar = 600

    def parts(self, root: Path) -> dict[Path, Expected]:
        folder, file = root / "mini-imagenet", "mini-imagenet-cache-train.pkl"
        places = [folder / file, root / file, folder / "train"]
        there = [path for path in places if path.exists()]
        if not there and folder.is_dir() and len(folders_in(folder)) > 1:
            there = [folder]
        return {(there or places)[0]: Expected()}

    def read(self, root: Path) -> Prepared:
        (path,) = self.parts(root)
        if path.is_dir():
            return super().read(root)

        def make() -> Prepared:
            pixels, rows, counts = self._unpickled(path)
            return by_class(decode_all([Picture("", pixels[row]) for row in rows], (3, SIDE, SIDE)), counts)

        images, counts, hash = prepared(f"{self.title}, {SIDE} pixels: 1", [path], make)
        return images, counts, hash

    def _unpickled(self, path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Images, uint8 ["images", "height", "width", 3], which ones to use, by class, and how many of each class."""
        with file_errors(f"{path} is no pickle of mini-ImageNet"):
            held = read_arrays(path)
            pixels, classes = np.asarray(held["image_data"]), dict(held["class_dict"])
            rows = {str(name): np.asarray(classes[name]) for name in sorted(classes)}
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3 or not pixels[:1].size:
            raise PflbenchError(f"{path} holds {pixels.dtype} {pixels.shape} instead of color images of bytes.")
        self.check(list(rows), [len(some) if some.ndim else 0 for some in rows.values()])
        whole = np.concatenate(list(rows.values()))
        if not np.issubdtype(whole.dtype, np.integer) or len(np.unique(whole)) < len(whole):
            raise PflbenchError(f"{path} does not say which images a class has, or names one of them twice.")
        if whole.min() < 0 or whole.max() >= len(pixels):
            raise PflbenchError(f"{path} names images outside 0..{len(pixels) - 1}.")
        return pixels, whole, np.array([len(some) for some in rows.values()], dtype=np.int64)


SOURCES: Mapping[str, ImageSource] = {
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


def _lines(path: Path, columns: int) -> list[list[str]]:
    """The lines of a text file, cut at their first blanks; in the first column stands an image's number."""
    with file_errors(f"{path} is no list of images"):
        text = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    lines = [line.split(None, columns - 1) for line in text if line]
    for line in lines:
        if len(line) != columns or not line[0].isdigit():
            raise PflbenchError(f"{path} has a line that names no image: {' '.join(line)[:80]!r}.")
    return lines
