"""EMNIST, from small files in the real format."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets as torchvision

from pflbench.data.datasets import mnist
from pflbench.data.datasets.mnist import EMNIST, EmnistSplit
from pflbench.errors import DataMissing, PflbenchError, UsageError

SPLITS = (("train", 20), ("test", 10))


def digits(count: int) -> np.ndarray:
    return np.arange(count) % 10


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


def write_emnist(root: Path, split: str, *, labels: np.ndarray | None = None, zipped: bool = False) -> None:
    folder = root / "EMNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for which, count in SPLITS:
        names = (digits(count) + (split == "letters") if labels is None else labels[:count]).astype(np.uint8)
        contents = {
            "images-idx3": struct.pack(">4i", 2051, count, 28, 28) + pixels(count, 28, 28).tobytes(),
            "labels-idx1": struct.pack(">2i", 2049, count) + names.tobytes(),
        }
        for what, content in contents.items():
            path = folder / f"emnist-{split}-{which}-{what}-ubyte{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """EMNIST with few images in every split."""
    counts = {name: EmnistSplit(20, 10, count.classes) for name, count in mnist.EMNIST_SPLITS.items()}
    monkeypatch.setattr(mnist, "EMNIST_SPLITS", counts)


@pytest.mark.parametrize("split", list(mnist.EMNIST_SPLITS))
@pytest.mark.parametrize("zipped", [False, True])
def test_emnist_is_upright_and_letters_begin_at_0(split: Any, zipped: bool, small: None, tmp_path: Path) -> None:
    write_emnist(tmp_path, split, zipped=zipped)
    dataset = EMNIST(split)
    source = dataset.load(tmp_path, 0)
    expected = np.concatenate([pixels(count, 28, 28) for _, count in SPLITS]).transpose(0, 2, 1)[:, None]
    assert np.array_equal(source.images, expected) and source.test == 10
    assert source.labels.tolist() == [*digits(20), *digits(10)]
    assert source.classes == dataset.classes and source.normalization is None
    assert dataset.status(tmp_path).startswith("ready: 30 images in")


def test_emnist_reads_as_torchvision_reads_it(small: None, tmp_path: Path) -> None:
    write_emnist(tmp_path, "balanced")
    splits = [torchvision.EMNIST(tmp_path, split="balanced", train=train) for train in (True, False)]
    source = EMNIST().load(tmp_path, 0)
    assert torch.equal(source.images[:, 0].transpose(1, 2), torch.cat([split.data for split in splits]))
    assert np.array_equal(source.labels, torch.cat([split.targets for split in splits]))


def test_classes_are_as_torchvision_counts_them() -> None:
    for name, counts in mnist.EMNIST_SPLITS.items():
        assert counts.classes == len(set(torchvision.EMNIST.classes_split_dict[name]) - {"N/A"})


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    dataset = EMNIST("letters")
    assert dataset.status(tmp_path).startswith("missing: ")
    with pytest.raises(DataMissing, match="raw/emnist-letters-train-images-idx3-ubyte, "):
        dataset.load(tmp_path, 0)
    monkeypatch.setattr("torchvision.datasets.EMNIST.__init__", offline)
    with pytest.raises(DataMissing, match="no network"):
        dataset.fetch(tmp_path)


def test_damaged_files_are_named(tmp_path: Path, small: None) -> None:
    raw = tmp_path / "EMNIST" / "raw"
    write_emnist(tmp_path, "letters")
    path = raw / "emnist-letters-test-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")  # letters begin at 1
    with pytest.raises(PflbenchError, match=re.escape(str(path))):
        EMNIST("letters").load(tmp_path, 0)
    write_emnist(tmp_path, "digits", zipped=True)
    path = raw / "emnist-digits-train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(PflbenchError, match=re.escape(str(path))):
        EMNIST("digits").load(tmp_path, 0)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match="byclas"):
        EMNIST("byclas")  # type: ignore[arg-type]
