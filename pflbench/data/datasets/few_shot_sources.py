"""The training classes of mini-ImageNet and of two few-shot splits of CIFAR-100, CIFAR-FS and FC100."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.cifar import CIFAR100
from pflbench.data.datasets.image_sources import SIDE, ImageSource, decoded, folders_in, hashed, images_in, shrunk
from pflbench.data.pickled import read_arrays
from pflbench.data.prepared import prepared
from pflbench.data.published import Known, reading, warn_unofficial
from pflbench.errors import PflbenchError

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
    """The names of the classes, or of superclasses all of whose classes are used."""
    level: ClassVar[Literal["fine", "coarse"]]

    def parts(self, root: Path) -> dict[Path, Known]:
        return CIFAR100().parts(root)

    def missing(self, root: Path) -> list[str]:
        return CIFAR100().missing(root)

    def fetch(self, root: Path) -> None:
        CIFAR100().fetch(root)

    def read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        parts = self.parts(root)

        def make() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
            batches = [CIFAR100().batch(path, known.images) for path, known in parts.items()]
            coarse, fine = np.concatenate([labels for _, labels in batches]).T
            wanted = [(FINE if self.level == "fine" else COARSE).index(name) for name in self.chosen]
            rows = np.flatnonzero(np.isin(fine if self.level == "fine" else coarse, wanted))
            rows = rows[np.argsort(fine[rows], kind="stable")]
            names, counts = np.unique(fine[rows], return_counts=True)
            self.check([FINE[name] for name in names], counts.tolist())
            images = np.concatenate([images for images, _ in batches])[rows]
            return images, counts.astype(np.int64), hashed(images, counts)

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


class MiniImageNet(ImageSource):
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

    def parts(self, root: Path) -> dict[Path, Known]:
        folder, file = root / "mini-imagenet", "mini-imagenet-cache-train.pkl"
        places = [folder / file, root / file, folder / "train"]
        there = [path for path in places if path.exists()]
        if not there and folder.is_dir() and len(folders_in(folder)) > 1:
            there = [folder]
        return {(there or places)[0]: Known()}

    def read(self, root: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
        (path,) = self.parts(root)
        recipe = f"{self.title}, {SIDE} pixels: 1"
        if path.is_dir():
            by_class = {folder.name: images_in(folder) for folder in folders_in(path)}
            self.check(list(by_class), [len(files) for files in by_class.values()])
            files = [file for some in by_class.values() for file in some]
            counts = np.array([len(some) for some in by_class.values()], dtype=np.int64)
            images, hash = prepared(recipe, files, lambda: _with_hash(decoded(files, "RGB", SIDE), counts))
            return images, counts, hash

        def make() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]:
            pixels, rows, counts = self._unpickled(path)
            images, hash = _with_hash(np.stack([shrunk(pixels[row], "RGB", SIDE) for row in rows]), counts)
            return images, counts, hash

        images, counts, hash = prepared(recipe, [path], make)
        return images, counts, hash

    def _unpickled(self, path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Images, uint8 ["images", "height", "width", 3], which ones to use, by class, and how many of each class."""
        with reading(f"{path} is no pickle of mini-ImageNet"):
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


def _with_hash(
    images: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.str_]]:
    return images, hashed(images, counts)
