"""A user's own images from a folder with a folder for each class."""

from __future__ import annotations

import os
import re
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pflbench.data import content
from pflbench.data.datasets import image_folder
from pflbench.data.datasets.image_folder import ImageFolder
from pflbench.data.root import data_root
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError

GTSRB = data_root() / "gtsrb"
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def picture(path: Path, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> np.ndarray:
    """An image file of random pixels; width and height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path)
    return np.asarray(image)


def folder_of(root: Path, names: list[str], **how: Any) -> dict[str, np.ndarray]:
    return {name: picture(root / name, **how) for name in names}


def loaded(root: Path, **options: Any) -> Source:
    dataset = ImageFolder(root=root, **options)
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, "image-folder")
    return source


PHOTOS = ["cat/b.png", "cat/a.PNG", "dog/1.png", "owl/x.png", "owl/.hidden.png", "owl/notes.txt.png"]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    made = folder_of(tmp_path / "photos", PHOTOS)
    (tmp_path / "photos" / "readme.md").write_text("mine")
    (tmp_path / "photos" / "owl" / "readme.md").write_text("mine")
    (tmp_path / "photos" / ".git").mkdir()
    source = loaded(tmp_path / "photos")
    assert source.labels.tolist() == [0, 0, 1, 2, 2]
    assert (source.classes, source.test, source.kind) == (3, 0, None)
    for row, name in enumerate(["cat/a.PNG", "cat/b.png", "dog/1.png", "owl/notes.txt.png", "owl/x.png"]):
        assert np.array_equal(source.images[row].numpy().transpose(1, 2, 0), made[name])


@pytest.mark.parametrize("second", ["test", "val"])
def test_train_and_test(second: str, tmp_path: Path) -> None:
    names = [f"{part}/{label}/{n}.png" for part in ("train", second) for label in ("a", "b") for n in range(2)]
    made = folder_of(tmp_path, [*names, "train/c/0.png"])
    source = loaded(tmp_path)
    assert (source.labels.tolist(), source.test) == ([0, 0, 1, 1, 2, 0, 0, 1, 1], 4)
    assert np.array_equal(source.images[-1].numpy().transpose(1, 2, 0), made[f"{second}/b/1.png"])
    assert ImageFolder(root=tmp_path).examples == 5


def test_a_class_named_train(tmp_path: Path) -> None:
    folder_of(tmp_path, ["train/1.png", "car/1.png"])
    assert (loaded(tmp_path).classes, loaded(tmp_path).test) == (2, 0)


def tiny_imagenet(root: Path) -> dict[str, np.ndarray]:
    made = folder_of(root, [f"train/n0{c}/images/n0{c}_{n}.JPEG" for c in (1, 2) for n in range(3)])
    for c in (1, 2):
        (root / f"train/n0{c}/n0{c}_boxes.txt").write_text(f"n0{c}_0.JPEG\t0\t0\t62\t62\n")
    made |= folder_of(root, [f"val/images/val_{n}.JPEG" for n in range(4)])
    made |= folder_of(root, [f"test/images/test_{n}.JPEG" for n in range(2)])
    (root / "val/val_annotations.txt").write_text(
        "".join(f"val_{n}.JPEG\tn0{1 + n % 2}\t0\t0\t9\t9\n" for n in range(4))
    )
    (root / "wnids.txt").write_text("n01\nn02\n")
    return made


def test_tiny_imagenet(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    tiny_imagenet(root)
    source = loaded(root)
    assert (source.labels.tolist(), source.test) == ([0, 0, 0, 1, 1, 1, 0, 1, 0, 1], 4)
    with Image.open(root / "val/images/val_3.JPEG") as image:
        assert np.array_equal(source.images[-1].numpy().transpose(1, 2, 0), np.asarray(image))
    read = {path.relative_to(root).as_posix() for path in ImageFolder(root=root).files(tmp_path)}
    assert "val/val_annotations.txt" in read and len(read) == 11


@pytest.mark.parametrize("kind", ["zip", "gztar", "tar"])
@pytest.mark.parametrize("inside", [".", "photos"])
def test_an_archive_is_the_same_as_its_folder(kind: str, inside: str, tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", PHOTOS)
    whole = loaded(tmp_path / "photos")
    base = tmp_path if inside == "photos" else tmp_path / "photos"
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), kind, base, inside))
    dataset = ImageFolder(root=archive)
    assert dataset.load(tmp_path, 0).hash == whole.hash
    assert dataset.files(tmp_path) == [archive] and dataset.shape == (3, 5, 6)


def test_gray_images_stay_gray_unless_one_is_colored(tmp_path: Path) -> None:
    made = folder_of(tmp_path, ["a/1.png", "b/1.png"], mode="L")
    source = loaded(tmp_path)
    assert source.images.shape == (2, 1, 5, 6) and np.array_equal(source.images[1, 0].numpy(), made["b/1.png"])
    assert loaded(tmp_path, channels=3).images.shape == (2, 3, 5, 6)
    picture(tmp_path / "b/2.png")
    assert loaded(tmp_path).images.shape == (3, 3, 5, 6)
    assert loaded(tmp_path, channels=1).images.shape == (3, 1, 5, 6)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_all_kinds_of_png(mode: str, tmp_path: Path) -> None:
    folder_of(tmp_path, ["a/1.png", "b/1.png"], mode=mode)
    assert loaded(tmp_path).images.shape[1] == (1 if mode in "1LA" else 3)


def test_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    folder_of(tmp_path, ["a/1.png", "b/1.png"])
    picture(tmp_path / "b/2.png", (9, 5))
    with pytest.raises(PflbenchError, match=r"a/1.png has 6x5 pixels, .*b/2.png 9x5\. Say one for all, as in size"):
        loaded(tmp_path)
    assert loaded(tmp_path, size=8).images.shape == (3, 3, 8, 8)
    assert ImageFolder(root=tmp_path, size=8).shape == (3, 8, 8)


def test_images_are_decoded_once_and_anew_when_one_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path / "photos", PHOTOS)
    for path in (tmp_path / "photos").rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    calls: list[int] = []
    decode = image_folder.decode_all
    monkeypatch.setattr(image_folder, "decode_all", lambda *given: calls.append(1) or decode(*given))
    first = loaded(tmp_path / "photos", normalize="data")
    again = loaded(tmp_path / "photos", normalize="data")
    assert len(calls) == 1 and first.hash == again.hash and first.normalization == again.normalization
    picture(tmp_path / "photos" / "dog" / "1.png")
    assert loaded(tmp_path / "photos").hash != first.hash and len(calls) == 2


def test_what_is_read_is_known_by_content_and_by_folder(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", PHOTOS)
    dataset = ImageFolder(root=tmp_path / "photos")

    def hash() -> str | None:
        return content.of_dataset(ImageFolder(root=tmp_path / "photos"), tmp_path, 0)  # type: ignore[arg-type]

    before = hash()
    (tmp_path / "photos" / "cat" / ".DS_Store").write_bytes(b"1")
    assert hash() == before and len(dataset.files(tmp_path)) == 5
    (tmp_path / "photos" / "dog").rename(tmp_path / "photos" / "wolf")
    assert hash() != before


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    dataset = ImageFolder(root=tmp_path / "photos")
    assert dataset.status(tmp_path) == f"missing: {tmp_path / 'photos'}"
    for ask in (lambda: dataset.shape, lambda: dataset.classes, lambda: dataset.files(tmp_path)):
        with pytest.raises(DataMissing, match="There is no"):
            ask()


def test_options_that_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"must be 1 .gray. or 3"):
        ImageFolder(root=Path("/photos"), channels=2)  # type: ignore[arg-type]


def nothing(root: Path) -> None:
    root.mkdir()


def empty_class(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/1.png"])
    (root / "c").mkdir()


def deeper(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/mine/1.png"])


def sixteen_bits(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/1.png"])
    Image.fromarray(np.full((5, 6), 999, dtype=np.uint16)).save(root / "b/2.png")


def no_image(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/1.png"])
    (root / "b/2.png").write_text("no image")


def truncated(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/1.png"], size=(60, 60))
    os.truncate(root / "b/1.png", 3000)


def unlisted(root: Path) -> None:
    tiny_imagenet(root)
    (root / "val/val_annotations.txt").write_text("val_9.JPEG\tn01\n")


WRONG = {
    "no folder of a class": nothing,
    "one folder of a class only, 'a'": lambda root: folder_of(root, ["a/1.png"]),
    "lies in no folder of a class: 1.png": lambda root: folder_of(root, ["a/1.png", "b/1.png", "1.png"]),
    "no image in the folder of the class 'c'": empty_class,
    "folders within the folder of the class 'b'": deeper,
    "class 'c' in test, and not in train": lambda root: folder_of(
        root, ["train/a/1.png", "train/b/1.png", "test/c/1.png"]
    ),
    r"2.png has more than 8 bits": sixteen_bits,
    "Cannot read .*2.png": no_image,
    "Cannot read .*1.png .*truncated": truncated,
    "no image or no class of train: 'val_9.JPEG": unlisted,
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused(said: str, tmp_path: Path) -> None:
    WRONG[said](tmp_path / "photos")
    with pytest.raises(PflbenchError, match=said) as refused:
        loaded(tmp_path / "photos")
    assert str(tmp_path / "photos") in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*.bin")) or said == "Cannot read .*1.png .*truncated"


@pytest.mark.data
def test_gtsrb_as_a_folder_of_images() -> None:
    root = GTSRB
    if not root.is_dir():
        pytest.skip(f"missing: {root}")
    source = loaded(root)
    assert (source.images.shape, source.classes, source.test) == ((12_849, 3, 32, 32), 43, 6_315)


def test_a_damaged_image_of_an_archive_names_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("ant/0.png", "bee/0.png"):
            file.writestr(name, b"no image")
    with pytest.raises(PflbenchError, match=re.escape(f"{archive} has a damaged image. Cannot read ")):
        assert ImageFolder(root=archive).shape
