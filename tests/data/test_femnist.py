"""The letters of FEMNIST: the three forms they come in, written here as their publishers write them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from pflbench.data.datasets.femnist import FEMNISTLetters
from pflbench.data.federation import build
from pflbench.data.partitions.fedec import LetterUsers
from pflbench.data.pixels import image_pixels
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, PflbenchError

SOURCES = ("nist", "emnist", "leaf")
CODES = ["61", "62", "63", "64", "65", "66", "67", "68", "69", "6a"]
EACH = 3
CHARACTERS = np.random.default_rng(0).permutation(np.arange(124) % 62)
"""The labels of a small EMNIST and a small LEAF: every character twice."""
PIXELS = np.random.default_rng(1).integers(0, 256, (124, 28, 28), dtype=np.uint8)


def write_nist(root: Path) -> None:
    """Three images of every letter, of one gray level each, the last ones first; and what else lies there."""
    for label, code in reversed(list(enumerate(CODES))):
        for folder in (f"train_{code}", "hsf_0"):
            (root / "by_class" / code / folder).mkdir(parents=True)
            for k in reversed(range(EACH)):
                level = 255 if folder == "hsf_0" else 20 * label + k
                path = root / "by_class" / code / folder / f"{folder}_{k:05}.png"
                Image.new("RGB", (128, 128), (level,) * 3).save(path)
        (root / "by_class" / code / f"train_{code}.mit").write_text("no image")
        (root / "by_class" / code / f"train_{code}" / "notes.txt").write_text("no image")


def write_emnist(root: Path) -> None:
    folder = root / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    images = struct.pack(">4i", 2051, 124, 28, 28) + PIXELS.tobytes()
    labels = struct.pack(">2i", 2049, 124) + CHARACTERS.astype(np.uint8).tobytes()
    for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
        for part in ("train", "test"):
            (folder / f"emnist-byclass-{part}-{kind}-ubyte").write_bytes(data)


def write_leaf(root: Path) -> None:
    """Four files, two writers in each, who are not in the order of their names; six decimals, as LEAF's files have."""
    parts = np.array_split(np.arange(124), 8)
    for k, name in enumerate(("train/all_data_0", "train/all_data_1", "test/all_data_0", "test/all_data_1")):
        path = root / "femnist" / "data" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        users = {f"w{9 - i}": parts[i] for i in (2 * k, 2 * k + 1)}
        held = {
            user: {"x": (PIXELS[rows].reshape(-1, 784) / 255).round(6).tolist(), "y": CHARACTERS[rows].tolist()}
            for user, rows in users.items()
        }
        sizes = [len(rows) for rows in users.values()]
        path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": held}))


WRITE: dict[str, Callable[[Path], None]] = {"nist": write_nist, "emnist": write_emnist, "leaf": write_leaf}


def lanczos(image: np.ndarray, side: int) -> np.ndarray:
    """Shrinking by the definition of the filter, one pixel after the other: rows first, rounded, then columns."""
    scale = len(image) / side
    out = np.empty((side, image.shape[1]))
    for i in range(side):
        center = (i + 0.5) * scale
        at = (np.arange(len(image)) + 0.5 - center) / scale
        weight = np.where(np.abs(at) < 3, np.sinc(at) * np.sinc(at / 3), 0)
        out[i] = weight @ image / weight.sum()
    out = out.round().clip(0, 255)
    return out if image.shape[1] == side else lanczos(out.T, side).T


# ---- each form


def test_nist_is_read_by_letter_and_file_name(tmp_path: Path) -> None:
    write_nist(tmp_path)
    source = FEMNISTLetters().load(tmp_path, 0)
    assert source.labels.tolist() == np.repeat(np.arange(10), EACH).tolist()
    levels = [20 * label + k for label in range(10) for k in range(EACH)]
    assert torch.equal(
        source.images, torch.tensor(levels, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 28, 28)
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "1"])
def test_nists_images_are_shrunk_with_lanczos(mode: str, tmp_path: Path) -> None:
    strokes = np.full((128, 128), 255, dtype=np.uint8)
    strokes[30:100, 50:58] = 0
    strokes[60:70, 20:110] = 0
    Image.fromarray(strokes).convert(mode).save(tmp_path / "a.png")
    found = image_pixels(tmp_path / "a.png", 1, (28, 28), sharp=True)[0]
    assert found.dtype == np.uint8 and found.shape == (28, 28)
    assert np.abs(found - lanczos(strokes.astype(float).T, 28).T).max() <= 2
    assert found[0, 0] == 255 and found.min() < 30  # ink stays dark, paper white


def test_emnist_is_turned_upright_and_inverted(tmp_path: Path) -> None:
    write_emnist(tmp_path)
    source = FEMNISTLetters("emnist").load(tmp_path, 0)
    read = torchvision.datasets.EMNIST(tmp_path, split="byclass", train=True)
    chosen = [i for i, target in enumerate(read.targets.tolist()) if target in range(36, 46)]
    assert len(chosen) == 20
    assert torch.equal(source.images[:, 0], 255 - read.data[chosen].mT)
    assert source.labels.tolist() == (read.targets[chosen] - 36).tolist()


def test_leaf_is_read_file_by_file(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    source = FEMNISTLetters("leaf").load(tmp_path, 0)
    chosen = np.flatnonzero((CHARACTERS >= 36) & (CHARACTERS < 46))
    assert np.array_equal(source.images[:, 0].numpy(), PIXELS[chosen])
    assert source.labels.tolist() == (CHARACTERS[chosen] - 36).tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_what_all_forms_have_in_common(name: Any, tmp_path: Path) -> None:
    WRITE[name](tmp_path)
    dataset = FEMNISTLetters(name)
    source, again = dataset.load(tmp_path, 0), dataset.load(tmp_path, 1)
    assert source.images.shape[1:] == dataset.shape == (1, 28, 28) and source.images.dtype == torch.uint8
    assert source.labels.dtype == np.int64 and set(source.labels) == set(range(10))
    assert source.classes == dataset.classes == 10 and dataset.examples == 40_000
    assert source.kind is None and source.test == 0 and source.normalization is None and not dataset.seeded
    assert torch.equal(source.images, again.images) and source.hash == again.hash
    assert dataset.status(tmp_path).startswith("ready")
    dataset.fetch(tmp_path)  # nothing to do


def test_the_hash_tells_the_forms_apart(tmp_path: Path) -> None:
    for write in WRITE.values():
        write(tmp_path)
    assert len({FEMNISTLetters(name).load(tmp_path, 0).hash for name in SOURCES}) == 3  # type: ignore[arg-type]


# ---- what is missing or damaged


MISSING = {
    "nist": ("by_class/61/train_61", r"SD19/by_class\.zip"),
    "emnist": ("EMNIST/raw/emnist-byclass-train-images-idx3-ubyte", "emnist-byclass"),
    "leaf": ("femnist/data/train/*.json", r"preprocess\.sh"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_missing_files_are_named(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no route to host")

    monkeypatch.setattr("torchvision.datasets.EMNIST", fail)
    dataset, (file, says) = FEMNISTLetters(name), MISSING[name]
    assert dataset.status(tmp_path).startswith("missing: ") and file in dataset.status(tmp_path)
    for action in (lambda: dataset.load(tmp_path, 0), lambda: dataset.fetch(tmp_path)):
        with pytest.raises(DataMissing, match=says) as error:
            action()
        assert file in str(error.value) and str(tmp_path) in str(error.value)
    assert ("no route" in str(error.value)) == (name == "emnist")


def test_one_missing_folder_is_enough(tmp_path: Path) -> None:
    write_nist(tmp_path)
    folder = tmp_path / "by_class" / "64" / "train_64"
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises((DataMissing, PflbenchError), match="train_64"):
        FEMNISTLetters().load(tmp_path, 0)
    folder.rmdir()
    assert FEMNISTLetters().status(tmp_path) == f"missing: {folder}"


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    write_nist(tmp_path)
    path = tmp_path / "by_class" / "62" / "train_62" / "train_62_00001.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(PflbenchError, match=r"train_62_00001\.png"):
        FEMNISTLetters().load(tmp_path, 0)


@pytest.mark.data
def test_real_leaf(real: Callable[[Dataset], Path]) -> None:
    dataset = FEMNISTLetters("leaf")
    root = real(dataset)
    source = dataset.load(root, 0)
    counts = np.zeros(62, dtype=int)
    for path in (root / "femnist" / "data").glob("t*/*.json"):
        for user in json.loads(path.read_text())["user_data"].values():
            counts += np.bincount(user["y"], minlength=62)
    assert np.array_equal(np.bincount(source.labels), counts[36:46])
    pixels = source.images[:, 0]
    corners = pixels[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners == 255).double().mean() > 0.99  # white paper
    assert ((pixels < 128).flatten(1).any(1)).double().mean() > 0.99  # with ink on it
    federation = build(source, LetterUsers(scale=0.2), clients=30, training_clients=30, query="partition", seed=0)
    assert len(federation.test) == 0 and len(federation.support) == 30
