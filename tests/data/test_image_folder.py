"""A user's own images from a folder with a folder for each class."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pflbench.data import content
from pflbench.data.datasets import image_folder
from pflbench.data.datasets.image_folder import ImageFolder
from pflbench.data.source import Source, check_source
from pflbench.data.user_images import UnreadFiles
from pflbench.errors import DataMissing, PflbenchError, UsageError

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


def test_images_in_a_folder_images_of_their_class(tmp_path: Path) -> None:
    made = folder_of(tmp_path, ["train/a/images/1.png", "train/b/images/1.png", "train/b/2.png"])
    source = loaded(tmp_path)
    assert source.labels.tolist() == [0, 1, 1]
    assert np.array_equal(source.images[1].numpy().transpose(1, 2, 0), made["train/b/2.png"])


def test_every_kind_of_file_that_pillow_reads_is_read_and_others_are_counted(tmp_path: Path) -> None:
    kinds = {"jfif": "JPEG", "jpe": "JPEG", "tga": "TGA", "ico": "ICO", "PNG": "PNG", "gif": "GIF", "jp2": "JPEG2000"}
    folder_of(tmp_path, ["a/1.png", "b/1.png"], size=(16, 16))
    for suffix, kind in kinds.items():
        Image.new("RGB", (16, 16), "red").save(tmp_path / "b" / f"2.{suffix}", format=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded(tmp_path).labels.tolist() == [0, *[1] * (1 + len(kinds))]
    for name in ("a/1.heic", "a/2.HEIC", "a/notes.txt", "b/nothing", "b/page.eps"):
        (tmp_path / name).write_bytes(b"?")
    with pytest.warns(UnreadFiles) as caught:
        assert len(loaded(tmp_path).labels) == 2 + len(kinds)
    (message,) = {str(one.message) for one in caught}
    assert "5 others" in message and ".heic" in message and str(tmp_path / "a" / "1.heic") in message


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(orientation: int, tmp_path: Path) -> None:
    pixels = RANDOM.integers(256, size=(4, 6, 3), dtype=np.uint8)
    turned = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: pixels.transpose(1, 0, 2)[:, ::-1],
        7: pixels.transpose(1, 0, 2)[::-1, ::-1],
        8: pixels.transpose(1, 0, 2)[::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x112] = orientation
    for name in ("a/1.png", "b/1.webp", "b/2.tiff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        options = {"lossless": True} if name.endswith("webp") else {}
        Image.fromarray(pixels).save(tmp_path / name, exif=exif, **options)
    images = loaded(tmp_path).images.numpy().transpose(0, 2, 3, 1)
    assert ImageFolder(root=tmp_path).shape == (3, *turned.shape[:2])
    assert all(np.array_equal(image, turned) for image in images)


def test_damaged_exif_data_leave_an_image_as_stored(tmp_path: Path) -> None:
    made = folder_of(tmp_path, ["a/1.png", "b/1.png"])
    with Image.open(tmp_path / "a/1.png") as image:
        image.save(tmp_path / "a/1.png", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert np.array_equal(loaded(tmp_path).images[0].numpy().transpose(1, 2, 0), made["a/1.png"])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparency_is_white(mode: str, tmp_path: Path) -> None:
    pixels = np.full((4, 4, 4), 90, dtype=np.uint8)
    pixels[..., 3] = 255
    pixels[:2, :, 3] = 0  # hidden in the upper half
    image = Image.fromarray(pixels)
    path, options = tmp_path / "a" / "1.png", {}
    if mode in ("P", "RGB", "L"):  # one color is transparent
        pixels[:2] = 7
        plain = Image.fromarray(pixels[..., :3])
        image = plain.quantize(2) if mode == "P" else plain.convert(mode)
        options = {"transparency": (7, 7, 7) if mode == "RGB" else image.getpixel((0, 0))}
    path.parent.mkdir()
    image.convert(mode).save(path, **options)
    folder_of(tmp_path, ["b/1.png"], size=(4, 4), mode="L" if mode in ("LA", "L") else "RGB")
    source = loaded(tmp_path)
    assert source.images.shape[1] == (1 if mode in ("LA", "L") else 3)
    assert (source.images[0, :, :2] == 255).all() and (source.images[0, :, 2:] == 90).all()


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
    monkeypatch.setattr(
        image_folder, "decode_all", lambda *given, **options: calls.append(1) or decode(*given, **options)
    )
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


def archive(root: Path) -> None:
    root.write_bytes(b"PK\x03\x04")


def heic(root: Path) -> None:
    folder_of(root, ["a/1.png", "b/1.png"])
    (root / "c").mkdir()
    (root / "c/1.heic").write_bytes(b"?")


def tiny_imagenet(root: Path) -> None:
    folder_of(root, ["train/a/images/1.png", "train/b/images/1.png", "val/images/1.png"])
    (root / "val/val_annotations.txt").write_text("1.png\ta\t0\t0\t9\t9\n")


WRONG = {
    "has 0 folders of a class": nothing,
    "has 1 folders of a class": lambda root: folder_of(root, ["a/1.png"]),
    "1.png lies in no folder of a class": lambda root: folder_of(root, ["a/1.png", "b/1.png", "1.png"]),
    "c has no image that Pillow reads, and 0 other files": empty_class,
    "c has no image that Pillow reads, and 1 other files": heic,
    "mine lies in the folder of the class 'b'": deeper,
    "test/c is the folder of a class that": lambda root: folder_of(
        root, ["train/a/1.png", "train/b/1.png", "test/c/1.png"]
    ),
    "val/images is the folder of a class that": tiny_imagenet,
    r"2.png has more than 8 bits": sixteen_bits,
    "Cannot read .*2.png": no_image,
    "Cannot read .*1.png .*truncated": truncated,
    "is a file, and image-folder reads a folder. Forms of user images": archive,
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused(said: str, tmp_path: Path) -> None:
    WRONG[said](tmp_path / "photos")
    with pytest.raises(PflbenchError, match=said) as refused:
        loaded(tmp_path / "photos")
    assert str(tmp_path / "photos") in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*.bin")) or said == "Cannot read .*1.png .*truncated"
