"""Fashion-MNIST: both splits, against torchvision's loader where the files are there."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets as torchvision

from pflbench.data.datasets.digit_five import DigitFive
from pflbench.data.datasets.mnist import TEST, TRAIN, FashionMNIST
from pflbench.data.source import HALF, Dataset, UnofficialFile
from pflbench.errors import UsageError


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a Fashion-MNIST of 30 + 10 images, each all of one gray level: its row in the pool."""
    splits = tuple(split._replace(rows=count) for split, count in zip(FashionMNIST.splits, (30, 10), strict=True))
    monkeypatch.setattr(FashionMNIST, "splits", splits)
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for split, first in zip(splits, (0, 30), strict=True):
        rows = np.arange(first, first + split.rows, dtype=np.uint8)
        header = struct.pack(">4i", 2051, split.rows, 28, 28)
        (folder / f"{split.name}-images-idx3-ubyte").write_bytes(header + rows.repeat(28 * 28).tobytes())
        (folder / f"{split.name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, split.rows) + (rows % 10).tobytes()
        )
    return tmp_path


def test_the_test_split_comes_last(small: Path) -> None:
    with pytest.warns(UnofficialFile, match=r"train-images.*t10k-labels") as caught:
        source = FashionMNIST().load(small, 0)
    assert len(caught) == 1
    assert source.images.shape == (40, 1, 28, 28) and source.test == 10
    assert source.images[:, 0, 0, 0].tolist() == list(range(40))
    assert source.labels.tolist() == [row % 10 for row in range(40)]
    assert source.normalization == ((0.2860,), (0.3530,))
    assert FashionMNIST().status(small).startswith("ready: 40 images")


def test_merged_there_is_no_test_split(small: Path) -> None:
    with pytest.warns(UnofficialFile):
        plain, merged = FashionMNIST().load(small, 0), FashionMNIST(merged=True, normalize="half").load(small, 0)
    assert merged.test == 0 and merged.normalization == HALF and merged.hash == plain.hash
    assert merged.images.equal(plain.images) and (merged.labels == plain.labels).all()
    assert FashionMNIST(merged=True).examples == 40 and FashionMNIST().examples == 30
    with pytest.raises(UsageError, match=r"FashionMNIST\.normalize"):
        FashionMNIST(normalize="whole")  # type: ignore[arg-type]


@pytest.mark.data
def test_real_fashion_mnist(real: Callable[[Dataset], Path]) -> None:
    root = real(FashionMNIST())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnofficialFile)
        source = FashionMNIST().load(root, 0)
    splits = [torchvision.FashionMNIST(root, train=train) for train in (True, False)]
    assert torch.equal(source.images[:, 0], torch.cat([split.data for split in splits]))
    assert np.array_equal(source.labels, torch.cat([split.targets for split in splits]))
    assert source.test == 10_000
    pixels = source.images[:60_000].double() / 255
    assert source.normalization is not None
    assert source.normalization.mean == pytest.approx([pixels.mean().item()], abs=1e-4)
    assert source.normalization.std == pytest.approx([pixels.std().item()], abs=1e-4)


@pytest.mark.data
@pytest.mark.parametrize("train", [True, False])
def test_real_mnist_files_read_as_torchvision_reads_them(train: bool, real: Callable[[Dataset], Path]) -> None:
    root = real(DigitFive("mnist"))  # needs the files of both splits
    images, labels = (TRAIN if train else TEST).read(root / "MNIST" / "raw")
    expected = torchvision.MNIST(root, train=train)
    assert np.array_equal(images[:, 0], expected.data) and np.array_equal(labels, expected.targets)
