"""Datasets that torchvision reads, from small files in the publishers' formats, or from an .npz file."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets as torchvision

from pflbench.data.datasets.cifar import CIFAR10, CIFAR100, COARSE
from pflbench.data.datasets.mnist import (
    EMNIST,
    EMNIST_SPLITS,
    MNIST,
    RMNIST,
    FashionMNIST,
    rotate_by_group,
    rotation_groups,
)
from pflbench.data.source import HALF, Dataset
from pflbench.errors import PflbenchError

from .image_collections import FINE, SUPERCLASSES

TRAIN, TEST = 40, 10
"""Images of a split."""
Pairs = list[tuple[np.ndarray, list[int]]]
"""Images ["images", "height", "width", …] and labels of each split, as torchvision has them."""


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


def write_idx(folder: Path, splits: dict[str, int], first: int = 0) -> None:
    """Two files for each split, as MNIST's publishers describe them; labels from `first` on."""
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        arrays = {"images-idx3": pixels(rows, 28, 28), "labels-idx1": np.arange(rows, dtype=np.uint8) % 10 + first}
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


def of_mnist(root: Path) -> tuple[Dataset, Pairs]:
    write_idx(root / "MNIST" / "raw", {"train": TRAIN, "t10k": TEST})
    read = torchvision.MNIST(root)
    return MNIST(), [(read.data.numpy(), read.targets.tolist())]


def of_fashion(root: Path) -> tuple[Dataset, Pairs]:
    write_idx(root / "FashionMNIST" / "raw", {"train": TRAIN, "t10k": TEST})
    read = [torchvision.FashionMNIST(root, train=train) for train in (True, False)]
    return FashionMNIST(), [(one.data.numpy(), one.targets.tolist()) for one in read]


def of_emnist(root: Path) -> tuple[Dataset, Pairs]:
    """Torchvision leaves the images transposed and numbers letters from 1 on."""
    write_idx(root / "EMNIST" / "raw", {"emnist-letters-train": TRAIN, "emnist-letters-test": TEST}, first=1)
    read = [torchvision.EMNIST(root, split="letters", train=train) for train in (True, False)]
    return EMNIST("letters"), [(one.data.numpy().transpose(0, 2, 1), (one.targets - 1).tolist()) for one in read]


def of_cifar10(root: Path) -> tuple[Dataset, Pairs]:
    files = dict.fromkeys([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"], 8)
    write_cifar(root / "cifar-10-batches-py", files, {"labels": 10}, ("batches.meta", "label_names"))
    read = [torchvision.CIFAR10(root, train=train) for train in (True, False)]
    return CIFAR10(test=True), [(one.data, one.targets) for one in read]


def of_cifar100(root: Path) -> tuple[Dataset, Pairs]:
    labels, meta = {"coarse_labels": 20, "fine_labels": 100}, ("meta", "fine_label_names")
    write_cifar(root / "cifar-100-python", {"train": TRAIN, "test": TEST}, labels, meta)
    read = [torchvision.CIFAR100(root, train=train) for train in (True, False)]
    return CIFAR100(fine=True), [(one.data, one.targets) for one in read]


FORMATS: dict[str, Callable[[Path], tuple[Dataset, Pairs]]] = {
    "mnist": of_mnist,
    "fashion-mnist": of_fashion,
    "emnist": of_emnist,
    "cifar10": of_cifar10,
    "cifar100": of_cifar100,
}


@pytest.fixture(autouse=True)
def no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_reads_as_torchvision_reads_it(name: str, tmp_path: Path) -> None:
    dataset, splits = FORMATS[name](tmp_path)
    assert dataset.status(tmp_path).startswith("ready")
    dataset.fetch(tmp_path)  # nothing to do
    source = dataset.load(tmp_path, 0)
    images = np.concatenate([images for images, _ in splits])
    expected = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    assert np.array_equal(source.images.numpy(), expected)
    assert source.labels.tolist() == [label for _, labels in splits for label in labels]
    assert source.test == sum(len(labels) for _, labels in splits[1:]) and len(np.unique(expected)) > 200


@pytest.mark.parametrize(("dataset", "side"), [(CIFAR100(), 32), (CIFAR10(test=True), 32), (FashionMNIST(), 28)])
def test_an_npz_file_is_read_where_torchvisions_files_are_missing(dataset: Any, side: int, tmp_path: Path) -> None:
    shape = (side, side, 3) if side == 32 else (side, side)
    arrays = {}
    for part, rows in (("train", TRAIN), ("test", TEST)):
        arrays |= {f"{part}_images": pixels(rows, *shape), f"{part}_labels": np.arange(rows)[:, None] % 10}
    np.savez(tmp_path / dataset.npz, **arrays)
    source = dataset.load(tmp_path, 0)
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    assert np.array_equal(source.images.numpy(), images.transpose(0, 3, 1, 2) if side == 32 else images[:, None])
    fine = source.labels if source.kind is None else source.kind
    assert fine.tolist() == [*(np.arange(TRAIN) % 10), *range(TEST)] and source.test == TEST
    np.savez(tmp_path / dataset.npz, **(arrays | {"train_images": arrays["train_images"] / 255}))
    with pytest.raises(PflbenchError, match="float64"):
        dataset.load(tmp_path, 0)
    np.savez(tmp_path / dataset.npz, **{name: array.astype(object) for name, array in arrays.items()})
    with pytest.raises(PflbenchError, match="allow_pickle"):
        dataset.load(tmp_path, 0)


def test_superclasses_of_cifar100_are_those_of_its_publisher(tmp_path: Path) -> None:
    assert np.bincount(COARSE).tolist() == [5] * 20
    people = [FINE[k] for k in np.flatnonzero(COARSE == SUPERCLASSES.index("people"))]
    fish = [FINE[k] for k in np.flatnonzero(COARSE == SUPERCLASSES.index("fish"))]
    assert people == ["baby", "boy", "girl", "man", "woman"]
    assert fish == ["aquarium_fish", "flatfish", "ray", "shark", "trout"]
    of_cifar100(tmp_path)
    source, fine = CIFAR100().load(tmp_path, 0), CIFAR100(fine=True, normalize="fedrep").load(tmp_path, 0)
    assert source.kind is not None and np.array_equal(source.kind, fine.labels) and source.hash == fine.hash
    assert np.array_equal(source.labels, COARSE[fine.labels]) and (source.classes, fine.classes) == (20, 100)


def test_merged_splits_and_normalizations(tmp_path: Path) -> None:
    for write in FORMATS.values():
        write(tmp_path)
    for merged in (FashionMNIST(merged=True, normalize="half"), CIFAR10(merged=True, normalize="half")):
        source = merged.load(tmp_path, 0)
        assert source.test == 0 and source.normalization == HALF and merged.examples in (60_000, 70_000)
    plain = CIFAR10().load(tmp_path, 0)
    assert plain.test == 0 and len(plain.labels) == 40 and plain.normalization is None
    assert CIFAR10(normalize="imagenet").load(tmp_path, 0).normalization == (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )
    assert CIFAR10(normalize=True).load(tmp_path, 0).normalization == (
        (0.4914, 0.4822, 0.4465),
        (0.2023, 0.1994, 0.2010),
    )


def test_rmnist_turns_by_group_and_has_mnists_hash(tmp_path: Path) -> None:
    of_mnist(tmp_path)
    upright, a, b = (one.load(tmp_path, seed) for one, seed in ((MNIST(), 0), (RMNIST(4), 0), (RMNIST(4), 1)))
    assert a.kind is not None and np.array_equal(a.kind, rotation_groups(40, 4, 0))
    assert torch.equal(a.images, rotate_by_group(upright.images, a.kind, 20))
    assert upright.hash == a.hash == b.hash and not torch.equal(a.images, b.images)


def test_classes_of_emnist_are_as_torchvision_counts_them() -> None:
    for name, (_, _, classes) in EMNIST_SPLITS.items():
        assert classes == len(set(torchvision.EMNIST.classes_split_dict[name]) - {"N/A"})


def mapped(pool: torch.Tensor) -> str:
    """The file that a pool lies in; "" if it is in this process's memory alone."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split()
        first, end = (int(x, 16) for x in span.split("-"))
        if first <= pool.data_ptr() < end:
            return name if name.startswith("/") else ""
    raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_workers_share_pools(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pool is one file that is mapped, of which a machine's memory holds one copy."""
    for write in FORMATS.values():
        write(tmp_path)
    datasets: list[tuple[Dataset, int]] = [(MNIST(), 0), (CIFAR10(), 0), *((RMNIST(), seed) for seed in (0, 1))]
    made = [dataset.load(tmp_path, seed) for dataset, seed in datasets]
    monkeypatch.setattr("pflbench.data.datasets.mnist.rotate_by_group", None)
    monkeypatch.setattr("pflbench.data.published.Torchvision.read_split", None)
    again = [dataset.load(tmp_path, seed) for dataset, seed in datasets]
    files = [mapped(source.images) for source in again]
    assert files == [mapped(source.images) for source in made]
    assert len(set(files)) == 4 and all(Path(file).is_relative_to(cache) for file in files)
    for before, after in zip(made, again, strict=True):
        assert torch.equal(before.images, after.images) and before.hash == after.hash


@pytest.mark.parametrize("damage", ["truncated", "empty", "header", "label"])
def test_a_damaged_file_is_one_message(damage: str, tmp_path: Path) -> None:
    of_mnist(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    whole = path.read_bytes()
    damaged = {"truncated": whole[:-1], "empty": b"", "header": b"\xff" + whole[1:], "label": whole[:-1] + b"\x0a"}
    path.write_bytes(damaged[damage])
    with pytest.raises(PflbenchError, match=r"^mnist in .* cannot be read") as error:
        MNIST().load(tmp_path, 0)
    assert "\n" not in str(error.value)


def test_a_damaged_pickle_of_cifar_is_one_message(tmp_path: Path) -> None:
    of_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_4"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(PflbenchError, match=r"^cifar10 in .* cannot be read"):
        CIFAR10().load(tmp_path, 0)
