"""Malformed user files: one clear message, nothing half-written, and the files as they were."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from pflbench.data.datasets.arrays import Arrays
from pflbench.data.datasets.clients_folder import ClientsFolder
from pflbench.data.datasets.hf_disk import HfDisk
from pflbench.data.datasets.image_folder import ImageFolder
from pflbench.data.source import Dataset, check_source
from pflbench.errors import PflbenchError

IMAGES = np.random.default_rng(0).integers(256, size=(6, 5, 5), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])

many = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def somewhere() -> Iterator[Path]:
    """A folder for a user's files, with a cache of its own beside it."""
    with tempfile.TemporaryDirectory() as name, mock.patch.dict("os.environ", {"XDG_CACHE_HOME": f"{name}/cache"}):
        (Path(name) / "mine").mkdir()
        yield Path(name) / "mine"


def held(folder: Path) -> dict[str, bytes | None]:
    below = sorted(folder.rglob("*"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in below}


def tried(dataset: Dataset, folder: Path, *, malformed: bool = False) -> str | None:
    """The message of what is asked of a dataset, each of which either goes well or is refused in one; None: it loads."""
    before, said = held(folder), set()
    refused = None
    for ask in (
        lambda: (dataset.shape, dataset.classes, dataset.examples),
        lambda: list(dataset.files(folder)),
        lambda: check_source(dataset.load(folder, 0), dataset, "it"),
    ):
        try:
            ask()
        except PflbenchError as error:
            refused = str(error)
            said.add(refused)
    for message in said:
        assert str(folder) in message and message.endswith(".") and "\n" not in message and len(message) < 900, message
    if refused is not None:
        half = [path for path in (folder.parent / "cache").rglob("*") if path.name.startswith(".")]
        assert half == [], refused
    assert held(folder) == before and list(folder.parent.glob("*")) in (
        [folder.parent / "mine"],
        [folder.parent / "cache", folder.parent / "mine"],
        [folder.parent / "mine", folder.parent / "cache"],
    )
    assert refused is not None or not malformed
    return refused


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def plain_npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def png(pixels: Any = IMAGES[0], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind)
    return file.getvalue()


@st.composite
def damaged(draw: Callable[..., Any], whole: bytes) -> bytes:
    """Bytes that are cut, changed, doubled or left out somewhere."""
    start = draw(st.integers(0, len(whole) - 1))
    stop = draw(st.integers(start, min(len(whole), start + 40)))
    how = draw(st.sampled_from(["cut", "change", "double", "leave out"]))
    if how == "cut":
        return whole[:start]
    if how == "change":
        return whole[:start] + draw(st.binary(min_size=stop - start, max_size=stop - start)) + whole[stop:]
    return (
        whole[:stop] + whole[start if how == "double" else len(whole) :]
        if how == "double"
        else whole[:start] + whole[stop:]
    )


# ---- arrays


@many
@given(st.data(), st.sampled_from([npz(images=IMAGES, labels=LABELS), plain_npz(images=IMAGES, labels=LABELS)]))
def test_a_damaged_npz(data: st.DataObject, whole: bytes) -> None:
    with somewhere() as folder:
        (folder / "mine.npz").write_bytes(data.draw(damaged(whole)))
        tried(Arrays(file=folder / "mine.npz"), folder)


@many
@given(st.data())
def test_half_an_npz_is_always_refused(data: st.DataObject) -> None:
    whole = npz(images=IMAGES, labels=LABELS)
    with somewhere() as folder:
        (folder / "mine.npz").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        tried(Arrays(file=folder / "mine.npz"), folder, malformed=True)


ODD = {
    "type": IMAGES.astype(np.complex64),
    "whole numbers": IMAGES.astype(np.int32),
    "text": IMAGES.astype(str),
    "objects": IMAGES.astype(object),
    "dates": IMAGES.astype("datetime64[s]"),
    "records": np.zeros(6, dtype=[("a", "u1")]),
    "not a number": np.full((6, 5, 5), np.nan, dtype=np.float32),
    "infinite": np.full((6, 5, 5), -np.inf),
    "too bright": IMAGES.astype(np.float32),
    "no image": IMAGES[:0],
    "no pixel": IMAGES[:, :0],
    "one number": np.array(3, dtype=np.uint8),
    "flat": IMAGES.reshape(6, -1),
    "five axes": IMAGES[:, None, None],
    "where are the channels": np.zeros((6, 3, 5, 3), dtype=np.uint8),
    "too few": IMAGES[:5],
}
ODD_LABELS = {
    "negative": LABELS - 1,
    "a gap": LABELS * 2,
    "huge": LABELS + 2**62,
    "unsigned and huge": LABELS.astype(np.uint64) + np.uint64(2**63),
    "one class": LABELS * 0,
    "floats": LABELS / 1,
    "one-hot": np.eye(3)[LABELS],
    "objects": LABELS.astype(object),
    "one number": np.array(1),
    "no text": np.array([b"\xff"] * 3 + [b"a"] * 3),
    "dates": LABELS.astype("datetime64[s]"),
    "too many": np.tile(LABELS, 2),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("which", ["images", "test_images"])
def test_images_that_are_none(odd: str, which: str) -> None:
    arrays = {"images": IMAGES, "labels": LABELS, "test_images": IMAGES, "test_labels": LABELS} | {which: ODD[odd]}
    with somewhere() as folder:
        (folder / "mine.npz").write_bytes(npz(**arrays))
        tried(Arrays(file=folder / "mine.npz"), folder, malformed=True)


@pytest.mark.parametrize("odd", ODD_LABELS)
def test_labels_that_are_none(odd: str) -> None:
    with somewhere() as folder:
        (folder / "mine.npz").write_bytes(npz(images=IMAGES, labels=ODD_LABELS[odd]))
        tried(Arrays(file=folder / "mine.npz"), folder, malformed=True)


def header_of(text: str) -> bytes:
    """A .npy file whose header is this text."""
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(150)


@many
@given(st.lists(st.integers(-3, 2**70), max_size=5), st.sampled_from(["|u1", "<f8", "|O", "<U9", "nonsense", "|V0"]))
@example([10**6, 10**6, 10**6], "|u1")
def test_a_header_that_says_anything(shape: list[int], dtype: str) -> None:
    with somewhere() as folder:
        with zipfile.ZipFile(folder / "mine.npz", "w") as file:
            said = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
            file.writestr("images.npy", header_of(said))
            file.writestr("labels.npy", zipfile.Path(io.BytesIO(npz(labels=LABELS)), "labels.npy").read_bytes())
        tried(Arrays(file=folder / "mine.npz"), folder, malformed=shape != [6, 5, 5])


# ---- folders of images


TREE = {f"{label}/{n}.png": png() for label in ("ant", "bee") for n in range(2)}


def planted(folder: Path, tree: dict[str, bytes | None]) -> Path:
    """A folder with these files; None: an empty folder."""
    for name, data in tree.items():
        path = folder / "photos" / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return folder / "photos"


ODD_TREES: dict[str, dict[str, bytes | None]] = {
    "empty": {"": None},
    "empty class": TREE | {"cat": None},
    "one class": {"ant/1.png": png()},
    "no image at all": {"ant": None, "bee": None},
    "an image beside": TREE | {"1.png": png()},
    "text": TREE | {"ant/7.jpg": b"text"},
    "nothing": TREE | {"ant/7.jpg": b""},
    "half": TREE | {"ant/7.png": png(np.tile(IMAGES[0], (50, 50)))[:2000]},
    "another size": TREE | {"ant/7.png": png(IMAGES[0, :3])},
    "16 bits": TREE | {"ant/7.png": png(IMAGES[0].astype(np.uint16))},
    "too deep": TREE | {"ant/more/7.png": png()},
    "class of the test split alone": {f"train/{name}": data for name, data in TREE.items()} | {"test/cat/1.png": png()},
    "image in place of a folder": {"train/ant/1.png": png(), "train/bee": b"", "train/1.png": png()},
}


@pytest.mark.parametrize("odd", ODD_TREES)
def test_folders_of_images_that_are_none(odd: str) -> None:
    with somewhere() as folder:
        root = planted(folder, ODD_TREES[odd])
        tried(ImageFolder(root=root), folder, malformed=True)


@many
@given(st.data(), st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]), st.sampled_from([None, 4]))
def test_a_damaged_image(data: st.DataObject, kind: str, size: int | None) -> None:
    odd = {f"ant/7.{kind.lower()}": data.draw(damaged(png(IMAGES[0], kind)))}
    with somewhere() as folder:
        tried(ImageFolder(root=planted(folder, TREE | odd), size=size), folder)


# ---- clients


def as_json(**held: Any) -> bytes:
    return json.dumps(held).encode()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xya"), inner, max_size=3),
    max_leaves=8,
)


PFLLIB = npz(data=np.array({"x": IMAGES / 255, "y": LABELS}, dtype=object))


@many
@given(st.data())
def test_a_damaged_pickle_in_an_npz(data: st.DataObject) -> None:
    with somewhere() as folder:
        pickled = data.draw(damaged(zipfile.Path(io.BytesIO(PFLLIB), "data.npy").read_bytes()))
        (folder / "train").mkdir()
        with zipfile.ZipFile(folder / "train" / "0.npz", "w") as file:
            file.writestr("data.npy", pickled)
        tried(ClientsFolder(root=folder), folder)


# ---- what the library datasets saves


def arrow() -> bytes:
    pictures = pa.array([{"bytes": png(image), "path": None} for image in IMAGES])
    table = pa.table({"image": pictures, "label": pa.array(LABELS)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


SAVED = {
    "data-00000-of-00001.arrow": arrow(),
    "state.json": as_json(_data_files=[{"filename": "data-00000-of-00001.arrow"}]),
    "dataset_info.json": as_json(features={"image": {"_type": "Image"}, "label": {"_type": "Value"}}),
}


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


@many
@given(st.data(), st.sampled_from(sorted(SAVED)))
def test_a_damaged_file_of_a_saved_dataset(data: st.DataObject, name: str) -> None:
    with somewhere() as folder:
        put(folder, SAVED | {name: data.draw(damaged(SAVED[name]))})
        tried(HfDisk(path=folder), folder)


@many
@given(anything, st.sampled_from(["features", "_data_files", "splits"]))
def test_a_saved_dataset_that_says_anything(value: Any, where: str) -> None:
    files = {"features": "dataset_info.json", "_data_files": "state.json", "splits": "dataset_dict.json"}
    with somewhere() as folder:
        put(folder, SAVED | {files[where]: as_json(**{where: value})})
        tried(HfDisk(path=folder), folder, malformed=True)


@pytest.mark.parametrize("make", [Arrays, ImageFolder, ClientsFolder, HfDisk])
def test_whatever_is_there_in_place_of_it(make: Any) -> None:
    option = {"Arrays": "file", "HfDisk": "path"}.get(make.__name__, "root")
    for put_there in (
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x"),
    ):
        with somewhere() as folder:
            put_there(folder / "it")
            tried(make(**{option: folder / "it"}), folder, malformed=True)
