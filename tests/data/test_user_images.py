"""User images in their four forms: what is read, and what is refused in one message."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image

from pflbench.data import content
from pflbench.data.datasets import user_images
from pflbench.data.datasets.user_images import Arrays, ClientsFolder, HfDisk, ImageFolder, UserImages
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Natural
from pflbench.data.pixels import resized, statistics
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError

RANDOM = np.random.default_rng(0)
GRAY = RANDOM.integers(256, size=(6, 5, 4), dtype=np.uint8)
COLOR = RANDOM.integers(256, size=(6, 5, 4, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])


def loaded(dataset: UserImages) -> Source:
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, dataset.name)
    assert dataset.examples == len(source.labels) - source.test and dataset.status(Path()).startswith("ready")
    return source


def refused(dataset: UserImages, says: str) -> None:
    with pytest.raises(PflbenchError, match=says) as error:
        loaded(dataset)
    message = str(error.value)
    assert str(dataset.location) in message and message.endswith(".") and "\n" not in message and len(message) < 1200


# ---- arrays


def arrays(folder: Path, options: dict[str, Any] | None = None, **held: Any) -> Arrays:
    np.savez_compressed(folder / "mine.npz", **held)
    return Arrays(file=folder / "mine.npz", **(options or {}))


def test_gray_and_colored_images_and_normalization(tmp_path: Path) -> None:
    source = loaded(arrays(tmp_path, train_images=GRAY, train_labels=LABELS[:, None]))
    assert np.array_equal(source.images.numpy(), GRAY[:, None]) and source.labels.tolist() == LABELS.tolist()
    assert (source.classes, source.test, source.kind, source.normalization) == (3, 0, None, None)
    options = {"mean": "0.1,0.2,0.3", "std": 0.5}
    source = loaded(arrays(tmp_path, options, train_images=COLOR, train_labels=LABELS))
    assert np.array_equal(source.images.numpy(), COLOR.transpose(0, 3, 1, 2))
    assert source.normalization == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    first = COLOR.transpose(0, 3, 1, 2)
    assert (
        loaded(arrays(tmp_path, {"channels_first": True}, train_images=first, train_labels=LABELS)).hash == source.hash
    )
    with pytest.raises(UsageError, match="3 channel"):
        loaded(arrays(tmp_path, {"mean": "1,2", "std": 0.5}, train_images=COLOR, train_labels=LABELS))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_255_levels(dtype: Any, tmp_path: Path) -> None:
    plain = loaded(arrays(tmp_path, train_images=(GRAY / 255).astype(dtype), train_labels=LABELS))
    assert np.array_equal(plain.images.numpy(), GRAY[:, None])
    options = {"range": "-1,1"}
    wide = loaded(arrays(tmp_path, options, train_images=(GRAY / 127.5 - 1).astype(dtype), train_labels=LABELS))
    assert np.abs(wide.images.numpy().astype(int) - GRAY[:, None]).max() <= (dtype == np.float16)


def test_a_test_split_owners_and_labels_as_text(tmp_path: Path) -> None:
    dataset = arrays(
        tmp_path,
        train_images=GRAY,
        train_labels=np.array(["dog", "cat", "owl", "owl", "cat", "dog"]),
        train_clients=np.array(["b", "b", "a", "a", "c", "c"]),
        test_images=GRAY[:2] // 2,
        test_labels=np.array(["dog", "cat"]),
        test_clients=np.array(["c", "a"]),
        val_images=GRAY,
    )
    source = loaded(dataset)
    assert np.array_equal(source.images.numpy(), np.concatenate([GRAY, GRAY[:2] // 2])[:, None])
    assert (source.labels.tolist(), source.test) == ([1, 0, 2, 2, 0, 1, 1, 0], 2)
    assert source.kind is not None and source.kind.tolist() == [1, 1, 0, 0, 2, 2, 2, 0]
    assert dataset.shape == (1, 5, 4) and dataset.files(tmp_path) == [tmp_path / "mine.npz"]


def test_normalization_from_the_data_reads_no_test_row(tmp_path: Path) -> None:
    held = {"train_images": GRAY, "train_labels": LABELS, "test_images": GRAY[:2] // 4, "test_labels": LABELS[:2]}
    assert loaded(arrays(tmp_path, {"normalize": "data"}, **held)).normalization == statistics(GRAY[:, None])


@settings(deadline=None)
@given(arrays_of.arrays(np.uint8, (3, 2, 4, 3)))
def test_statistics_are_numpys_mean_and_deviation(images: Any) -> None:
    if any(len(np.unique(images[:, c])) == 1 for c in range(2)):
        with pytest.raises(PflbenchError, match="are the same"):
            statistics(images)
        return
    mean, std = statistics(images)
    assert np.allclose(mean, (images / 255).mean((0, 2, 3)), rtol=0, atol=1e-12)
    assert np.allclose(std, (images / 255).std((0, 2, 3)), rtol=0, atol=1e-12)


def test_resizing_is_pillows(tmp_path: Path) -> None:
    whole = np.asarray(Image.fromarray(COLOR[0]).resize((8, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.array_equal(resized(COLOR[:1].transpose(0, 3, 1, 2), 8)[0], whole)
    held = {"train_images": GRAY, "train_labels": LABELS, "test_images": GRAY[:, :4], "test_labels": LABELS}
    assert loaded(arrays(tmp_path, {"size": 8}, **held)).images.shape == (12, 1, 8, 8)
    refused(arrays(tmp_path, **held), "dimensions")


def test_classes_without_training_images_need_known_classes(tmp_path: Path) -> None:
    held = {"train_images": GRAY, "train_labels": np.array([0, 1, 3, 3, 1, 0])}
    refused(arrays(tmp_path, **held), "class 2 has no training image: .* known_classes")
    assert loaded(arrays(tmp_path, {"known_classes": 62}, **held)).classes == 62


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "train_images is not a file"),
    ({"train_images": GRAY}, "train_labels is not a file"),
    ({"train_images": GRAY, "train_labels": LABELS[:5]}, "of 6 images"),
    ({"train_images": GRAY[:0], "train_labels": LABELS[:0]}, "shape"),
    ({"train_images": GRAY.reshape(6, -1), "train_labels": LABELS}, r"shape \(6, 20\)"),
    ({"train_images": GRAY.astype(np.int64), "train_labels": LABELS}, "int64"),
    ({"train_images": GRAY.astype(np.float32), "train_labels": LABELS}, "float32 from 0 to 248"),
    ({"train_images": np.where(GRAY > 9, GRAY / 255, np.nan), "train_labels": LABELS}, "nan"),
    ({"train_images": GRAY, "train_labels": LABELS - 1}, "labels go from -1"),
    ({"train_images": GRAY, "train_labels": LABELS + 1}, "class 0 has no training image"),
    ({"train_images": GRAY, "train_labels": LABELS.astype(np.float32)}, "float32, not whole numbers"),
    ({"train_images": GRAY, "train_labels": np.eye(3)[LABELS]}, "for each of 6 images"),
    ({"train_images": GRAY, "train_labels": LABELS * 0}, "two classes"),
    ({"train_images": GRAY, "train_labels": LABELS * 10**12}, "class 1 has no training image"),
    ({"train_images": GRAY, "train_labels": LABELS, "train_clients": LABELS * np.nan}, "clients are float64"),
    ({"train_images": GRAY, "train_labels": LABELS, "test_images": GRAY}, "test_labels is not a file"),
    ({"train_images": GRAY, "train_labels": np.array(LABELS.tolist(), dtype=object)}, "allow_pickle"),
]


@pytest.mark.parametrize(("held", "says"), WRONG, ids=[says for _, says in WRONG])
def test_arrays_that_are_refused(held: dict[str, Any], says: str, tmp_path: Path) -> None:
    refused(arrays(tmp_path, **held), says)


@pytest.mark.parametrize("text", [b"1,2\n", b"\x93NUMPY"])
def test_another_file_is_no_npz(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(text)
    refused(Arrays(file=tmp_path / "mine.npz"), "no .npz file")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_npz_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, train_images=GRAY, train_labels=LABELS)
    whole = file.getvalue()
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    (tmp_path / "mine.npz").write_bytes(whole[:start] + data.draw(st.binary(max_size=20)) + whole[stop:])
    try:
        loaded(Arrays(file=tmp_path / "mine.npz"))
    except PflbenchError as error:
        assert str(tmp_path / "mine.npz") in str(error) and "\n" not in str(error)


# ---- image-folder


def picture(path: Path, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> np.ndarray:
    """An image file of random pixels; width and height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(RANDOM.integers(256, size=(size[1], size[0], 3), dtype=np.uint8)).convert(mode)
    image.save(path)
    return np.asarray(image)


def folder_of(root: Path, names: list[str], **how: Any) -> dict[str, np.ndarray]:
    return {name: picture(root / name, **how) for name in names}


def colors(source: Source) -> np.ndarray:
    return source.images.numpy().transpose(0, 2, 3, 1)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    names = ["cat/a.PNG", "cat/b.png", "dog/1.png", "owl/notes.txt.png", "owl/x.png"]
    made = folder_of(tmp_path, names[::-1])
    source = loaded(ImageFolder(root=tmp_path))
    assert (source.labels.tolist(), source.classes, source.test) == ([0, 0, 1, 2, 2], 3, 0)
    assert all(np.array_equal(image, made[name]) for image, name in zip(colors(source), names, strict=True))


@pytest.mark.parametrize("second", ["test", "val"])
def test_train_and_test(second: str, tmp_path: Path) -> None:
    names = [f"{part}/{label}/images/{n}.png" for part in ("train", second) for label in ("a", "b") for n in range(2)]
    made = folder_of(tmp_path, [*names, "train/c/0.png"])
    source = loaded(ImageFolder(root=tmp_path))
    assert (source.labels.tolist(), source.test) == ([0, 0, 1, 1, 2, 0, 0, 1, 1], 4)
    assert np.array_equal(colors(source)[-1], made[f"{second}/b/images/1.png"])


def test_every_kind_of_file_that_pillow_reads_is_read_and_others_are_counted(tmp_path: Path) -> None:
    kinds = {"jfif": "JPEG", "jpe": "JPEG", "tga": "TGA", "ico": "ICO", "PNG": "PNG", "gif": "GIF", "jp2": "JPEG2000"}
    folder_of(tmp_path, ["a/1.png", "b/1.png"], size=(16, 16))
    for suffix, kind in kinds.items():
        Image.new("RGB", (16, 16), "red").save(tmp_path / "b" / f"2.{suffix}", format=kind)
    (tmp_path / "a" / ".DS_Store").write_bytes(b"?")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded(ImageFolder(root=tmp_path)).labels.tolist() == [0, *[1] * (1 + len(kinds))]
    for name in ("a/1.heic", "a/2.HEIC", "a/notes.txt", "b/nothing", "b/page.eps", "loose.png"):
        (tmp_path / name).write_bytes(b"?")
    with pytest.warns(UserWarning) as caught:
        assert len(loaded(ImageFolder(root=tmp_path)).labels) == 2 + len(kinds)
    (message,) = {str(one.message) for one in caught}
    assert "6 others" in message and ".heic" in message and str(tmp_path) in message


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(orientation: int, tmp_path: Path) -> None:
    pixels = RANDOM.integers(256, size=(4, 6, 3), dtype=np.uint8)
    across = pixels.transpose(1, 0, 2)
    turned = [
        *(pixels, pixels[:, ::-1], pixels[::-1, ::-1], pixels[::-1]),
        *(across, across[:, ::-1], across[::-1, ::-1], across[::-1]),
    ][orientation - 1]
    exif = Image.Exif()
    exif[0x112] = orientation
    for name in ("a/1.png", "b/1.webp", "b/2.tiff"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        options = {"lossless": True} if name.endswith("webp") else {}
        Image.fromarray(pixels).save(tmp_path / name, exif=exif, **options)
    assert all(np.array_equal(image, turned) for image in colors(loaded(ImageFolder(root=tmp_path))))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparency_is_white(mode: str, tmp_path: Path) -> None:
    pixels = np.full((4, 4, 4), 90, dtype=np.uint8)
    pixels[..., 3] = 255
    pixels[:2, :, 3] = 0  # hidden in the upper half
    image, options = Image.fromarray(pixels), {}
    if mode in ("P", "RGB", "L"):  # one color is transparent
        pixels[:2] = 7
        plain = Image.fromarray(pixels[..., :3])
        image = plain.quantize(2) if mode == "P" else plain.convert(mode)
        options = {"transparency": (7, 7, 7) if mode == "RGB" else image.getpixel((0, 0))}
    (tmp_path / "a").mkdir()
    image.convert(mode).save(tmp_path / "a" / "1.png", **options)
    folder_of(tmp_path, ["b/1.png"], size=(4, 4), mode="L" if mode in ("LA", "L") else "RGB")
    source = loaded(ImageFolder(root=tmp_path))
    assert source.images.shape[1] == (1 if mode in ("LA", "L") else 3)
    assert (source.images[0, :, :2] == 255).all() and (source.images[0, :, 2:] == 90).all()


def test_gray_images_and_several_sizes(tmp_path: Path) -> None:
    made = folder_of(tmp_path, ["a/1.png", "b/1.png"], mode="L")
    source = loaded(ImageFolder(root=tmp_path))
    assert source.images.shape == (2, 1, 5, 6) and np.array_equal(source.images[1, 0].numpy(), made["b/1.png"])
    assert loaded(ImageFolder(root=tmp_path, channels=3)).images.shape == (2, 3, 5, 6)
    picture(tmp_path / "b/2.png", (9, 5))
    refused(ImageFolder(root=tmp_path), r"b/2.png .*size = 32")
    assert loaded(ImageFolder(root=tmp_path, size=8)).images.shape == (3, 3, 8, 8)
    assert loaded(ImageFolder(root=tmp_path, size=8, channels=1)).images.shape == (3, 1, 8, 8)


def test_images_are_decoded_once_and_again_when_one_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path, ["a/1.png", "b/1.png"])
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 60,) * 2)
    calls: list[int] = []
    decode = user_images.user_pixels
    monkeypatch.setattr(user_images, "user_pixels", lambda *held: calls.append(1) or decode(*held))
    first, again = (loaded(ImageFolder(root=tmp_path, normalize="data")) for _ in range(2))
    assert len(calls) == 1 and first.hash == again.hash and first.normalization == again.normalization
    picture(tmp_path / "b" / "1.png")
    assert loaded(ImageFolder(root=tmp_path)).hash != first.hash and len(calls) == 2


def test_content_is_that_of_visible_files_and_folders(tmp_path: Path) -> None:
    def hash() -> str | None:
        return content.of_dataset(ImageFolder(root=tmp_path / "photos"), tmp_path, 0)

    folder_of(tmp_path / "photos", ["cat/1.png", "dog/1.png"])
    before = hash()
    (tmp_path / "photos" / "cat" / ".DS_Store").write_bytes(b"1")
    assert hash() == before
    (tmp_path / "photos" / "dog").rename(tmp_path / "photos" / "wolf")
    assert hash() != before


def written(root: Path, name: str, data: bytes) -> None:
    folder_of(root, ["a/1.png", "b/1.png"])
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(data)


FOLDERS: dict[str, Callable[[Path], object]] = {
    "cannot be read as image-folder": lambda root: root.mkdir(),
    "two classes": lambda root: folder_of(root, ["a/1.png"]),
    "no image in a folder of a class": lambda root: (root / "train").mkdir(parents=True),
    "c has no image that Pillow reads": lambda root: written(root, "c/1.heic", b"?"),
    "mine lies in the folder of a class": lambda root: folder_of(root, ["a/1.png", "b/mine/1.png"]),
    "class c has test images": lambda root: folder_of(root, ["train/a/1.png", "train/b/1.png", "test/c/1.png"]),
    "Cannot read .*2.png": lambda root: written(root, "b/2.png", b"no image"),
    "Forms of user images": lambda root: root.write_bytes(b"PK\x03\x04"),
}


@pytest.mark.parametrize("says", FOLDERS)
def test_folders_that_are_refused(says: str, tmp_path: Path) -> None:
    FOLDERS[says](tmp_path / "photos")
    refused(ImageFolder(root=tmp_path / "photos"), says)


def test_more_than_8_bits_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, ["a/1.png", "b/1.png"])
    Image.fromarray(np.full((5, 6), 999, dtype=np.uint16)).save(tmp_path / "b/2.png")
    refused(ImageFolder(root=tmp_path), r"2.png .*more than 8 bits")


@pytest.mark.parametrize("made", [Arrays, ImageFolder, ClientsFolder, HfDisk])
def test_a_missing_path(made: Any, tmp_path: Path) -> None:
    dataset = made(**{made.option: tmp_path / "mine"})
    assert dataset.status(tmp_path) == f"missing: {tmp_path / 'mine'}"
    for action in (lambda: dataset.shape, lambda: dataset.load(tmp_path, 0), lambda: dataset.fetch(tmp_path)):
        with pytest.raises(DataMissing, match="mine"):
            action()


# ---- clients-folder

SIZES = {"train": (4, 6, 3), "test": (2, 1, 3)}
"""Rows of three clients."""
CLIENTS = {
    part: [(RANDOM.integers(256, size=(n, 5, 5), dtype=np.uint8), np.arange(n) % 3) for n in SIZES[part]]
    for part in SIZES
}


def clients_folder(folder: Path, form: str = "data", names: tuple[str, ...] = ("0", "1", "2")) -> Path:
    """The folder that PFLlib's `save_file` writes ("data"), also with labels as objects; or plain arrays x and y."""
    for part, clients in CLIENTS.items():
        (folder / part).mkdir(parents=True)
        for name, (images, labels) in zip(names, clients, strict=True):
            y = labels.astype(object) if form == "objects" else labels
            levels = images[:, None] / 127.5 - 1 if form == "wide" else images[:, None] / 255
            held = {"x": levels.astype(np.float32), "y": y}
            np.savez_compressed(folder / part / f"{name}.npz", **(held if form == "plain" else {"data": held}))
    (folder / "config.json").write_text('{"num_clients": 3}')
    return folder


@pytest.mark.parametrize("form", ["data", "objects", "plain", "wide"])
@pytest.mark.parametrize("names", [("9", "10", "11"), ("a", "b", "c")])
def test_each_client_has_its_files(form: str, names: tuple[str, ...], tmp_path: Path) -> None:
    folder = clients_folder(tmp_path / "mine", form, names)
    source = loaded(ClientsFolder(root=folder, range="-1,1" if form == "wide" else None))
    parts = [part for clients in CLIENTS.values() for part in clients]
    assert np.array_equal(source.images.numpy()[:, 0], np.concatenate([images for images, _ in parts]))
    assert np.array_equal(source.labels, np.concatenate([labels for _, labels in parts]))
    assert source.test == 6 and source.kind is not None
    assert source.kind.tolist() == np.repeat([0, 1, 2, 0, 1, 2], SIZES["train"] + SIZES["test"]).tolist()
    federation = build(source, Natural(), clients=3, training_clients=3, query="partition", seed=0)
    assert [len(rows) for rows in federation.support] == [4, 6, 3] and [len(q) for q in federation.query] == [2, 1, 3]


def test_clients_without_test_rows(tmp_path: Path) -> None:
    folder = clients_folder(tmp_path / "mine")
    np.savez(folder / "test" / "1.npz", x=np.empty((0, 1, 5, 5), np.float32), y=np.empty(0, np.int64))
    assert loaded(ClientsFolder(root=folder)).test == 5
    for path in (folder / "test").iterdir():
        path.unlink()
    assert loaded(ClientsFolder(root=folder)).test == 0


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("evil"),)


def one(**held: Any) -> Callable[[Path], object]:
    return lambda folder: np.savez(folder / "train" / "1.npz", **held)


IMAGES, NUMBERS = CLIENTS["train"][0]
CLIENT_FILES: dict[str, Callable[[Path], object]] = {
    "Forms of user images": lambda folder: [(folder / part).rename(folder / f"{part}ed") for part in ("train", "test")],
    "1 clients with a test file and no training file": lambda folder: (folder / "train" / "1.npz").unlink(),
    "1.npz does not have images x": one(images=IMAGES, labels=NUMBERS),
    "reshape": one(x=IMAGES, y=NUMBERS[:3]),
    "allow_pickle": one(x=IMAGES, y=np.array([1, None, 2, 3], dtype=object)),
    "dimensions": one(x=IMAGES[:, :4], y=NUMBERS),
    "it asks for ": one(data=np.array({"x": Evil(), "y": NUMBERS}, dtype=object)),
    "does not have": one(data=np.array([1, None], dtype=object)),
    "shape|homogeneous": one(data=np.array({"x": [[1], [1, 2]], "y": [0, 1]}, dtype=object)),
}


@pytest.mark.parametrize("says", CLIENT_FILES)
def test_client_files_that_are_refused(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CLIENT_FILES[says](clients_folder(tmp_path / "mine"))
    refused(ClientsFolder(root=tmp_path / "mine"), says)
    assert not Path("evil").exists()


# ---- hf-disk

datasets = pytest.importorskip("datasets")
ANIMALS = ["ant", "bee", "cat"]


def png(image: Image.Image, **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    image.save(file, format="PNG", **options)
    return {"bytes": file.getvalue(), "path": None}


def table(rows: slice = slice(None), **change: tuple[Any, Any]) -> Any:
    """A `Dataset` of the library. `change`: features and values of columns by name."""
    columns = {
        "image": (datasets.Image(), [png(Image.fromarray(image)) for image in COLOR[rows]]),
        "label": (datasets.ClassLabel(names=ANIMALS), LABELS.tolist()[rows]),
        "writer": (datasets.Value("string"), list("babaab")[rows]),
    } | change
    features = datasets.Features({name: feature for name, (feature, _) in columns.items()})
    return datasets.Dataset.from_dict({name: values for name, (_, values) in columns.items()}, features=features)


@pytest.mark.parametrize("shards", [1, 3])
def test_one_saved_dataset(shards: int, tmp_path: Path) -> None:
    table().save_to_disk(tmp_path, num_shards=shards)
    source = loaded(HfDisk(path=tmp_path))
    assert np.array_equal(colors(source), COLOR)
    assert (source.labels.tolist(), source.classes, source.test, source.kind) == (LABELS.tolist(), 3, 0, None)
    assert loaded(HfDisk(path=tmp_path, size=8, channels=1, normalize="data")).images.shape == (6, 1, 8, 8)


@pytest.mark.parametrize("second", ["test", "validation"])
def test_splits_owners_and_columns(second: str, tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(), second: table(slice(1, 4)), "other": table()}).save_to_disk(tmp_path / "a")
    source = loaded(HfDisk(path=tmp_path / "a", client="writer"))
    assert (source.labels.tolist(), source.test) == ([*LABELS.tolist(), 1, 2, 2], 3)
    assert source.kind is not None and source.kind.tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 0]
    assert loaded(HfDisk(path=tmp_path / "a", train="other", test="train")).test == 6
    coarse = (datasets.ClassLabel(names=["x", "y"]), [0, 1] * 3)
    table(coarse=coarse).select([5, 1, 2]).save_to_disk(tmp_path / "b")
    refused_columns = HfDisk(path=tmp_path / "b")
    with pytest.raises(PflbenchError, match=r'label = "…": one of image, label, writer, coarse'):
        loaded(refused_columns)
    assert loaded(HfDisk(path=tmp_path / "b", label="label")).labels.tolist() == [0, 1, 2]


def test_saved_images_are_upright_and_transparency_is_white(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = 6  # to be turned by a quarter, clockwise
    turned = [png(Image.fromarray(image), exif=exif) for image in COLOR]
    table(image=(datasets.Image(), turned)).save_to_disk(tmp_path / "turned")
    assert np.array_equal(colors(loaded(HfDisk(path=tmp_path / "turned"))), np.rot90(COLOR, -1, axes=(1, 2)))
    clear = [png(Image.fromarray(np.dstack([image, 0 * image[..., 0]]))) for image in COLOR]
    table(image=(datasets.Image(), clear)).save_to_disk(tmp_path / "clear")
    assert (loaded(HfDisk(path=tmp_path / "clear")).images.numpy() == 255).all()


def test_content_without_the_librarys_cache(tmp_path: Path) -> None:
    table().save_to_disk(tmp_path / "mine")
    first = content.of_dataset(HfDisk(path=tmp_path / "mine"), tmp_path, 0)
    (tmp_path / "mine" / "cache-0123.arrow").write_bytes(b"cached")
    assert content.of_dataset(HfDisk(path=tmp_path / "mine"), tmp_path, 0) == first


PICTURES = [png(Image.fromarray(image)) for image in COLOR]
SAVED: dict[str, Callable[[Path], object]] = {
    "Forms of user images": lambda f: (table().save_to_disk(f), (f / "dataset_info.json").unlink()),
    "cannot be read": lambda f: (table().save_to_disk(f), (f / "data-00000-of-00001.arrow").write_bytes(b"ARROW1")),
    "cannot be read as hf-disk": lambda f: table(
        image=(datasets.Image(), [*PICTURES[:3], None, *PICTURES[4:]])
    ).save_to_disk(f),
    "hf-disk": lambda f: table(label=(datasets.ClassLabel(names=ANIMALS), [None, *LABELS[1:].tolist()])).save_to_disk(
        f
    ),
}


@pytest.mark.parametrize("says", SAVED)
def test_saved_datasets_that_are_refused(says: str, tmp_path: Path) -> None:
    SAVED[says](tmp_path / "mine")
    refused(HfDisk(path=tmp_path / "mine"), says)
