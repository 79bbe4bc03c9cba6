"""Small files in the formats of MNIST, EMNIST and CIFAR: the same images and labels as torchvision reads."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torchvision import datasets as torchvision

from pflbench.data.datasets import mnist
from pflbench.data.datasets.cifar import CIFAR10, CIFAR100
from pflbench.data.datasets.mnist import EMNIST, MNIST, FashionMNIST, IdxSplit
from pflbench.data.source import Dataset

pytestmark = pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
TRAIN, TEST = 6, 4
"""Images of a file."""
Pairs = list[tuple[np.ndarray, list[int]]]
"""Images ["images", "height", "width", …] and labels of each split, as torchvision has them."""


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


def write_idx(folder: Path, splits: dict[str, int], first: int = 0) -> None:
    """Two files for each split, as MNIST's publishers describe them; labels from `first` on."""
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        arrays = {"images-idx3": pixels(rows, 28, 28), "labels-idx1": np.arange(rows, dtype=np.uint8) + first}
        for what, array in arrays.items():
            head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
            (folder / f"{name}-{what}-ubyte").write_bytes(head + array.tobytes())


def write_cifar(folder: Path, files: dict[str, int], labels: dict[str, int], meta: tuple[str, str]) -> None:
    """A pickle for each file, as CIFAR's publisher describes it; `labels`: keys and their numbers of classes."""
    folder.mkdir(parents=True)
    for name, rows in files.items():
        batch: dict[str, Any] = {"data": pixels(rows, 3072 + len(name))[:, :3072]}
        batch |= {key: [(7 * k) % classes for k in range(rows)] for key, classes in labels.items()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / meta[0]).write_bytes(pickle.dumps({meta[1]: []}))


def of_mnist(kind: str, root: Path, patch: pytest.MonkeyPatch) -> tuple[Dataset, Pairs]:
    ours, theirs = {"mnist": (MNIST, torchvision.MNIST), "fashion": (FashionMNIST, torchvision.FashionMNIST)}[kind]
    write_idx(root / theirs.__name__ / "raw", {"train": TRAIN, "t10k": TEST})
    splits = (IdxSplit("train", TRAIN), IdxSplit("t10k", TEST))
    patch.setattr(ours, "splits", splits[:1] if kind == "mnist" else splits)
    read = [theirs(root, train=train) for train in ((True,) if kind == "mnist" else (True, False))]
    return ours(), [(one.data.numpy(), one.targets.tolist()) for one in read]


def of_emnist(root: Path, patch: pytest.MonkeyPatch) -> tuple[Dataset, Pairs]:
    """Torchvision leaves the images transposed and numbers letters from 1 on."""
    write_idx(root / "EMNIST" / "raw", {"emnist-letters-train": TRAIN, "emnist-letters-test": TEST}, first=1)
    patch.setitem(mnist.EMNIST_SPLITS, "letters", mnist.EmnistSplit(TRAIN, TEST, 26))
    read = [torchvision.EMNIST(root, split="letters", train=train) for train in (True, False)]
    return EMNIST("letters"), [(one.data.numpy().transpose(0, 2, 1), (one.targets - 1).tolist()) for one in read]


def of_cifar(fine: bool, root: Path, patch: pytest.MonkeyPatch) -> tuple[Dataset, Pairs]:
    patch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    if fine:
        labels, meta = {"coarse_labels": 20, "fine_labels": 100}, ("meta", "fine_label_names")
        write_cifar(root / "cifar-100-python", {"train": TRAIN, "test": TEST}, labels, meta)
        patch.setattr(CIFAR100, "records", (TRAIN, TEST))
        read = [torchvision.CIFAR100(root, train=train) for train in (True, False)]
        return CIFAR100(fine=True), [(one.data, one.targets) for one in read]
    files = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    write_cifar(
        root / "cifar-10-batches-py", dict.fromkeys(files, TRAIN), {"labels": 10}, ("batches.meta", "label_names")
    )
    patch.setattr("pflbench.data.datasets.cifar.RECORDS", TRAIN)
    read = [torchvision.CIFAR10(root, train=train) for train in (True, False)]
    return CIFAR10(test=True), [(one.data, one.targets) for one in read]


FORMATS: dict[str, Callable[[Path, pytest.MonkeyPatch], tuple[Dataset, Pairs]]] = {
    "mnist": lambda root, patch: of_mnist("mnist", root, patch),
    "fashion-mnist": lambda root, patch: of_mnist("fashion", root, patch),
    "emnist": of_emnist,
    "cifar10": lambda root, patch: of_cifar(False, root, patch),
    "cifar100": lambda root, patch: of_cifar(True, root, patch),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_reads_as_torchvision_reads_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, splits = FORMATS[name](tmp_path, monkeypatch)
    source = dataset.load(tmp_path, 0)
    images = np.concatenate([images for images, _ in splits])
    expected = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    assert np.array_equal(source.images.numpy(), expected)
    assert source.labels.tolist() == [label for _, labels in splits for label in labels]
    assert source.test == sum(len(labels) for _, labels in splits[1:]) and len(np.unique(expected)) > 200
