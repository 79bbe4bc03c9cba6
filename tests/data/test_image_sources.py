"""Collections of images that tasks are drawn from: each in its publisher's format, missing, and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pflbench.data.datasets.cifar import COARSE
from pflbench.data.datasets.image_sources import SIDE, Characters
from pflbench.data.datasets.meta_dataset import PAPER, SOURCES, MetaDataset
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, PflbenchError

from .image_collections import (
    CIFAR_FS,
    CLASSES,
    EACH,
    FC100,
    FINE,
    SUPERCLASSES,
    WRITE,
    mini_imagenet,
    photo,
    write_folders,
    write_mini_imagenet,
)


def resized(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


# ---- each form


@pytest.mark.parametrize("name", PAPER)
def test_a_source_is_read_class_by_class(name: str, small_sources: Path) -> None:
    source = SOURCES[name]
    WRITE[name](small_sources)
    source.require(small_sources)
    held = source.images(small_sources)
    classes = len(CIFAR_FS) if name == "cifar-fs" else CLASSES
    assert held.counts.dtype == np.int64 and held.counts.tolist() == [EACH] * classes
    channels = 1 if name == "omniglot" else 3
    assert held.images.dtype == np.uint8 and held.images.shape == (classes * EACH, channels, SIDE, SIDE)
    assert len(np.unique(held.images.reshape(len(held.images), -1), axis=0)) == len(held.images)
    again = source.images(small_sources)
    assert np.array_equal(again.images, held.images) and again.hash == held.hash and len(str(held.hash)) == 16


@pytest.mark.parametrize(
    ("name", "place", "suffix"),
    [
        ("birds", "CUB_200_2011/images", ".png"),
        ("dtd", "dtd/dtd/images", ".png"),
        ("gtsrb", "gtsrb/GTSRB/Training", ".ppm"),
        ("gtsrb", "gtsrb/train", ".png"),
        ("mini-imagenet", "mini-imagenet/train", ".png"),
    ],
)
def test_folders_are_read_by_name(name: str, place: str, suffix: str, small_sources: Path) -> None:
    write_folders(small_sources / place, suffix)
    held = SOURCES[name].images(small_sources)
    assert np.array_equal(held.images, [resized(photo(k)) for k in range(CLASSES * EACH)])


def test_classes_may_differ_in_size(small_sources: Path) -> None:
    write_folders(small_sources / "gtsrb" / "train", ".png")
    for k in range(4):
        (small_sources / "gtsrb" / "train" / "00003" / f"{k:05}.png").unlink()
    assert SOURCES["gtsrb"].images(small_sources).counts.tolist() == [EACH] * 3 + [2] + [EACH] * (CLASSES - 4)


def test_aircraft_are_cropped_to_their_box_and_ordered_by_variant(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    held = SOURCES["aircraft"].images(small_sources)
    images = sorted((small_sources / "fgvc-aircraft-2013b" / "data" / "images").iterdir())
    assert np.array_equal(held.images, [resized(Image.open(path).crop((2, 1, 18, 12))) for path in images])


def test_a_byte_order_mark_is_no_content_of_a_list(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    plain = SOURCES["aircraft"].images(small_sources)
    for path in (small_sources / "fgvc-aircraft-2013b" / "data").glob("*.txt"):
        path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert SOURCES["aircraft"].images(small_sources).hash == plain.hash


def test_flowers_follow_their_labels(small_sources: Path) -> None:
    WRITE["flowers"](small_sources)
    held = SOURCES["flowers"].images(small_sources)
    jpg = small_sources / "flowers-102" / "jpg"
    expected = [Image.open(jpg / f"image_{k * CLASSES + c + 1:05}.jpg") for c in range(CLASSES) for k in range(EACH)]
    assert np.array_equal(held.images, [resized(image) for image in expected])


def test_omniglot_is_black_on_white_and_both_of_its_parts(small_sources: Path) -> None:
    WRITE["omniglot"](small_sources)
    held = SOURCES["omniglot"].images(small_sources)
    assert held.images.max() == 255 and held.images.min() == 0 and held.images.mean() > 128
    names = ("Arcadian", "Braille", "Angelic")  # the background set's alphabets, then the evaluation set's
    assert list(Characters().pictures(small_sources)) == [f"{a}/character0{c}" for a in names for c in range(1, 5)]


def test_mini_imagenets_pickle_gives_what_its_lists_say(small_sources: Path) -> None:
    write_mini_imagenet(small_sources)
    held, raw = SOURCES["mini-imagenet"].images(small_sources), mini_imagenet()
    rows = [row for name in sorted(raw["class_dict"]) for row in raw["class_dict"][name]]  # type: ignore[attr-defined, call-overload, index]
    assert np.array_equal(held.images, [resized(Image.fromarray(raw["image_data"][row])) for row in rows])  # type: ignore[index]


def test_the_few_shot_splits_of_cifar100(small_sources: Path) -> None:
    assert (len(CIFAR_FS), len(FINE), len(FC100), len(SUPERCLASSES)) == (64, 100, 12, 20)
    assert len(set(FINE)) == 100 and len(set(SUPERCLASSES)) == 20
    WRITE["cifar-fs"](small_sources)
    fs, fc = SOURCES["cifar-fs"].images(small_sources), SOURCES["fc100"].images(small_sources)
    assert fc.counts.tolist() == [EACH] * SOURCES["fc100"].classes and fs.hash != fc.hash
    with np.load(small_sources / "cifar100.npz") as read:
        images = np.concatenate([read["train_images"], read["test_images"]]).transpose(0, 3, 1, 2)
        fine = np.concatenate([read["train_labels"], read["test_labels"]])
    by_name = {name: images[fine == k] for k, name in enumerate(FINE)}
    assert np.array_equal(fs.images, np.concatenate([by_name[name] for name in sorted(CIFAR_FS)]))
    chosen = [name for k, name in enumerate(FINE) if SUPERCLASSES[COARSE[k]] in FC100]
    assert np.array_equal(fc.images, np.concatenate([by_name[name] for name in chosen]))


# ---- what is missing or damaged


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_source_says_where_from_and_where_to(name: str, small_sources: Path) -> None:
    with pytest.raises(DataMissing) as error:
        SOURCES[name].require(small_sources)
    message = str(error.value)
    assert message.startswith(f"{name} lacks ") and str(small_sources) in message and "{" not in message


@pytest.mark.parametrize("damage", ["truncated", "empty class", "no class"])
def test_damaged_folders(damage: str, small_sources: Path) -> None:
    folder = small_sources / "CUB_200_2011/images"
    write_folders(folder, ".jpg")
    image = folder / "00004" / "00002.jpg"
    if damage == "truncated":
        image.write_bytes(image.read_bytes()[:-200])
    else:
        for path in (folder / "00004").iterdir():
            path.unlink()
        if damage == "no class":
            (folder / "00004").rmdir()
    says = {
        "truncated": "00002.jpg",
        "empty class": f"birds has {CLASSES - 1} classes",
        "no class": f"birds has {CLASSES - 1} classes",
    }[damage]
    with pytest.raises(PflbenchError, match=says):
        MetaDataset("birds", ways=10, images=20).load(small_sources, 0)


class Mischief:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return eval, ("1 + 1",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (Mischief(), r"builtins\.eval|__builtin__\.eval"),
        ([1, 2], "meta-dataset in .* cannot be read"),
        ({**mini_imagenet(), "image_data": np.zeros((72, 84, 84, 3))}, "cannot be read"),
        ({**mini_imagenet(), "class_dict": {"n1": [0]}}, "mini-imagenet has 1 classes"),
    ],
)
def test_damaged_pickles_of_mini_imagenet(content: object, says: str, small_sources: Path) -> None:
    write_mini_imagenet(small_sources, content)
    with pytest.raises(PflbenchError, match=says):
        MetaDataset("mini-imagenet").load(small_sources, 0)


def test_an_aircraft_without_a_box_is_one_message(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    (small_sources / "fgvc-aircraft-2013b" / "data" / "images_box.txt").write_text("0000001 2 1 18 12\n")
    with pytest.raises(PflbenchError, match=r"meta-dataset in .* cannot be read"):
        MetaDataset("aircraft").load(small_sources, 0)


def test_labels_of_flowers_without_their_images(small_sources: Path) -> None:
    from scipy.io import savemat

    WRITE["flowers"](small_sources)
    savemat(small_sources / "flowers-102" / "imagelabels.mat", {"labels": [list(range(1, CLASSES + 1)) * (EACH + 1)]})
    with pytest.raises(PflbenchError, match="image_000"):
        MetaDataset("flowers").load(small_sources, 0)


@pytest.mark.data
@pytest.mark.parametrize(("name", "images", "classes"), [("cifar-fs", 38_400, 64), ("fc100", 36_000, 60)])
def test_real_few_shot_splits(name: str, images: int, classes: int, real: Callable[[Dataset], Path]) -> None:
    from pflbench.data.datasets.cifar import CIFAR100

    held = SOURCES[name].images(real(CIFAR100()))
    assert held.images.shape == (images, 3, 32, 32) and held.counts.tolist() == [600] * classes
