"""Small collections of images, written in the form in which their publishers distribute them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, EACH = 12, 6
"""Of every collection here, but for those of CIFAR-100, which has 100 classes."""

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
SUPERCLASSES = sorted(
    [
        *FC100,
        *(
            "aquatic_mammals insects large_carnivores large_omnivores_and_herbivores medium_mammals "
            "non-insect_invertebrates people small_mammals"
        ).split(),
    ]
)
"""All superclasses of CIFAR-100; coarse labels are their order."""


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


def photo(number: int, width: int = 20, height: int = 14) -> Image.Image:
    """A color photo, different for every number."""
    return Image.fromarray(np.roll(pixels(height, width, 3), number, axis=1) // 4 + number % 190)


def write_folders(folder: Path, suffix: str, classes: int = CLASSES, each: int = EACH) -> None:
    for c in reversed(range(classes)):
        (folder / f"{c:05}").mkdir(parents=True)
        for k in reversed(range(each)):
            photo(c * each + k).save(folder / f"{c:05}" / f"{k:05}{suffix}")
        (folder / f"{c:05}" / "notes.csv").write_text("no image")
        (folder / f"{c:05}" / f".{k}{suffix}").write_text("hidden")
    (folder / "readme.txt").write_text("no class")


def write_aircraft(root: Path) -> None:
    """Image 100 * c + k is the k-th of variant c, and lies in one of three lists; its box is all but a frame."""
    folder = root / "fgvc-aircraft-2013b" / "data"
    (folder / "images").mkdir(parents=True)
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    boxes = []
    for c in range(CLASSES):
        for k in range(EACH):
            name = f"{100 * c + k:07}"
            photo(c * EACH + k).save(folder / "images" / f"{name}.jpg")
            lists[list(lists)[k % 3]].append(f"{name} Model {c:02}-200\n")
            boxes.append(f"{name} 2 1 18 12\n")
    for split, lines in lists.items():
        (folder / f"images_variant_{split}.txt").write_text("".join(lines))
    (folder / "images_box.txt").write_text("".join(boxes))


def write_flowers(root: Path) -> None:
    from scipy.io import savemat

    (root / "flowers-102" / "jpg").mkdir(parents=True)
    labels = np.arange(CLASSES * EACH) % CLASSES + 1
    for k in range(len(labels)):
        photo(k).save(root / "flowers-102" / "jpg" / f"image_{k + 1:05}.jpg")
    savemat(root / "flowers-102" / "imagelabels.mat", {"labels": labels[None].astype(np.uint8)})


def write_omniglot(root: Path) -> None:
    """Eight characters in two alphabets, and four in a third; black strokes on white, one bit a pixel."""
    for part, alphabets in {"images_background": ("Arcadian", "Braille"), "images_evaluation": ("Angelic",)}.items():
        for alphabet in alphabets:
            foot = 60 + 10 * "ABn".index(alphabet[0] if part == "images_background" else alphabet[1])
            for c in range(1, 5):
                folder = root / "omniglot-py" / part / alphabet / f"character{c:02}"
                folder.mkdir(parents=True)
                for k in range(EACH):
                    drawn = Image.new("1", (105, 105), 1)
                    drawn.paste(0, (10 * c, 5 * k, 10 * c + 20, foot))
                    drawn.save(folder / f"{c:04}_{k:02}.png")


def mini_imagenet() -> dict[str, object]:
    images = pixels(CLASSES * EACH, 84, 84, 3)
    order = np.random.default_rng(0).permutation(len(images)).reshape(CLASSES, EACH)
    return {"image_data": images, "class_dict": {f"n{9000 - c}": order[c].tolist() for c in range(CLASSES)}}


def write_mini_imagenet(root: Path, held: object = None) -> Path:
    path = root / "mini-imagenet" / "mini-imagenet-cache-train.pkl"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(held or mini_imagenet(), protocol=2))
    return path


def write_cifar(root: Path) -> None:
    """Three images of each fine class in either split."""
    fine = np.tile(np.arange(len(FINE)), EACH // 2)
    images = [pixels(len(fine), 32, 32, 3), pixels(len(fine) + 1, 32, 32, 3)[1:]]
    arrays = {f"{part}_images": some for part, some in zip(("train", "test"), images, strict=True)}
    np.savez(root / "cifar100.npz", **arrays, train_labels=fine, test_labels=fine)


WRITE: dict[str, Callable[[Path], object]] = {
    "aircraft": write_aircraft,
    "birds": lambda root: write_folders(root / "CUB_200_2011" / "images", ".jpg"),
    "dtd": lambda root: write_folders(root / "dtd" / "images", ".jpg"),
    "gtsrb": lambda root: write_folders(root / "gtsrb" / "GTSRB" / "Training", ".ppm"),
    "flowers": write_flowers,
    "omniglot": write_omniglot,
    "mini-imagenet": write_mini_imagenet,
    "cifar-fs": write_cifar,
}
