"""All datasets: missing files, sizes, options, rotation, digits, and (marked `data`) the real files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms.functional import rotate

from pflbench import data, names
from pflbench.catalog import coerce, complete, describe_options, parse
from pflbench.data.datasets.cifar import CIFAR10, CIFAR100
from pflbench.data.datasets.digit_five import DigitFive
from pflbench.data.datasets.digits import Digits, RotatedDigits
from pflbench.data.datasets.femnist import FEMNISTLetters
from pflbench.data.datasets.mnist import EMNIST, MNIST, RMNIST, FashionMNIST, rotate_by_group, rotation_groups
from pflbench.data.datasets.sun397 import SUN397
from pflbench.data.root import data_root
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, UsageError

FILES: list[tuple[Dataset, str]] = [
    (MNIST(), "MNIST/raw/train-images-idx3-ubyte"),
    (RMNIST(), "MNIST/raw/train-images-idx3-ubyte"),
    (FashionMNIST(), "FashionMNIST/raw/t10k-labels-idx1-ubyte"),
    (EMNIST("letters"), "EMNIST/raw/emnist-letters-train-images-idx3-ubyte"),
    (CIFAR10(), "cifar-10-batches-py/data_batch_1"),
    (CIFAR100(), "cifar-100-python/test"),
]
"""Datasets that are downloaded, and a file each needs."""


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no route to host")

    for name in ("MNIST", "FashionMNIST", "EMNIST", "CIFAR10", "CIFAR100", "SVHN", "USPS"):
        monkeypatch.setattr(f"torchvision.datasets.{name}", fail)


# ---- the data root


def test_data_root_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("PFLBENCH_DATA_DIR", str(tmp_path / "env"))
    assert data_root(tmp_path / "flag") == tmp_path / "flag"
    assert data_root() == tmp_path / "env"
    monkeypatch.setenv("PFLBENCH_DATA_DIR", "")
    assert data_root() == tmp_path / "xdg" / "pflbench" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == tmp_path / "home" / ".cache" / "pflbench" / "data"
    monkeypatch.setenv("PFLBENCH_DATA_DIR", "~/mine")
    assert data_root() == tmp_path / "home" / "mine"


# ---- all datasets


def test_importing_and_asking_for_status_leaves_torch_out() -> None:
    rooms = Path(data.__file__).parent
    modules = [".".join(p.relative_to(rooms).with_suffix("").parts) for p in sorted(rooms.rglob("*.py"))]
    program = (
        "import sys\nfrom pathlib import Path\nfrom importlib import import_module\n"
        f"for name in {modules}: import_module('pflbench.data.' + name)\n"
        "from pflbench import catalog, names\n"
        "for name in names.BUILT_IN['datasets']:\n"
        "    fields = catalog.describe_options('datasets', name).fields\n"
        "    if any(field.default is catalog.REQUIRED for field in fields.values()): continue\n"
        "    made = names.resolve('datasets', name)()\n"
        "    made.status(Path('/nowhere')), made.shape, made.classes\n"
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'scipy', 'PIL', 'h5py', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*names.BUILT_IN["datasets"], *names.BUILT_IN["partitions"]])
def test_built_in_names_resolve_and_describe_themselves(name: str) -> None:
    kind: names.Kind = "datasets" if name in names.BUILT_IN["datasets"] else "partitions"
    assert names.resolve(kind, name).__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize(("dataset", "file"), FILES, ids=repr)
@pytest.mark.usefixtures("no_network")
def test_missing_files_are_named(dataset: Dataset, file: str, tmp_path: Path) -> None:
    assert dataset.status(tmp_path).startswith("missing: ")
    assert str(tmp_path / file) in dataset.status(tmp_path)
    with pytest.raises(DataMissing, match="pflbench data fetch") as missing:
        dataset.load(tmp_path, 0)
    assert str(tmp_path / file) in str(missing.value)
    with pytest.raises(DataMissing, match="no route to host") as failed:
        dataset.fetch(tmp_path)
    assert str(tmp_path / file) in str(failed.value)


def test_every_dataset_knows_its_sizes_without_files() -> None:
    for dataset in (*(dataset for dataset, _ in FILES), Digits(test=297), SUN397(), DigitFive(), FEMNISTLetters()):
        assert dataset.examples > 1000 and dataset.classes >= 3 and len(dataset.shape) == 3
    assert SUN397().examples == 12_000 and DigitFive().examples == 92_291


# ---- rotation


def test_turning_bytes_equals_turning_floats() -> None:
    images = torch.randint(0, 256, (20, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    groups = np.arange(20) % 10
    turned = rotate_by_group(images, groups, 20)
    for image, group, found in zip(images, groups, turned, strict=True):
        assert torch.equal(found.float() / 255, rotate(image.float() / 255, 20.0 * int(group)))


def test_rotation_groups_are_chunks_of_the_legacy_shuffle() -> None:
    order = np.arange(60)
    np.random.RandomState(7).shuffle(order)
    group = rotation_groups(60, 10, 7)
    assert all(set(np.flatnonzero(group == g)) == set(order[6 * g : 6 * g + 6]) for g in range(10))


def test_half_a_turn_flips_and_group_0_stays() -> None:
    images = torch.arange(2 * 16, dtype=torch.uint8).reshape(2, 1, 4, 4)
    before = images.clone()
    turned = rotate_by_group(images, np.array([0, 9]), 20)
    assert torch.equal(turned[0], images[0])
    assert torch.equal(turned[1], images[1].flip(-1, -2))
    assert torch.equal(images, before)


def test_a_positive_angle_turns_counter_clockwise() -> None:
    image = torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    image[0, 0, 1, 2] = 255  # right
    assert rotate_by_group(image, np.array([1]), 90)[0, 0, 0, 1] == 255  # up


def test_impossible_rotation_groups() -> None:
    with pytest.raises(UsageError, match="rotation groups"):
        rotation_groups(10, 11, 0)


# ---- digits


@pytest.mark.parametrize("digits", [Digits(), Digits(channels=3, size=32), RotatedDigits()], ids=repr)
def test_digits_need_no_files(digits: Digits | RotatedDigits, tmp_path: Path) -> None:
    digits.fetch(tmp_path)
    source = digits.load(tmp_path, 0)
    assert digits.status(tmp_path).startswith("ready")
    assert source.images.shape == (1797, *digits.shape) and source.images.dtype == torch.uint8
    assert source.labels.shape == (1797,) and source.labels.dtype == np.int64
    assert set(source.labels) == set(range(digits.classes))
    assert source.images.min() == 0 and source.images.max() > 240
    assert list(tmp_path.iterdir()) == []


def test_digits_at_their_own_size_are_the_originals(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    found = Digits(size=8).load(tmp_path, 0).images.double() * 16 / 255
    assert torch.allclose(found[:, 0].round(), torch.from_numpy(load_digits().images))


def test_rotated_digits_groups_and_hash(tmp_path: Path) -> None:
    a, b = (RotatedDigits().load(tmp_path, seed) for seed in (0, 1))
    assert a.kind is not None and b.kind is not None
    assert set(np.bincount(a.kind)) == {179, 180}
    assert not np.array_equal(a.kind, b.kind)
    assert a.hash == b.hash == Digits().load(tmp_path, 5).hash and len(a.hash) == 16


def test_the_digits_options_rearrange_the_same_images(tmp_path: Path) -> None:
    plain, split = Digits(size=8).load(tmp_path, 0), Digits(size=8, test=297).load(tmp_path, 0)
    assert plain.test == 0 and split.test == 297 and Digits(test=297).examples == 1500
    assert plain.hash == split.hash
    assert not torch.equal(plain.images, split.images)
    assert torch.equal(split.images, Digits(size=8, test=297).load(tmp_path, 1).images)
    for source in (plain, split):
        assert source.kind is None
    found, there = (
        sorted((label, image.numpy().tobytes()) for label, image in zip(s.labels, s.images, strict=True))
        for s in (split, plain)
    )
    assert found == there


@pytest.mark.parametrize("test", [None, 297])
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (3, 64)])
def test_coarse_digits_are_pairs(test: int | None, channels: int, size: int, tmp_path: Path) -> None:
    fine = Digits(channels, size, test=test).load(tmp_path, 0)
    digits = Digits(channels, size, test=test, coarse=True)
    coarse = digits.load(tmp_path, 0)
    assert coarse.images.shape == (1797, channels, size, size) and torch.equal(coarse.images, fine.images)
    assert coarse.classes == digits.classes == 5
    assert coarse.kind is not None and np.array_equal(coarse.kind, fine.labels)
    assert np.array_equal(coarse.labels, fine.labels // 2)


def test_digits_dealt_into_sources_have_every_digit_in_both_splits(tmp_path: Path) -> None:
    dealt = Digits(3, 32, test=297, sources=5).load(tmp_path, 0)
    assert dealt.kind is not None and np.array_equal(dealt.kind % 10, dealt.labels)
    assert np.ptp(np.bincount(dealt.kind // 10)) == 1
    assert set(dealt.kind[:1500]) == set(dealt.kind[1500:]) == set(range(50))


# ---- options


def test_the_options_of_cifar_can_be_said_in_a_suite() -> None:
    ten, hundred = (describe_options("datasets", name) for name in ("cifar10", "cifar100"))
    for text, value in (("imagenet", "imagenet"), ("true", True), ("none", None)):
        assert parse(ten, "normalize", text) == coerce(ten, "normalize", value) == value
    assert coerce(hundred, "fine", True) is True and coerce(hundred, "normalize", "fedrep") == "fedrep"
    for info, wrong in ((ten, "fedrep"), (hundred, "imagenet"), (hundred, True)):
        with pytest.raises(UsageError):
            coerce(info, "normalize", wrong)
    # Left alone, they are no part of a run's identity.
    assert complete(ten, {}) == complete(hundred, {}) == {}


# ---- the real files


@pytest.mark.data
def test_real_rmnist(real: Callable[[Dataset], Path]) -> None:
    root = real(MNIST())
    upright, turned = MNIST().load(root, 3), RMNIST().load(root, 3)
    assert upright.images.shape == (60_000, 1, 28, 28)
    assert np.bincount(upright.labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert turned.hash == upright.hash
    assert turned.kind is not None and np.bincount(turned.kind).tolist() == [6000] * 10
    sample = np.arange(0, 60_000, 500)
    expected = [rotate(upright.images[i].float() / 255, 20.0 * int(turned.kind[i])) for i in sample]
    assert torch.equal(turned.images[sample].float() / 255, torch.stack(expected))


@pytest.mark.data
def test_real_cifar10(real: Callable[[Dataset], Path]) -> None:
    source = CIFAR10().load(real(CIFAR10()), 0)
    assert source.images.shape == (50_000, 3, 32, 32) and source.images.dtype == torch.uint8
    assert np.bincount(source.labels).tolist() == [5000] * 10
    # The published channel means of the training split.
    means = source.images.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


@pytest.mark.data
def test_real_cifar10_with_its_test_split(real: Callable[[Dataset], Path]) -> None:
    root = real(CIFAR10(test=True))
    train, both = CIFAR10().load(root, 0), CIFAR10(test=True).load(root, 0)
    assert both.test == 10_000 and torch.equal(both.images[:50_000], train.images)
    assert np.bincount(both.labels[50_000:]).tolist() == [1000] * 10
    assert both.hash != train.hash
