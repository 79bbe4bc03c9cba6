"""Datasets: small files in the real formats, damaged ones, and (marked `data`) the real ones."""

from __future__ import annotations

import gzip
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10 as TorchvisionCIFAR10
from torchvision.transforms.functional import rotate

from pflbench import data, names
from pflbench.catalog import coerce, complete, describe_options, parse
from pflbench.data.datasets import cifar, mnist
from pflbench.data.datasets.cifar import CIFAR10, CIFAR100, PFEDVEM
from pflbench.data.datasets.digit_five import DigitFive
from pflbench.data.datasets.digits import Digits, RotatedDigits
from pflbench.data.datasets.femnist import FEMNISTLetters
from pflbench.data.datasets.groups import rotate_by_group, rotation_groups
from pflbench.data.datasets.mnist import MNIST, RMNIST, FashionMNIST, read_idx
from pflbench.data.datasets.sun397 import SUN397
from pflbench.data.root import data_root
from pflbench.data.source import HALF, Dataset, UnofficialFile
from pflbench.errors import DataMissing, PflbenchError, UsageError

FILES: list[tuple[Dataset, str]] = [
    (MNIST(), "MNIST/raw/train-images-idx3-ubyte"),
    (RMNIST(), "MNIST/raw/train-images-idx3-ubyte"),
    (FashionMNIST(), "FashionMNIST/raw/t10k-labels-idx1-ubyte"),
    (CIFAR10(), "cifar-10-batches-bin/data_batch_1.bin"),
    (CIFAR10(test=True), "cifar-10-batches-py/data_batch_1 … _5 and test_batch"),
    (CIFAR100(), "cifar-100-binary/test.bin"),
    (DigitFive("mnist"), "MNIST/raw/t10k-images-idx3-ubyte"),
    (DigitFive("svhn"), "SVHN/test_32x32.mat"),
    (DigitFive("usps"), "USPS/usps.h5"),
]
"""Datasets that are downloaded, and a file each needs."""


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no route to host")

    for name in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100", "SVHN", "USPS"):
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


@pytest.mark.parametrize("groups", [0, 11])
def test_impossible_rotation_groups(groups: int) -> None:
    with pytest.raises(UsageError, match="rotation groups"):
        rotation_groups(10, groups, 0)


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


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 0},
        {"size": 0},
        {"test": 0},
        {"test": 1797},
        {"sources": 0},
        {"coarse": True, "sources": 2},
    ],
)
def test_bad_digits_options(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="Digits"):
        Digits(**options)


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


# ---- MNIST


@pytest.fixture
def small_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray, np.ndarray]:
    """A root with a 40-image MNIST in the real format: root, images, labels."""
    monkeypatch.setattr(MNIST, "splits", (mnist.TRAIN._replace(rows=40),))
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (40, 28, 28), dtype=np.uint8), np.arange(40, dtype=np.uint8) % 10
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 40, 28, 28) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 40) + labels.tobytes())
    return tmp_path, images, labels


def test_mnist_reads_idx_files_and_warns_that_they_are_not_official(
    small_mnist: tuple[Path, np.ndarray, np.ndarray],
) -> None:
    root, images, labels = small_mnist
    with pytest.warns(UnofficialFile) as caught:
        source = MNIST().load(root, 0)
    assert len(caught) == 1
    assert np.array_equal(source.images.numpy()[:, 0], images) and np.array_equal(source.labels, labels)
    assert MNIST().status(root).startswith("ready: 40 images")
    MNIST().fetch(root)  # nothing to do


def test_gzipped_idx_files_are_read_as_they_are(small_mnist: tuple[Path, np.ndarray, np.ndarray]) -> None:
    root, images, _ = small_mnist
    for path in list((root / "MNIST" / "raw").iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert MNIST().status(root).startswith("ready: 40 images")
    assert np.array_equal(MNIST().load(root, 0).images.numpy()[:, 0], images)


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_rmnist_turns_by_group_and_keeps_the_hash(small_mnist: tuple[Path, np.ndarray, np.ndarray]) -> None:
    root = small_mnist[0]
    upright, a, b = MNIST().load(root, 0), RMNIST(rotations=4).load(root, 0), RMNIST(rotations=4).load(root, 1)
    assert a.kind is not None and np.array_equal(a.kind, rotation_groups(40, 4, 0))
    assert torch.equal(a.images, rotate_by_group(upright.images, a.kind, 20))
    assert upright.hash == a.hash == b.hash
    assert not torch.equal(a.images, b.images)


def mapped(pool: torch.Tensor) -> str:
    """The file that a pool lies in; "" if it is in this process's memory alone."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split()
        first, end = (int(x, 16) for x in span.split("-"))
        if first <= pool.data_ptr() < end:
            return name if name.startswith("/") else ""
    raise AssertionError


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks /proc")
@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_workers_share_pools(
    small_mnist: tuple[Path, np.ndarray, np.ndarray],
    small_cifar: tuple[np.ndarray, np.ndarray],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pool is one file that is mapped, of which a machine's memory holds one copy."""
    root = small_mnist[0]
    write_cifar(root, "binary", *small_cifar)
    datasets: list[tuple[Dataset, int]] = [(MNIST(), 0), (CIFAR10(), 0), *((RMNIST(), seed) for seed in (0, 1))]
    made = [dataset.load(root, seed) for dataset, seed in datasets]
    monkeypatch.setattr("pflbench.data.datasets.groups.rotate_by_group", None)
    monkeypatch.setattr("pflbench.data.datasets.mnist.read_idx", None)
    monkeypatch.setattr("pflbench.data.datasets.cifar.read_bytes", None)
    again = [dataset.load(root, seed) for dataset, seed in datasets]
    files = [mapped(source.images) for source in again]
    assert files == [mapped(source.images) for source in made]
    assert len(set(files)) == 4 and all(Path(file).parent == cache for file in files)
    for before, after in zip(made, again, strict=True):
        assert torch.equal(before.images, after.images) and before.hash == after.hash
        assert np.array_equal(before.labels, after.labels)
    with pytest.raises(TypeError):  # other angles are another pool
        RMNIST(degrees=10.0).load(root, 0)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "header", "folder"])
def test_damaged_mnist_files_are_named(
    small_mnist: tuple[Path, np.ndarray, np.ndarray], name: str, damage: str
) -> None:
    path = small_mnist[0] / "MNIST" / "raw" / name
    whole = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"truncated": whole[:-1], "empty": b"", "header": b"\xff" + whole[1:]}[damage])
    with pytest.raises(PflbenchError, match=name):
        MNIST().load(small_mnist[0], 0)
    if damage != "header":
        assert MNIST().status(small_mnist[0]).startswith("missing: ")


def test_mnist_labels_out_of_range(small_mnist: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path = small_mnist[0] / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x0a")
    with pytest.raises(PflbenchError, match=r"outside 0\.\.9"):
        MNIST().load(small_mnist[0], 0)


# ---- CIFAR-10


def python2_pickle(rows: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2 wrote: byte-string keys, integers for the dtype's flags. The official files' form."""

    def text(s: bytes) -> bytes:
        return b"U" + bytes([len(s)]) + s

    def number(n: int) -> bytes:
        return b"J" + struct.pack("<i", n)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    raw = rows.tobytes()
    state = b"(" + number(1) + number(rows.shape[0]) + number(rows.shape[1]) + b"\x86" + dtype
    state += b"\x89T" + struct.pack("<i", len(raw)) + raw + b"t"
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + state + b"b" + text(b"labels") + listed + b"u."


def write_cifar(root: Path, form: str, rows: np.ndarray, labels: np.ndarray) -> None:
    """Files of eight images each, in the binary form, or pickled by Python 2 or 3; the sixth is the test file."""
    for k in range(len(rows) // 8):
        name = f"data_batch_{k + 1}" if k < 5 else "test_batch"
        some, theirs = rows[8 * k : 8 * k + 8], labels[8 * k : 8 * k + 8]
        if form == "binary":
            path, data = (
                root / "cifar-10-batches-bin" / f"{name}.bin",
                np.column_stack([theirs.astype(np.uint8), some]).tobytes(),
            )
        else:
            path = root / "cifar-10-batches-py" / name
            batch = {"data": some, "labels": theirs.tolist()}
            data = python2_pickle(some, theirs.tolist()) if form == "python2" else pickle.dumps(batch, protocol=2)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def small_cifar(monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    monkeypatch.setattr(cifar, "RECORDS", 8)
    return np.random.default_rng(0).integers(0, 256, (40, 3072), dtype=np.uint8), np.arange(40) % 10


def test_cifar10_with_the_normalization_of_imagenet(tmp_path: Path, small_cifar: tuple[np.ndarray, np.ndarray]) -> None:
    write_cifar(tmp_path, "binary", *small_cifar)
    with pytest.warns(UnofficialFile):
        plain, source = CIFAR10().load(tmp_path, 0), CIFAR10(normalize="imagenet").load(tmp_path, 0)
    assert source.normalization == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert torch.equal(plain.images, source.images) and plain.hash == source.hash
    with pytest.raises(UsageError, match="imagenet"):
        CIFAR10(normalize="fedrep")  # type: ignore[arg-type]


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


def test_the_python_forms_checksums_are_torchvisions() -> None:
    listed = [*TorchvisionCIFAR10.train_list, *TorchvisionCIFAR10.test_list]
    assert [tuple(entry) for entry in listed] == list(CIFAR10.forms["cifar-10-batches-py"].items())


@pytest.mark.parametrize("form", ["binary", "python2", "python3"])
def test_both_forms_give_the_same_pool_with_one_warning(
    form: str, tmp_path: Path, small_cifar: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, labels = small_cifar
    write_cifar(tmp_path, form, rows, labels)
    with pytest.warns(UnofficialFile, match="data_batch_1.*data_batch_5") as caught:
        source = CIFAR10().load(tmp_path, 0)
    assert len(caught) == 1
    assert np.array_equal(source.images.numpy(), rows.reshape(-1, 3, 32, 32))
    assert np.array_equal(source.labels, labels) and source.labels.dtype == np.int64
    assert CIFAR10().status(tmp_path).startswith("ready: 40 images")
    CIFAR10().fetch(tmp_path)  # nothing to do


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
@pytest.mark.parametrize("form", ["binary", "python2", "python3"])
def test_the_test_split_comes_last_and_on_request(
    form: str, tmp_path: Path, small_cifar: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, labels = np.concatenate([small_cifar[0], small_cifar[0][:8]]), np.arange(48) % 7
    write_cifar(tmp_path, form, rows, labels)
    plain, source = CIFAR10().load(tmp_path, 0), CIFAR10(test=True, normalize=True).load(tmp_path, 0)
    assert plain.test == 0 and plain.normalization is None
    assert source.test == 8 and source.normalization == PFEDVEM
    assert np.array_equal(source.images.numpy().reshape(48, -1), rows) and np.array_equal(source.labels, labels)
    assert torch.equal(plain.images, source.images[:40]) and plain.hash != source.hash
    merged = CIFAR10(merged=True, normalize="half").load(tmp_path, 0)
    assert merged.test == 0 and merged.normalization == HALF and merged.hash == source.hash
    assert torch.equal(merged.images, source.images)
    next(tmp_path.rglob("test_batch*")).unlink()
    assert CIFAR10().status(tmp_path).startswith("ready")
    assert CIFAR10(test=True).status(tmp_path).startswith("missing: ")
    with pytest.raises(DataMissing, match=r"test_batch\.bin"):
        CIFAR10(test=True).load(tmp_path, 0)


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_an_incomplete_python_form_does_not_hide_the_binary_one(
    tmp_path: Path, small_cifar: tuple[np.ndarray, np.ndarray]
) -> None:
    write_cifar(tmp_path, "binary", *small_cifar)
    write_cifar(tmp_path, "python3", *small_cifar)
    both = CIFAR10().load(tmp_path, 0)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    binary = CIFAR10().load(tmp_path, 0)
    assert torch.equal(both.images, binary.images) and both.hash == binary.hash


@pytest.mark.parametrize(("form", "name"), [("binary", "data_batch_4.bin"), ("python3", "data_batch_4")])
@pytest.mark.parametrize("damage", ["truncated", "empty", "label"])
def test_damaged_cifar_files_are_named(
    form: str, name: str, damage: str, tmp_path: Path, small_cifar: tuple[np.ndarray, np.ndarray]
) -> None:
    rows, labels = small_cifar
    if damage == "label":
        labels = labels.copy()
        labels[27] = 11
    write_cifar(tmp_path, form, rows, labels)
    path = next(tmp_path.rglob(name))
    if damage != "label":
        path.write_bytes(path.read_bytes()[:-1] if damage == "truncated" else b"")
    with pytest.raises(PflbenchError, match=name):
        CIFAR10().load(tmp_path, 0)
    if form == "binary" and damage != "label":
        assert CIFAR10().status(tmp_path).startswith("missing: ")


def test_a_pickle_of_another_shape(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({"data": np.zeros((7, 3072), dtype=np.uint8), "labels": [0] * 7}))
    with pytest.raises(PflbenchError, match="does not hold 8 images"):
        cifar.read_pickle(path, 8, ["labels"])


# ---- the real files


@pytest.mark.data
def test_real_rmnist(real: Callable[[Dataset], Path]) -> None:
    root = real(MNIST())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnofficialFile)
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
@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_real_cifar10_with_its_test_split(real: Callable[[Dataset], Path]) -> None:
    root = real(CIFAR10(test=True))
    train, both = CIFAR10().load(root, 0), CIFAR10(test=True).load(root, 0)
    assert both.test == 10_000 and torch.equal(both.images[:50_000], train.images)
    assert np.bincount(both.labels[50_000:]).tolist() == [1000] * 10
    assert both.hash != train.hash


def test_a_gzipped_file_is_unpacked_no_further_than_its_size(tmp_path: Path) -> None:
    header = b"\x00\x00\x08\x01\x00\x00\x00\x05"
    for content, problem in ((b"\0" * (64 << 20), "more than 13 bytes"), (b"", "8 bytes instead of 13")):
        with gzip.open(tmp_path / "a.gz", "wb") as file:
            file.write(header + content)
        tracemalloc.start()
        with pytest.raises(PflbenchError, match=f"unpacks to {problem}: delete it"):
            read_idx(tmp_path / "a.gz", (5,))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
        tracemalloc.stop()
