"""Digit-Five: each source in its publisher's format, and the pool they make."""

from __future__ import annotations

import bz2
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets as torchvision

from pflbench.data.datasets import digit_five
from pflbench.data.datasets.digit_five import SOURCES, DigitFive
from pflbench.data.pixels import image_pixels
from pflbench.data.source import HALF, Dataset
from pflbench.errors import DataMissing, PflbenchError

TRAIN, TEST = 20, 10
SPLITS = [("train", TRAIN), ("test", TEST)]


def digits(count: int) -> np.ndarray:
    return np.arange(count) % 10


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, 256, shape, dtype=np.uint8)


def write_mnist(root: Path) -> None:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for split, count in (("train", TRAIN), ("t10k", TEST)):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 2051, count, 28, 28) + pixels(count, 28, 28).tobytes()
        )
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, count) + digits(count).astype(np.uint8).tobytes()
        )


def write_svhn(root: Path) -> None:
    from scipy.io import savemat

    (root / "SVHN").mkdir(parents=True)
    for which, count in SPLITS:
        labels = np.where(digits(count) == 0, 10, digits(count)).astype(np.uint8)[:, None]
        held = {"X": pixels(count, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels}
        savemat(root / "SVHN" / f"{which}_32x32.mat", held, do_compression=True)


def write_usps_texts(root: Path) -> None:
    (root / "USPS").mkdir(parents=True)
    for name, count in (("usps.bz2", TRAIN), ("usps.t.bz2", TEST)):
        lines = [
            f"{digit + 1} " + " ".join(f"{k}:{level / 127.5 - 1:.6f}" for k, level in enumerate(image.flat, 1)) + " "
            for digit, image in zip(digits(count), pixels(count, 16, 16), strict=True)
        ]
        (root / "USPS" / name).write_bytes(bz2.compress("\n".join(lines).encode() + b"\n"))


def write_usps_npz(root: Path) -> None:
    arrays = {f"{which}_images": pixels(count, 16, 16) for which, count in SPLITS}
    np.savez(root / "usps.npz", **arrays, **{f"{which}_labels": digits(count) for which, count in SPLITS})


def write_mnist_m(root: Path) -> None:
    for which, count in SPLITS:
        folder = root / "mnist_m" / f"mnist_m_{which}"
        folder.mkdir(parents=True)
        for k, image in enumerate(pixels(count, 32, 32, 3)):
            Image.fromarray(image).save(folder / f"{k:08}.png")
        lines = [f"{k:08}.png {digit}\n" for k, digit in enumerate(digits(count))]
        (folder.parent / f"mnist_m_{which}_labels.txt").write_text("".join(lines))


def write_synthetic(root: Path) -> None:
    for folder, each in (("imgs_train", 2), ("imgs_valid", 1)):
        for digit in range(10):
            (root / "synthetic_digits" / folder / str(digit)).mkdir(parents=True)
            for k in range(each):
                path = root / "synthetic_digits" / folder / str(digit) / f"{digit}_{k:05}.jpg"
                Image.new("RGB", (128, 128), (20 * digit, 0, 0)).save(path)


WRITERS = {
    "mnist": write_mnist,
    "svhn": write_svhn,
    "usps": write_usps_texts,
    "mnist-m": write_mnist_m,
    "synthetic": write_synthetic,
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty root, in which SVHN's files need no official checksum."""
    monkeypatch.setattr(torchvision.SVHN, "_check_integrity", lambda self: True)
    return tmp_path


@pytest.fixture
def five(root: Path) -> Path:
    for write in WRITERS.values():
        write(root)
    return root


# ---- one source


@pytest.mark.parametrize(("which", "count"), SPLITS)
@pytest.mark.parametrize(
    ("name", "write", "shape"),
    [
        ("mnist", write_mnist, (28, 28)),
        ("svhn", write_svhn, (32, 32, 3)),
        ("usps", write_usps_npz, (16, 16)),
        ("mnist-m", write_mnist_m, (32, 32, 3)),
    ],
)
def test_a_source_reads_what_was_written(
    name: str, write: Callable[[Path], None], shape: tuple[int, ...], which: str, count: int, root: Path
) -> None:
    with pytest.raises(DataMissing):
        SOURCES[name].require(root)
    write(root)
    SOURCES[name].require(root)
    images, labels = SOURCES[name].split(root, which)
    assert np.array_equal(labels, digits(count)) and labels.dtype == np.int64
    found = [np.asarray(Image.open(image)) if isinstance(image, Path) else image for image in images]
    assert np.array_equal(np.stack(found), pixels(count, *shape))


def test_synthetic_digits_lie_in_folders(root: Path) -> None:
    write_synthetic(root)
    images, labels = SOURCES["synthetic"].split(root, "train")
    assert labels.tolist() == [d for d in range(10) for _ in range(2)]
    for image, label in zip(images, labels, strict=True):
        assert (
            image_pixels(image, 3, (32, 32)).shape == (3, 32, 32)
            and abs(int(image_pixels(image, 3, (32, 32))[0, 9, 9]) - 20 * int(label)) < 3
        )


def test_usps_reads_as_torchvision_reads_it(root: Path) -> None:
    write_usps_texts(root)
    for which, train in (("train", True), ("test", False)):
        images, labels = SOURCES["usps"].split(root, which)
        other = torchvision.USPS(root / "USPS", train=train)
        assert np.array_equal(np.asarray(images), other.data) and np.array_equal(labels, other.targets)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("svhn", "SVHN/train_32x32.mat"),
        ("usps", "USPS/usps.bz2"),
        ("mnist-m", "mnist_m/mnist_m_train_labels.txt"),
        ("mnist-m", "mnist_m/mnist_m_train/00000003.png"),
        ("synthetic", "synthetic_digits/imgs_train/4/4_00001.jpg"),
    ],
)
def test_damaged_files_are_named(name: str, file: str, root: Path) -> None:
    WRITERS[name](root)
    (root / file).write_bytes(b"not what it was")
    with pytest.raises(PflbenchError, match=r"digit-five in .* cannot be read|Cannot read"):
        DigitFive(name).load(root, 0)


def test_gray_images_become_equal_channels() -> None:
    color = image_pixels(pixels(28, 28), 3, (32, 32))
    assert color.shape == (3, 32, 32) and (color[0] == color[1]).all() and (color[0] == color[2]).all()
    assert (image_pixels(np.full((16, 16), 77, dtype=np.uint8), 3, (32, 32)) == 77).all()


# ---- the pool


def test_the_pool_of_all_five(five: Path) -> None:
    assert DigitFive().status(five).startswith("ready")
    DigitFive().fetch(five)  # nothing to do
    source = DigitFive().load(five, 0)
    assert source.images.shape == (150, 3, 32, 32) and source.images.dtype == torch.uint8 and source.test == 50
    assert source.normalization == (HALF.mean * 3, HALF.std * 3) and source.classes == 10
    assert source.kind is not None and np.array_equal(source.labels, source.kind % 10)
    assert (source.kind[:100] // 10).tolist() == [s for s in range(5) for _ in range(20)]
    assert (source.kind[100:] // 10).tolist() == [s for s in range(5) for _ in range(10)]
    again = DigitFive().load(five, 1)
    assert torch.equal(source.images, again.images) and source.hash == again.hash


def test_images_keep_their_labels(root: Path) -> None:
    write_mnist_m(root)
    source = DigitFive("mnist-m").load(root, 0)
    written = {image.transpose(2, 0, 1).tobytes(): k % 10 for k, image in enumerate(pixels(TRAIN, 32, 32, 3))}
    assert [written[image.numpy().tobytes()] for image in source.images[:TRAIN]] == source.labels[:TRAIN].tolist()


def test_a_subset_keeps_the_numbers_of_its_sources(five: Path) -> None:
    source, other = DigitFive("mnist-m, mnist").load(five, 0), DigitFive("mnist,mnist-m").load(five, 0)
    assert source.kind is not None and set(source.kind // 10) == {0, 3}
    assert torch.equal(source.images, other.images) and source.hash == other.hash != DigitFive().load(five, 0).hash


def test_no_more_than_the_most_images_of_a_source(five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DigitFive("svhn").load(five, 0)
    monkeypatch.setattr(digit_five, "MOST", {"train": 7, "test": 3})
    source = DigitFive("svhn").load(five, 0)
    assert len(source.labels) == 10 and source.test == 3
    assert torch.equal(source.images[:7], whole.images[:7]) and torch.equal(source.images[7:], whole.images[20:23])


def test_everything_missing_is_named_with_what_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **named: object) -> None:
        raise RuntimeError("no route to host")

    for name in ("MNIST", "SVHN", "USPS"):
        monkeypatch.setattr(f"torchvision.datasets.{name}", fail)
    write_usps_texts(root)
    with pytest.raises(DataMissing) as fetched:
        DigitFive().fetch(root)
    for text in ("no route to host", "mnist_m.tar.gz", "synthetic-digits"):
        assert text in str(fetched.value)
    with pytest.raises(DataMissing, match="pflbench data fetch digit-five") as loaded:
        DigitFive().load(root, 0)
    for message in (str(fetched.value), str(loaded.value)):
        for file in ("SVHN/test_32x32.mat", "mnist_m/mnist_m_test", "synthetic_digits/imgs_valid"):
            assert str(root / file) in message
        assert 'sources = "usps"' in message
    assert DigitFive().status(root) == "missing: mnist, svhn, mnist-m, synthetic; ready: usps"


@pytest.mark.data
@pytest.mark.parametrize(("name", "sizes"), [("mnist", (25_000, 9_000)), ("usps", (7_291, 2_007))])
def test_real_sources(name: str, sizes: tuple[int, int], real: Callable[[Dataset], Path]) -> None:
    source = DigitFive(name).load(real(DigitFive(name)), 0)
    assert (len(source.labels) - source.test, source.test) == sizes
    assert sizes[0] == DigitFive(name).examples
    assert source.images.min() == 0 and source.images.max() > 240
