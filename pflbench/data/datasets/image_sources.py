"""Collections of images by class, each as its publisher distributes it; few-shot learning draws its tasks from them.

Files are never compared with torchvision's checksums: what counts is that every class is present with enough images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.content import files_below
from pflbench.data.datasets.cifar import CIFAR100, COARSE
from pflbench.data.pixels import Cropped, Picture, decode_all, images_by_class
from pflbench.data.prepared import prepared
from pflbench.data.published import Published
from pflbench.data.source import content_hash
from pflbench.data.unpickle import unpickled

SIDE = 32
"""Pixels of an image in Meta-Dataset; the aspect ratio is not preserved."""

Listed = Mapping[str, Sequence[Picture]]
"""Images of each class by its name, in the order of the pool."""


class ByClass(NamedTuple):
    """All images of a source.

    Attributes:
        images: uint8 ["images", "channels", "side", "side"], the images of a class in a row, classes by name.
        counts: Number of images of each class, int64 ["classes"].
        hash: `content_hash` of the images and the numbers of their classes, an array without axes.
    """

    images: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]
    hash: npt.NDArray[np.str_]


class ImageSource(Published):
    """Base of a collection, by default with a folder for each class."""

    command: ClassVar = "meta-dataset"
    channels: ClassVar = 3
    folders: ClassVar[tuple[str, ...]] = ()
    """Folders below the data root, of which the first that exists is read."""
    classes: ClassVar[int]
    least: ClassVar[int]
    """Images of the smallest class as published; with fewer, files are missing."""

    def parts(self, root: Path) -> list[Path]:
        """See `Published`."""
        folders = [root / folder for folder in self.folders]
        return [next((path for path in folders if path.exists()), folders[0])] if folders else super().parts(root)

    def pictures(self, root: Path) -> Listed:
        """Images of each class; raises whatever reading their lists raises."""
        return images_by_class(self.parts(root)[0])

    def images(self, root: Path) -> ByClass:
        """The images, decoded once and cached (see `prepared`). Raises `ValueError` if there are too few."""

        def make() -> ByClass:
            listed = self.pictures(root)
            counts = np.array([len(pictures) for pictures in listed.values()], dtype=np.int64)
            if len(counts) != self.classes or counts.min() < self.least:
                raise ValueError(
                    f"{self.name} has {len(counts)} classes, the smallest of {counts.min(initial=0)} images, not "
                    f"{self.classes} of at least {self.least}: files are missing"
                )
            pictures = [picture for several in listed.values() for picture in several]
            images = decode_all(pictures, (self.channels, SIDE, SIDE))
            labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
            return ByClass(images, counts, np.array(content_hash(images, labels)))

        files = [file for path in self.parts(root) for file in (sorted(files_below(path)) or [path])]
        return ByClass(*prepared(f"{self.name}, {SIDE} pixels: 3", files, make))


class Aircraft(ImageSource):
    """FGVC-Aircraft: 100 variants, 100 images each, cropped to the aircraft's bounding box as Meta-Dataset does.

    `data/images/*.jpg`, named by `images_variant_{train,val,test}.txt` and `images_box.txt`.
    """

    name: ClassVar = "aircraft"
    by_hand: ClassVar = (
        "unpack https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz (2.8 GB) in "
        "{root}"
    )
    classes: ClassVar = 100
    least: ClassVar = 100
    needs: ClassVar = tuple(
        f"fgvc-aircraft-2013b/data/images{name}"
        for name in ("", "_box.txt", "_variant_train.txt", "_variant_val.txt", "_variant_test.txt")
    )
    downloads: ClassVar = (("FGVCAircraft", "", {}),)

    def pictures(self, root: Path) -> Listed:
        folder, boxes, *lists = self.parts(root)
        edges = {line.split()[0]: tuple(map(int, line.split()[1:5])) for line in _lines(boxes)}
        listed: dict[str, list[Cropped]] = {}
        for image, variant in (line.split(maxsplit=1) for path in lists for line in _lines(path)):
            left, upper, right, lower = edges[image]
            listed.setdefault(variant, []).append(Cropped(folder / f"{image}.jpg", (left, upper, right, lower)))
        return {variant: sorted(listed[variant]) for variant in sorted(listed)}


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


class Birds(ImageSource):
    """Caltech-UCSD Birds 200, 2011: 200 species, 41 to 60 images each, not cropped; `images/<class>/*.jpg`."""

    name: ClassVar = "birds"
    by_hand: ClassVar = "unpack https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz (1.2 GB) in {root}"
    classes: ClassVar = 200
    least: ClassVar = 41
    folders: ClassVar = ("CUB_200_2011/images",)


class Textures(ImageSource):
    """Describable Textures: 47 classes, 120 images each; `images/<class>/*.jpg`."""

    name: ClassVar = "dtd"
    by_hand: ClassVar = "unpack https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz (0.6 GB) in {root}"
    classes: ClassVar = 47
    least: ClassVar = 120
    folders: ClassVar = ("dtd/images", "dtd/dtd/images")
    downloads: ClassVar = (("DTD", "", {}),)


class TrafficSigns(ImageSource):
    """The training images of the German Traffic Sign Recognition Benchmark: 43 classes, 210 to 2250 images each.

    Parts of it are in use, such as a few frames of each track, so one image of a class is enough.
    """

    name: ClassVar = "gtsrb"
    by_hand: ClassVar = (
        "unpack https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/GTSRB-Training_fixed.zip (0.2 GB) "
        "in {root}/gtsrb, so that {root}/gtsrb/GTSRB/Training/<class>/*.ppm exist (or put images into "
        "{root}/gtsrb/train/<class>)"
    )
    classes: ClassVar = 43
    least: ClassVar = 1
    folders: ClassVar = ("gtsrb/GTSRB/Training", "gtsrb/train")
    downloads: ClassVar = (("GTSRB", "", {"split": "train"}),)


class Flowers(ImageSource):
    """VGG Flowers: 102 classes, 40 to 258 images each; `jpg/image_*.jpg`, with labels from 1 in `imagelabels.mat`."""

    name: ClassVar = "flowers"
    by_hand: ClassVar = (
        "unpack https://www.robots.ox.ac.uk/~vgg/data/flowers/102/102flowers.tgz (0.3 GB) in {root}/flowers-102, and "
        "put imagelabels.mat of the same address beside its folder jpg"
    )
    classes: ClassVar = 102
    least: ClassVar = 40
    needs: ClassVar = ("flowers-102/jpg", "flowers-102/imagelabels.mat")
    downloads: ClassVar = (("Flowers102", "", {}),)

    def pictures(self, root: Path) -> Listed:
        from scipy.io import loadmat

        folder, path = self.parts(root)
        labels = loadmat(path)["labels"].reshape(-1)
        return {
            str(label): [folder / f"image_{number:05}.jpg" for number in np.flatnonzero(labels == label) + 1]
            for label in np.unique(labels).tolist()
        }


class Characters(ImageSource):
    """Omniglot: 1,623 handwritten characters of 50 alphabets, 20 images each, black on white.

    `images_background` and `images_evaluation`, both of them: `<alphabet>/<character>/*.png`.
    """

    name: ClassVar = "omniglot"
    by_hand: ClassVar = (
        "unpack images_background.zip and images_evaluation.zip of "
        "https://raw.githubusercontent.com/brendenlake/omniglot/master/python (16 MB) in {root}/omniglot-py"
    )
    classes: ClassVar = 1623
    least: ClassVar = 20
    channels: ClassVar = 1
    needs: ClassVar = ("omniglot-py/images_background", "omniglot-py/images_evaluation")
    downloads: ClassVar = (("Omniglot", "", {"background": True}), ("Omniglot", "", {"background": False}))

    def pictures(self, root: Path) -> Listed:
        alphabets = [alphabet for part in self.parts(root) for alphabet in sorted(part.iterdir()) if alphabet.is_dir()]
        return {f"{path.name}/{name}": images for path in alphabets for name, images in images_by_class(path).items()}


CIFAR_FS = np.array(
    (
        "0 1 3 6 9 10 11 12 13 16 17 18 20 22 23 24 25 28 29 30 31 33 35 36 37 38 39 41 43 44 45 49 50 51 52 53 54 56 "
        "57 59 61 63 64 65 66 67 68 72 74 75 76 78 79 80 81 82 85 88 90 91 92 93 96 97"
    ).split(),
    dtype=np.int64,
)
"""Fine labels of the 64 training classes of CIFAR-FS, as torchmeta 1.8.0 lists them."""
FC100 = np.flatnonzero(np.isin(COARSE, (1, 2, 3, 4, 5, 6, 9, 10, 15, 17, 18, 19)))
"""Fine labels of the 60 classes of FC100's training superclasses, from the same source."""


class FromCIFAR100(ImageSource):
    """Some classes of CIFAR-100, of both its training and its test images: 600 each."""

    by_hand: ClassVar = CIFAR100.by_hand
    downloads: ClassVar = CIFAR100.downloads
    least: ClassVar = 600

    def __init__(self, name: str, chosen: npt.NDArray[np.int64]) -> None:
        """`chosen`: their fine labels."""
        self.name, self.classes, self.chosen = name, len(chosen), chosen  # type: ignore[misc]

    def parts(self, root: Path) -> list[Path]:
        return CIFAR100().parts(root)

    def pictures(self, root: Path) -> Listed:
        images, fine, _ = CIFAR100().pool(root, "train", "test")
        colors = images.transpose(0, 2, 3, 1)
        return {str(label): [*colors[fine == label]] for label in self.chosen}


class MiniImageNet(ImageSource):
    """The training split of mini-ImageNet: 64 classes, 600 images each.

    learn2learn's `mini-imagenet-cache-train.pkl`, in `mini-imagenet` or in the data root; or a folder for each class,
    in `mini-imagenet/train`.
    """

    name: ClassVar = "mini-imagenet"
    by_hand: ClassVar = (
        "put https://zenodo.org/record/7978538/files/mini-imagenet-cache-train.pkl (0.8 GB) into {root}/mini-imagenet "
        "(or the folders of its 64 classes into {root}/mini-imagenet/train)"
    )
    classes: ClassVar = 64
    least: ClassVar = 600
    folders: ClassVar = (
        "mini-imagenet/mini-imagenet-cache-train.pkl",
        "mini-imagenet-cache-train.pkl",
        "mini-imagenet/train",
    )

    def pictures(self, root: Path) -> Listed:
        (path,) = self.parts(root)
        if path.is_dir():
            return super().pictures(root)
        content = unpickled(path.read_bytes())
        pixels, classes = content["image_data"], content["class_dict"]
        return {name: [pixels[row] for row in classes[name]] for name in sorted(classes)}


SOURCES: Mapping[str, ImageSource] = {
    source.name: source
    for source in (
        Aircraft(),
        Birds(),
        Textures(),
        TrafficSigns(),
        Flowers(),
        Characters(),
        MiniImageNet(),
        FromCIFAR100("cifar-fs", CIFAR_FS),
        FromCIFAR100("fc100", FC100),
    )
}
