"""Meta-Dataset's tasks, and those of the bundled digits: what the protocol says of them, on collections made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pflbench.data.datasets.digits import Digits
from pflbench.data.datasets.meta_dataset import PAPER, SOURCES, DigitTasks, MetaDataset, draw_task
from pflbench.data.source import Dataset, Source
from pflbench.errors import DataMissing, PflbenchError
from pflbench.rng import stream

from .image_collections import EACH, WRITE

SMALL: dict[str, Any] = {"tasks": 40, "images": 40}
"""Four images a class, of six."""


@pytest.fixture
def eight(small_sources: Path) -> Path:
    for write in WRITE.values():
        write(small_sources)
    return small_sources


def chosen(seed: int, task: int, names: list[str]) -> str:
    return max(names, key=lambda name: stream(seed, "meta-dataset", task, "source", name).random())


# ---- one task


@pytest.mark.parametrize("seed", range(5))
def test_a_task_is_ten_classes_with_labels_of_their_own(seed: int) -> None:
    """Birds have 41 to 60 images of a class."""
    counts = np.random.default_rng(seed).integers(41, 61, 200)
    rows, labels = draw_task(counts, 10, 60, seed, "some", 3)
    classes = np.repeat(np.arange(200), counts)[rows]
    pairs = sorted(set(zip(labels.tolist(), classes.tolist(), strict=True)))
    assert [label for label, _ in pairs] == list(range(10)) and len({c for _, c in pairs}) == 10
    assert len(np.unique(rows)) == len(rows) and rows.dtype == labels.dtype == np.int64
    assert all(np.count_nonzero(labels == label) == counts[c] for label, c in pairs)  # all below 60


def test_labels_are_permuted_at_random() -> None:
    """With ten classes every task has all of them; each class gets each label about equally often."""
    counts = np.full(10, 5)
    met = np.zeros((10, 10))
    for task in range(2000):
        rows, labels = draw_task(counts, 10, 1, 0, task)
        met[rows // 5, labels] += 1
    assert (met.sum(axis=0) == 2000).all() and (met.sum(axis=1) == 2000).all()
    assert ((met - 200) ** 2 / 200).sum() < 120  # chi-squared with 81 degrees of freedom: 0.3 % beyond


def test_fewer_images_are_a_part_of_more() -> None:
    few, fewer_labels = draw_task(np.full(30, 60), 10, 10, 1, "x")
    many, labels = draw_task(np.full(30, 60), 10, 60, 1, "x")
    assert set(zip(few, fewer_labels, strict=True)) < set(zip(many, labels, strict=True))


# ---- the pool


def test_the_pool_is_the_tasks_one_after_the_other(eight: Path) -> None:
    dataset = MetaDataset(**SMALL)
    source = dataset.load(eight, 3)
    assert source.images.shape == (40 * 40, 3, 32, 32) and source.images.dtype == torch.uint8
    assert source.kind is not None and source.kind.tolist() == np.repeat(np.arange(40), 40).tolist()
    assert source.labels.dtype == np.int64 and source.classes == dataset.classes == 10 and source.test == 0
    assert dataset.examples == len(source.labels) and dataset.shape == (3, 32, 32) and dataset.seeded
    assert dataset.status(eight).startswith("ready: aircraft, ")
    dataset.fetch(eight)  # nothing to do
    for task in range(40):
        mine = source.kind == task
        name = chosen(3, task, list(PAPER))
        held = SOURCES[name].images(eight)
        rows, labels = draw_task(held.counts, 10, 4, 3, "meta-dataset", task, name)
        assert np.bincount(source.labels[mine]).tolist() == [4] * 10
        assert np.array_equal(source.labels[mine], labels)
        assert np.array_equal(source.images[mine], np.broadcast_to(held.images[rows], (40, 3, 32, 32)))
    again, other = dataset.load(eight, 3), dataset.load(eight, 4)
    assert torch.equal(again.images, source.images) and np.array_equal(again.labels, source.labels)
    assert again.hash == other.hash == source.hash and not torch.equal(other.images, source.images)


def test_sources_are_drawn_uniformly() -> None:
    drawn = [chosen(seed, task, list(PAPER)) for seed in range(20) for task in range(100)]
    counts = np.array([drawn.count(name) for name in PAPER])
    assert ((counts - 250) ** 2 / 250).sum() < 25  # chi-squared with 7 degrees of freedom: 0.1 % beyond
    assert len({tuple(drawn[100 * seed : 100 * seed + 100].count(name) for name in PAPER) for seed in range(20)}) > 15


def test_a_class_gives_what_it_has(eight: Path) -> None:
    """Omniglot's 20 of 60, here six of eight."""
    source = MetaDataset(tasks=3, images=80).load(eight, 0)
    assert np.bincount(source.kind).tolist() == [10 * EACH] * 3  # type: ignore[arg-type]


def test_a_task_of_a_source_does_not_depend_on_the_others(eight: Path) -> None:
    some = MetaDataset("omniglot, gtsrb,cifar-fs", **SMALL).load(eight, 0)
    turned = MetaDataset("cifar-fs,gtsrb,omniglot", **SMALL).load(eight, 0)
    assert torch.equal(some.images, turned.images) and some.hash == turned.hash
    whole = MetaDataset(**SMALL).load(eight, 0)
    same = [task for task in range(40) if chosen(0, task, list(PAPER)) in ("omniglot", "gtsrb", "cifar-fs")]
    assert 5 < len(same) < 25 and whole.hash != some.hash
    for task in same:
        assert torch.equal(some.images[some.kind == task], whole.images[whole.kind == task])
        assert np.array_equal(some.labels[some.kind == task], whole.labels[whole.kind == task])


def test_the_hash_is_that_of_what_is_used(eight: Path) -> None:
    before = MetaDataset("gtsrb,dtd", **SMALL).load(eight, 0).hash
    (eight / "gtsrb" / "GTSRB" / "Training" / "00000" / "00000.ppm").unlink()
    assert MetaDataset("gtsrb,dtd", **SMALL).load(eight, 0).hash != before
    assert MetaDataset("dtd", **SMALL).load(eight, 0).hash != before


def test_red_and_blue_change_places_in_some_sources(eight: Path) -> None:
    plain, swapped = (MetaDataset("gtsrb,dtd", swapped=which, **SMALL).load(eight, 0) for which in (None, "gtsrb"))
    assert plain.hash != swapped.hash and np.array_equal(plain.labels, swapped.labels)
    assert plain.hash == MetaDataset("gtsrb,dtd", **SMALL).load(eight, 0).hash
    for task in range(40):
        images = plain.images[plain.kind == task]
        here = images.flip(1) if chosen(0, task, ["gtsrb", "dtd"]) == "gtsrb" else images
        assert torch.equal(swapped.images[swapped.kind == task], here)
    assert not torch.equal(plain.images, swapped.images)


def test_a_pool_is_drawn_once(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on it is mapped, as long as options, seed and sources are the same."""

    def fail(*args: object) -> None:
        raise AssertionError("drawn again")

    dataset = MetaDataset("gtsrb, omniglot", **SMALL)
    first = dataset.load(eight, 0)
    monkeypatch.setattr("pflbench.data.datasets.meta_dataset.draw_task", fail)
    again = dataset.load(eight, 0)
    assert torch.equal(first.images, again.images) and np.array_equal(first.labels, again.labels)
    for other in (lambda: dataset.load(eight, 1), lambda: MetaDataset("gtsrb", **SMALL).load(eight, 0)):
        with pytest.raises(PflbenchError, match="drawn again"):
            other()
    (eight / "gtsrb" / "GTSRB" / "Training" / "00000" / "00000.ppm").unlink()
    with pytest.raises(PflbenchError, match="drawn again"):
        dataset.load(eight, 0)


# ---- what is missing or wrong


def test_all_eight_or_none(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no route to host")

    (eight / "dtd" / "images").rename(eight / "dtd" / "pictures")
    (eight / "mini-imagenet" / "mini-imagenet-cache-train.pkl").unlink()
    monkeypatch.setattr("torchvision.datasets.DTD", fail)
    dataset = MetaDataset(**SMALL)
    assert dataset.status(eight).startswith("missing: dtd, mini-imagenet; ready: aircraft, birds, gtsrb, flowers")
    for action in (lambda: dataset.load(eight, 0), lambda: dataset.fetch(eight)):
        with pytest.raises(DataMissing) as error:
            action()
        first, dtd, mini, last = str(error.value).splitlines()
        assert "lacks 2 of its 8 sources" in first
        assert dtd.startswith("- dtd") and "0.6 GB" in dtd and f"in {eight}" in dtd
        assert mini.startswith("- mini-imagenet") and "0.8 GB" in mini
        assert 'sources = "aircraft,birds,gtsrb,flowers,omniglot,cifar-fs"' in last
    assert "no route to host" in dtd and "no route" not in mini
    MetaDataset("gtsrb", **SMALL).load(eight, 0)  # which is another dataset


def test_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as error:
        MetaDataset().load(tmp_path, 0)
    assert [line.split()[1] for line in str(error.value).splitlines()[1:]] == list(PAPER)
    assert MetaDataset().status(tmp_path) == f"missing: {', '.join(PAPER)}"


def test_a_damaged_source_is_named(eight: Path) -> None:
    (eight / "dtd" / "images" / "00001" / "00001.jpg").write_bytes(b"no image")
    with pytest.raises(PflbenchError, match=r"00001\.jpg") as error:
        MetaDataset(**SMALL).load(eight, 0)
    assert "\n" not in str(error.value)


# ---- the stand-in


def test_digit_tasks_rename_the_digits(tmp_path: Path) -> None:
    dataset = DigitTasks(tasks=6, images=50, channels=1, size=8)
    source = dataset.load(tmp_path, 0)
    digits = Digits(size=8).load(tmp_path, 0)
    assert source.images.shape == (300, *dataset.shape) and dataset.examples == 300 and source.hash == digits.hash
    digit = {image.numpy().tobytes(): int(label) for image, label in zip(digits.images, digits.labels, strict=True)}
    meanings = []
    for task in range(6):
        mine = np.flatnonzero(source.kind == task)
        shown = [digit[source.images[row].numpy().tobytes()] for row in mine]
        pairs = set(zip(source.labels[mine].tolist(), shown, strict=True))
        assert len(pairs) == 10 and {a for a, _ in pairs} == {b for _, b in pairs} == set(range(10))
        assert np.bincount(source.labels[mine]).tolist() == [5] * 10
        assert len({source.images[row].numpy().tobytes() for row in mine}) == 50
        meanings.append(tuple(sorted(pairs)))
    assert len(set(meanings)) == 6
    assert not np.array_equal(dataset.load(tmp_path, 1).images, source.images)
    dataset.fetch(tmp_path)
    assert dataset.status(tmp_path).startswith("ready")


# ---- the real files


@pytest.mark.data
def test_real_tasks(real: Callable[[Dataset], Path]) -> None:
    dataset = MetaDataset("omniglot, cifar-fs, gtsrb")
    root = real(dataset)
    source = dataset.load(root, 0)
    sizes = per_source(source)
    assert sizes["omniglot"] == {200} and sizes["cifar-fs"] == {600}
    assert max(sizes["gtsrb"]) <= 600 and min(sizes["gtsrb"]) >= 350


def per_source(source: Source) -> dict[str, set[int]]:
    sizes: dict[str, set[int]] = {}
    for task, size in enumerate(np.bincount(source.kind)):  # type: ignore[arg-type]
        sizes.setdefault(chosen(0, task, ["omniglot", "cifar-fs", "gtsrb"]), set()).add(int(size))
    return sizes
