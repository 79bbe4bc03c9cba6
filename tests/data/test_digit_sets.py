"""SVHN, USPS and EMNIST as datasets of their own, from small files in the real format."""

from __future__ import annotations

import bz2
import gzip
import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets as torchvision

from pflbench.data.datasets import mnist
from pflbench.data.datasets.digit_five import SVHN, USPS
from pflbench.data.datasets.mnist import EMNIST, EmnistSplit
from pflbench.data.federation import build
from pflbench.data.partitions.skew import ClassesPerClient
from pflbench.data.source import Dataset, UnofficialFile
from pflbench.errors import DataMissing, PflbenchError, UsageError

SPLITS = (("train", 20), ("test", 10))


def digits(count: int) -> np.ndarray:
    return np.arange(count) % 10


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def svhn(tmp_path: Path) -> Path:
    from scipy.io import savemat

    (tmp_path / "SVHN").mkdir()
    for which, count in SPLITS:
        labels = np.where(digits(count) == 0, 10, digits(count)).astype(np.uint8)[:, None]
        held = {"X": pixels(count, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels}
        savemat(tmp_path / "SVHN" / f"{which}_32x32.mat", held, do_compression=True)
    return tmp_path


@pytest.fixture
def usps(tmp_path: Path) -> Path:
    (tmp_path / "USPS").mkdir()
    for name, (_, count) in zip(("usps.bz2", "usps.t.bz2"), SPLITS, strict=True):
        lines = [
            f"{digit + 1} " + " ".join(f"{k}:{level / 127.5 - 1:.6f}" for k, level in enumerate(image.flat, 1)) + " \n"
            for digit, image in zip(digits(count), pixels(count, 16, 16), strict=True)
        ]
        (tmp_path / "USPS" / name).write_bytes(bz2.compress("".join(lines).encode()))
    return tmp_path


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


# ---- SVHN and USPS


def test_svhn_with_its_test_split(svhn: Path) -> None:
    with pytest.warns(UnofficialFile, match=r"train_32x32\.mat, test_32x32\.mat") as caught:
        source = SVHN().load(svhn, 0)
    assert len(caught) == 1 and source.test == 10 and source.normalization is None
    expected = np.concatenate([pixels(count, 32, 32, 3) for _, count in SPLITS]).transpose(0, 3, 1, 2)
    assert np.array_equal(source.images, expected)
    assert source.labels.tolist() == [*digits(20), *digits(10)] and source.kind is None
    assert SVHN().status(svhn).startswith("ready: 99,289 images in")
    assert source.images.shape[1:] == SVHN().shape


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_svhn_reads_as_torchvision_reads_it(svhn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision.SVHN, "_check_integrity", lambda self: True)
    splits = [torchvision.SVHN(svhn / "SVHN", split=which) for which, _ in SPLITS]
    source = SVHN().load(svhn, 0)
    assert np.array_equal(source.images, np.concatenate([split.data for split in splits]))
    assert np.array_equal(source.labels, np.concatenate([split.labels for split in splits]))


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_usps_as_it_is_and_resized(usps: Path) -> None:
    source, large = USPS().load(usps, 0), USPS(size=28).load(usps, 0)
    assert source.images.shape == (30, 1, 16, 16) and source.test == large.test == 10
    assert large.images.shape == (30, 1, 28, 28) and USPS(size=28).shape == (1, 28, 28)
    for k, image in enumerate(pixels(20, 16, 16)):
        assert np.array_equal(source.images[k, 0], image)
        expected = Image.fromarray(image).resize((28, 28), Image.Resampling.BILINEAR)
        assert np.array_equal(large.images[k, 0], np.asarray(expected))
    assert source.labels.tolist() == large.labels.tolist() == [*digits(20), *digits(10)]
    assert USPS().status(usps).startswith("ready: 9,298 images in")


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_usps_as_hdf(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "USPS").mkdir()
    with h5py.File(tmp_path / "USPS" / "usps.h5", "w") as held:
        for which, count in SPLITS:
            held[f"{which}/data"] = (pixels(count, 16, 16) / 255).reshape(count, 256).astype(np.float32)
            held[f"{which}/target"] = digits(count).astype(np.int32)
    source = USPS().load(tmp_path, 0)
    assert np.array_equal(source.images[:20, 0], pixels(20, 16, 16)) and source.test == 10
    assert USPS().status(tmp_path).startswith("ready: 9,298 images in")


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_clients_of_svhn_are_scored_on_its_test_split(svhn: Path) -> None:
    federation = build(
        SVHN().load(svhn, 0), ClassesPerClient(5), clients=2, training_clients=2, query="test-split", seed=0
    )
    for support, query in zip(federation.support, federation.query, strict=True):
        assert len(query) == 5 and query.min() >= 20
        assert set(federation.labels[support]) == set(federation.labels[query])


# ---- EMNIST


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


# ---- missing and damaged


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (SVHN(), r"data fetch svhn.*182 MB.*ufldl\.stanford\.edu.*SVHN/train_32x32\.mat, .*SVHN/test_32x32\.mat"),
        (USPS(), r"data fetch usps.*6\.6 MB.*csie\.ntu\.edu.*USPS/usps\.bz2 and .*usps\.t\.bz2 \(or .*usps\.h5"),
        (EMNIST("letters"), r"data fetch emnist.*gzip\.zip \(562 MB\).*raw/emnist-letters-train-images-idx3-ubyte, "),
    ],
    ids=["svhn", "usps", "emnist"],
)
def test_what_is_missing(dataset: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    assert dataset.status(tmp_path).startswith("missing: ")
    with pytest.raises(DataMissing, match=re.compile(says, re.DOTALL)):
        dataset.load(tmp_path, 0)
    monkeypatch.setattr(f"torchvision.datasets.{dataset.name}.__init__", offline)
    with pytest.raises(DataMissing, match=rf"Downloading {dataset.name} failed \(no network\)\. To go on, "):
        dataset.fetch(tmp_path)


def test_damaged_files_are_named(svhn: Path, usps: Path, small: None) -> None:
    root = svhn  # the same folder
    for path, dataset in (
        (root / "SVHN" / "test_32x32.mat", SVHN()),
        (root / "USPS" / "usps.bz2", USPS()),
    ):
        path.write_bytes(path.read_bytes()[:200])
        with pytest.raises(PflbenchError, match=re.escape(str(path))):
            dataset.load(root, 0)
    write_emnist(root, "letters")
    path = root / "EMNIST" / "raw" / "emnist-letters-test-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")  # letters begin at 1
    with pytest.raises(PflbenchError, match=re.escape(str(path))):
        EMNIST("letters").load(root, 0)
    write_emnist(root, "digits", zipped=True)
    path = root / "EMNIST" / "raw" / "emnist-digits-train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(PflbenchError, match=re.escape(str(path))):
        EMNIST("digits").load(root, 0)


def test_options_that_there_are_not() -> None:
    with pytest.raises(UsageError, match="Unknown split of emnist 'byclas'"):
        EMNIST("byclas")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="size must lie in"):
        USPS(size=0)


# ---- the real files


@pytest.mark.data
def test_real_usps(real: Callable[[Dataset], Path]) -> None:
    root = real(USPS())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnofficialFile)
        source = USPS().load(root, 0)
    assert source.images.shape == (9298, 1, 16, 16) and source.test == 2007
    counts = np.bincount(source.labels[:7291])  # as its publisher lists them
    assert counts.tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
