"""Collections of images that tasks are drawn from: each in its publisher's format, missing, and damaged."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pflbench.data import prepared
from pflbench.data.datasets.image_sources import (
    CIFAR_FS,
    COARSE,
    FC100,
    FINE,
    SIDE,
    Characters,
    FewShotCIFAR100,
)
from pflbench.data.datasets.meta_dataset import PAPER, SOURCES
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, PflbenchError

from .image_collections import CLASSES, EACH, WRITE, mini_imagenet, photo, write_folders, write_mini_imagenet

pytestmark = pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")


def resized(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


# ---- each form


@pytest.mark.parametrize("name", PAPER)
def test_a_source_is_read_class_by_class(name: str, small_sources: Path) -> None:
    source = SOURCES[name]
    assert source.missing(small_sources)
    WRITE[name](small_sources)
    assert not source.missing(small_sources)
    held = source.load(small_sources)
    classes = len(CIFAR_FS) if name == "cifar-fs" else CLASSES
    assert held.counts.dtype == np.int64 and held.counts.tolist() == [EACH] * classes
    channels = 1 if name == "omniglot" else 3
    assert held.images.dtype == np.uint8 and held.images.shape == (classes * EACH, channels, SIDE, SIDE)
    assert len(np.unique(held.images.reshape(len(held.images), -1), axis=0)) == len(held.images)
    again = source.load(small_sources)
    assert np.array_equal(again.images, held.images) and again.hash == held.hash and len(held.hash) == 16


@pytest.mark.parametrize(
    ("name", "place", "suffix"),
    [
        ("birds", "CUB_200_2011/images", ".png"),
        ("dtd", "dtd/dtd/images", ".png"),
        ("dtd", "dtd/images", ".PNG"),
        ("gtsrb", "gtsrb/GTSRB/Training", ".ppm"),
        ("gtsrb", "gtsrb/train", ".png"),
        ("mini-imagenet", "mini-imagenet/train", ".png"),
        ("mini-imagenet", "mini-imagenet", ".png"),
    ],
)
def test_folders_are_read_by_name(name: str, place: str, suffix: str, small_sources: Path) -> None:
    write_folders(small_sources / place, suffix)
    held = SOURCES[name].load(small_sources)
    assert np.array_equal(held.images, [resized(photo(k)) for k in range(CLASSES * EACH)])


def test_classes_may_differ_in_size(small_sources: Path) -> None:
    write_folders(small_sources / "gtsrb" / "train", ".png")
    for k in range(4):
        (small_sources / "gtsrb" / "train" / "00003" / f"{k:05}.png").unlink()
    assert SOURCES["gtsrb"].load(small_sources).counts.tolist() == [EACH] * 3 + [2] + [EACH] * (CLASSES - 4)


def test_aircraft_are_cropped_to_their_box_and_ordered_by_variant(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    held = SOURCES["aircraft"].load(small_sources)
    images = sorted((small_sources / "fgvc-aircraft-2013b" / "data" / "images").iterdir())
    assert np.array_equal(held.images, [resized(Image.open(path).crop((2, 1, 18, 12))) for path in images])


def test_a_byte_order_mark_is_no_content_of_a_list(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    plain = SOURCES["aircraft"].load(small_sources)
    for path in (small_sources / "fgvc-aircraft-2013b" / "data").glob("*.txt"):
        path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert SOURCES["aircraft"].load(small_sources).hash == plain.hash


def test_flowers_follow_their_labels(small_sources: Path) -> None:
    WRITE["flowers"](small_sources)
    held = SOURCES["flowers"].load(small_sources)
    jpg = small_sources / "flowers-102" / "jpg"
    expected = [Image.open(jpg / f"image_{k * CLASSES + c + 1:05}.jpg") for c in range(CLASSES) for k in range(EACH)]
    assert np.array_equal(held.images, [resized(image) for image in expected])


def test_omniglot_is_black_on_white_and_both_of_its_parts(small_sources: Path) -> None:
    WRITE["omniglot"](small_sources)
    held = SOURCES["omniglot"].load(small_sources)
    assert held.images.max() == 255 and held.images.min() == 0 and held.images.mean() > 128
    names = ("Arcadian", "Braille", "Angelic")  # the background set's alphabets, then the evaluation set's
    assert list(Characters().listed(small_sources)) == [f"{a}/character0{c}" for a in names for c in range(1, 5)]


def test_mini_imagenets_pickle_gives_what_its_lists_say(small_sources: Path) -> None:
    write_mini_imagenet(small_sources)
    held, raw = SOURCES["mini-imagenet"].load(small_sources), mini_imagenet()
    rows = [row for name in sorted(raw["class_dict"]) for row in raw["class_dict"][name]]  # type: ignore[attr-defined, call-overload, index]
    assert np.array_equal(held.images, [resized(Image.fromarray(raw["image_data"][row])) for row in rows])  # type: ignore[index]


def test_the_few_shot_splits_of_cifar100(small_sources: Path) -> None:
    assert (len(CIFAR_FS), len(FINE), len(FC100), len(COARSE)) == (64, 100, 12, 20)
    assert len(set(FINE)) == 100 and len(set(COARSE)) == 20
    WRITE["cifar-fs"](small_sources)
    fs, fc = SOURCES["cifar-fs"].load(small_sources), SOURCES["fc100"].load(small_sources)
    assert fc.counts.tolist() == [EACH] * FewShotCIFAR100.classes and fs.hash != fc.hash
    rows = np.concatenate(
        [
            np.fromfile(small_sources / "cifar-100-binary" / f, dtype=np.uint8).reshape(-1, 3074)
            for f in ("train.bin", "test.bin")
        ]
    )
    by_name = {name: rows[rows[:, 1] == k, 2:].reshape(-1, 3, 32, 32) for k, name in enumerate(FINE)}
    assert np.array_equal(fs.images, np.concatenate([by_name[name] for name in sorted(CIFAR_FS)]))
    chosen = [name for k, name in enumerate(FINE) if COARSE[k % 20] in FC100]
    assert np.array_equal(fc.images, np.concatenate([by_name[name] for name in chosen]))


# ---- what is missing


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_source_says_where_from_how_large_and_where_to(name: str, small_sources: Path) -> None:
    with pytest.raises(DataMissing) as error:
        SOURCES[name].load(small_sources)
    message = str(error.value)
    for part in (SOURCES[name].title, "https://", SOURCES[name].size, str(small_sources), "is not there"):
        assert part in message
    assert "B)" in message and "{" not in message


# ---- what is damaged


def damaged(name: str, root: Path, says: str) -> None:
    """One message that names the source, and nothing kept of it."""
    with pytest.raises(PflbenchError, match=says) as error:
        SOURCES[name].load(root)
    message = str(error.value)
    assert message.startswith(SOURCES[name].title) and "https://" in message and "\n" not in message
    kept = prepared.cache_folder() / "prepared"
    assert not kept.exists() or not list(kept.iterdir())


FOLDERS = {
    "birds": "CUB_200_2011/images",
    "dtd": "dtd/images",
    "gtsrb": "gtsrb/train",
    "mini-imagenet": "mini-imagenet/train",
}


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("damage", ["truncated", "no image", "empty file", "empty class", "no class"])
def test_damaged_folders(name: str, damage: str, small_sources: Path) -> None:
    folder = small_sources / FOLDERS[name]
    write_folders(folder, ".jpg")
    image = folder / "00004" / "00002.jpg"
    says = "00002"
    if damage == "truncated":
        image.write_bytes(image.read_bytes()[:-200])
    elif damage == "no image":
        image.write_text("no image")
    elif damage == "empty file":
        image.write_bytes(b"")
    else:
        for path in (folder / "00004").iterdir():
            path.unlink()
        says = "00004 has 0 of at least"
        if damage == "no class":
            (folder / "00004").rmdir()
            says = f"there are {CLASSES - 1} of {CLASSES} classes"
    damaged(name, small_sources, says)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("images_variant_val.txt", "../../secret 707-320", "a line that names no image"),
        ("images_variant_val.txt", "0000001", "a line that names no image"),
        ("images_variant_val.txt", "9999999 Model 00-200", "9999999"),
        ("images_variant_val.txt", "0000001\0 Model 00-200", "a line that names no image"),
        ("images_variant_val.txt", "", "images"),
        ("images_box.txt", "", "no box for"),
        ("images_box.txt", "0000001 2 1 18", "a line that names no image"),
        ("images_box.txt", "0000001 2 1 18 twelve", "no list of images and boxes"),
        ("images_box.txt", "0000001 18 1 2 12", "no box for 0000001"),
        ("images_box.txt", "0000001 -5 1 2 12", "no box for 0000001"),
    ],
)
def test_damaged_lists_of_aircraft(file: str, text: str, says: str, small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    path = small_sources / "fgvc-aircraft-2013b" / "data" / file
    path.write_text(f"{path.read_text()}{text}\n" if text else "")
    damaged("aircraft", small_sources, says)


def test_aircraft_without_a_list_are_missing(small_sources: Path) -> None:
    WRITE["aircraft"](small_sources)
    (small_sources / "fgvc-aircraft-2013b" / "data" / "images_box.txt").unlink()
    with pytest.raises(DataMissing, match=r"no .*images_box\.txt"):
        SOURCES["aircraft"].load(small_sources)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([[0, 1, 2]], "labels outside 0"),
        ([[1, 2, CLASSES + 1]], "labels outside 0"),
        ([[1, 2, 3]], f"there are 3 of {CLASSES} classes"),
        ([], f"there are 0 of {CLASSES} classes"),
        ([list(range(1, CLASSES + 1)) * (EACH + 1)], "image_000"),
        ("text", "Cannot read"),
    ],
)
def test_damaged_labels_of_flowers(labels: object, says: str, small_sources: Path) -> None:
    from scipy.io import savemat

    WRITE["flowers"](small_sources)
    savemat(small_sources / "flowers-102" / "imagelabels.mat", {"labels": labels})
    damaged("flowers", small_sources, says)


class Mischief:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return eval, ("1 + 1",)


def with_class(rows: object) -> dict[str, object]:
    held = mini_imagenet()
    held["class_dict"]["n9000"] = rows  # type: ignore[index]
    return held


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (Mischief(), r"builtins\.eval|__builtin__\.eval"),
        ({**mini_imagenet(), "more": Mischief()}, "eval"),
        ([1, 2], "no pickle of mini-ImageNet"),
        ({"image_data": np.zeros(3)}, "class_dict"),
        ({**mini_imagenet(), "image_data": np.zeros((72, 84, 84, 3))}, "float64"),
        ({**mini_imagenet(), "image_data": np.zeros((72, 84, 84), dtype=np.uint8)}, "instead of color images"),
        ({**mini_imagenet(), "image_data": np.zeros((72, 84, 84, 4), dtype=np.uint8)}, "instead of color images"),
        ({**mini_imagenet(), "image_data": ["a", "b"]}, "instead of color images"),
        ({**mini_imagenet(), "class_dict": {"n1": [0]}}, f"there are 1 of {CLASSES} classes"),
        (with_class([]), "n9000 has 0 of at least"),
        (with_class([0, 1, 2, 3, 4, 72]), "outside 0..71|twice"),
        (with_class([-1, -2, -3, -4, -5, -6]), "outside 0..71"),
        (with_class([0.5] * EACH), "does not say which"),
        (with_class(["a"] * EACH), "does not say which"),
        (with_class([0] * EACH), "twice"),
        (with_class([[1], [2, 3]]), "no pickle of mini-ImageNet"),
        (with_class(7), "n9000 has 0 of at least"),
    ],
)
def test_damaged_pickles_of_mini_imagenet(held: object, says: str, small_sources: Path) -> None:
    write_mini_imagenet(small_sources, held)
    damaged("mini-imagenet", small_sources, says)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_pickle_with_other_bytes_is_read_or_refused(data: st.DataObject, small_sources: Path) -> None:
    whole = pickle.dumps(mini_imagenet_of_few_bytes(), protocol=data.draw(st.sampled_from([0, 2, 3])))
    start = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(max_size=8))
    path = small_sources / "mini-imagenet-cache-train.pkl"
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:start] + damage + (b"" if cut else whole[start + len(damage) :]))
    try:
        SOURCES["mini-imagenet"].load(small_sources)
    except PflbenchError as error:
        assert str(path) in str(error) or "mini-ImageNet (training split) is damaged" in str(error)


def mini_imagenet_of_few_bytes() -> dict[str, object]:
    return {**mini_imagenet(), "image_data": np.arange(CLASSES * EACH * 12, dtype=np.uint8).reshape(-1, 2, 2, 3)}


@pytest.mark.parametrize("damage", ["truncated", "label", "class"])
def test_damaged_cifar(damage: str, small_sources: Path) -> None:
    WRITE["cifar-fs"](small_sources)
    path = small_sources / "cifar-100-binary" / "train.bin"
    whole = bytearray(path.read_bytes())
    if damage == "truncated":
        whole = whole[:-1]
    elif damage == "label":
        whole[1] = 100
    else:
        whole[1] = FINE.index("baby")  # an apple less
    path.write_bytes(whole)
    damaged("cifar-fs", small_sources, {"class": f"apple has {EACH - 1} of at least {EACH}"}.get(damage, "train.bin"))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_image_with_other_bytes_is_read_or_refused(data: st.DataObject, small_sources: Path) -> None:
    folder = small_sources / "gtsrb" / "train"
    if not folder.is_dir():
        write_folders(folder, ".png")
    image, whole = folder / "00001" / "00001.png", png()
    start = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=8))
    image.write_bytes(whole[:start] + damage + (b"" if data.draw(st.booleans()) else whole[start + len(damage) :]))
    try:
        held = SOURCES["gtsrb"].load(small_sources)
        assert held.images.shape == (CLASSES * EACH, 3, SIDE, SIDE)
    except PflbenchError as error:
        assert str(image) in str(error) and "\n" not in str(error)


def png() -> bytes:
    file = io.BytesIO()
    photo(7).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.data
@pytest.mark.parametrize(("name", "images", "classes"), [("cifar-fs", 38_400, 64), ("fc100", 36_000, 60)])
def test_real_few_shot_splits(name: str, images: int, classes: int, real: Callable[[Dataset], Path]) -> None:
    from pflbench.data.datasets.cifar import CIFAR100

    held = SOURCES[name].load(real(CIFAR100()))
    assert held.images.shape == (images, 3, 32, 32) and held.counts.tolist() == [600] * classes
