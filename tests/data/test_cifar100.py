"""CIFAR-100: both forms, superclasses as labels, fine classes as kinds."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR100 as TorchvisionCIFAR100

from pflbench.data.datasets.cifar import CIFAR100, PFEDVEM_100
from pflbench.data.source import Dataset, UnofficialFile
from pflbench.errors import PflbenchError, UsageError

COUNTS = (200, 100)
ROWS = np.random.default_rng(0).integers(0, 256, (300, 3072), dtype=np.uint8)
FINE = np.arange(300) % 100
COARSE = FINE // 5


def write(root: Path, form: str, fine: np.ndarray = FINE) -> None:
    folder = root / f"cifar-100-{form}"
    folder.mkdir()
    for name, rows in (("train", slice(0, 200)), ("test", slice(200, 300))):
        if form == "binary":
            labels = np.column_stack([COARSE[rows], fine[rows]]).astype(np.uint8)
            (folder / f"{name}.bin").write_bytes(np.concatenate([labels, ROWS[rows]], axis=1).tobytes())
        else:
            batch = {
                "data": ROWS[rows],
                "coarse_labels": COARSE[rows].tolist(),
                "fine_labels": fine[rows].tolist(),
                "filenames": ["a.png"] * len(ROWS[rows]),
            }
            (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real" not in request.fixturenames:
        monkeypatch.setattr(CIFAR100, "records", COUNTS)


def test_the_python_forms_checksums_are_torchvisions() -> None:
    listed = [*TorchvisionCIFAR100.train_list, *TorchvisionCIFAR100.test_list]
    assert [tuple(entry) for entry in listed] == list(CIFAR100.forms["cifar-100-python"].items())


@pytest.mark.parametrize("form", ["binary", "python"])
def test_both_forms_give_the_same_pool(form: str, tmp_path: Path) -> None:
    write(tmp_path, form)
    with pytest.warns(UnofficialFile, match=r"train.*test") as caught:
        source = CIFAR100().load(tmp_path, 0)
    assert len(caught) == 1
    assert np.array_equal(source.images.numpy(), ROWS.reshape(-1, 3, 32, 32)) and source.test == 100
    assert np.array_equal(source.labels, COARSE) and source.labels.dtype == np.int64
    assert source.kind is not None and np.array_equal(source.kind, FINE) and source.kind.dtype == np.int64
    assert source.classes == 20 and source.normalization == PFEDVEM_100
    assert CIFAR100().status(tmp_path).startswith("ready: 300 images")
    CIFAR100().fetch(tmp_path)  # nothing to do


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_fine_classes_and_fedreps_normalization(tmp_path: Path) -> None:
    write(tmp_path, "binary")
    plain, fine = CIFAR100().load(tmp_path, 0), CIFAR100(fine=True, normalize="fedrep").load(tmp_path, 0)
    assert np.array_equal(fine.labels, FINE) and fine.labels.dtype == np.int64 and fine.kind is None
    assert fine.classes == CIFAR100(fine=True).classes == 100 and fine.test == 100
    assert fine.normalization == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
    assert torch.equal(fine.images, plain.images) and fine.hash == plain.hash
    assert CIFAR100(fine=True).load(tmp_path, 0).normalization == PFEDVEM_100
    with pytest.raises(UsageError, match="fedrep"):
        CIFAR100(normalize="imagenet")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_the_hash_tells_fine_classes_apart_but_not_the_forms(tmp_path: Path) -> None:
    hashes = []
    for name, form, fine in (("a", "binary", FINE), ("b", "python", FINE), ("c", "binary", 99 - FINE)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, form, fine)
        hashes.append(CIFAR100().load(tmp_path / name, 0).hash)
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(("form", "name"), [("binary", "test.bin"), ("python", "test")])
@pytest.mark.parametrize("damage", ["truncated", "label"])
def test_damaged_files_are_named(form: str, name: str, damage: str, tmp_path: Path) -> None:
    write(tmp_path, form, np.where(np.arange(300) == 250, 100, FINE) if damage == "label" else FINE)
    path = tmp_path / f"cifar-100-{form}" / name
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PflbenchError, match=name):
        CIFAR100().load(tmp_path, 0)
    if form == "binary" and damage == "truncated":
        assert CIFAR100().status(tmp_path).startswith("missing: ")


@pytest.mark.data
def test_real_cifar100(real: Callable[[Dataset], Path]) -> None:
    root = real(CIFAR100())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnofficialFile)
        source = CIFAR100().load(root, 0)
    assert source.images.shape == (60_000, 3, 32, 32) and source.test == 10_000 and source.kind is not None
    pairs = np.unique(np.column_stack([source.labels, source.kind]), axis=0)
    assert pairs[:, 1].size == 100 and np.bincount(pairs[:, 0]).tolist() == [5] * 20
    assert np.bincount(source.kind[:50_000]).tolist() == [500] * 100
    assert np.bincount(source.kind[50_000:]).tolist() == [100] * 100
    # The aquatic mammals and the trees of the dataset's description, by the alphabetical number of their names.
    assert set(source.kind[source.labels == 0]) == {4, 30, 55, 72, 95}
    assert set(source.kind[source.labels == 17]) == {47, 52, 56, 59, 96}
    fine = CIFAR100(fine=True, normalize="fedrep").load(root, 0)
    assert np.array_equal(fine.labels, source.kind) and torch.equal(fine.images, source.images)
    assert source.normalization is not None
    means = source.images[:50_000].to(torch.float64).mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx(source.normalization.mean, abs=1e-3)
