"""Noise skew: how strong the noise of each group is, and what is drawn anew with each seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pflbench.data.datasets.cifar import CIFAR10
from pflbench.data.datasets.digits import Digits
from pflbench.data.datasets.groups import NoiseGroups
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Kinds
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError


def differences(noisy: Source, clean: Source, group: int) -> np.ndarray:
    """Noise where it cannot have been cut off."""
    assert noisy.kind is not None
    rows = noisy.kind == group
    before, after = (source.images.numpy()[rows].astype(np.float64) for source in (clean, noisy))
    return (after - before)[(before > 100) & (before < 156)]


def test_each_group_is_noisier_than_the_one_before(tmp_path: Path) -> None:
    clean = Digits().load(tmp_path, 0)
    noisy = NoiseGroups("digits", groups=5, sigma=0.1).load(tmp_path, 3)
    assert noisy.images.dtype == clean.images.dtype and noisy.images.shape == clean.images.shape
    assert noisy.kind is not None and noisy.hash == clean.hash
    assert sorted(np.bincount(noisy.kind).tolist(), reverse=True) == [360, 360, 359, 359, 359]
    for group in range(5):
        drawn = differences(noisy, clean, group)
        expected = (255 * 0.1 * (group + 1) / 5) ** 2 + 1 / 12  # rounding adds the variance of a uniform number
        assert drawn.mean() == pytest.approx(0, abs=4 * drawn.std() / len(drawn) ** 0.5)
        assert drawn.var() == pytest.approx(expected, rel=5 * (2 / len(drawn)) ** 0.5)
    assert np.array_equal(noisy.labels, clean.labels)


def test_a_seed_draws_groups_and_noise_anew_and_repeats_both(tmp_path: Path) -> None:
    a, b, again = (NoiseGroups("digits").load(tmp_path, seed) for seed in (0, 1, 0))
    assert a.kind is not None and b.kind is not None
    assert np.array_equal(a.images, again.images) and np.array_equal(a.kind, again.kind)
    assert not np.array_equal(a.images, b.images) and not np.array_equal(a.kind, b.kind)
    assert NoiseGroups("digits").seeded


def test_very_strong_noise_stays_within_bytes(tmp_path: Path) -> None:
    images = NoiseGroups("digits", groups=1, sigma=50.0).load(tmp_path, 0).images.numpy()
    assert images.dtype == np.uint8 and np.mean((images == 0) | (images == 255)) > 0.9


def test_the_test_split_has_groups_too_and_clients_hold_one_each(tmp_path: Path) -> None:
    dataset = NoiseGroups("digits", groups=4, test=297)
    source = dataset.load(tmp_path, 0)
    assert source.kind is not None and source.test == 297
    assert np.bincount(source.kind[-297:]).tolist() == [75, 74, 74, 74]
    federation = build(source, Kinds(), clients=8, training_clients=8, query="test-split", seed=0)
    for client, (support, query) in enumerate(zip(federation.support, federation.query, strict=True)):
        assert set(source.kind[support]) == set(source.kind[query]) == {client // 2}


def test_it_is_what_its_base_is(tmp_path: Path) -> None:
    dataset = NoiseGroups("cifar10", test=True)
    assert (dataset.shape, dataset.classes, dataset.examples) == ((3, 32, 32), 10, 50_000)
    assert dataset.status(tmp_path) == CIFAR10(test=True).status(tmp_path)
    assert NoiseGroups("digits").status(tmp_path).startswith("ready")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NoiseGroups("cifar"), "Unknown base of noise-groups 'cifar'.*cifar10"),
        (lambda: NoiseGroups("noise-groups"), "Unknown base"),
        (lambda: NoiseGroups("digits", groups=0), "groups must be at least 1"),
        (lambda: NoiseGroups("digits", sigma=0.0), "sigma must be positive"),
        (lambda: NoiseGroups("digits", sigma=float("nan")), "sigma must be positive"),
        (lambda: NoiseGroups("mnist", test=True).shape, "'mnist' has no option test"),
        (lambda: NoiseGroups("rotated-digits").load(Path(), 0), "'rotated-digits' have some"),
        (lambda: NoiseGroups("digits", groups=2000).load(Path(), 0), "1797 train images cannot be in 2000 groups"),
    ],
)
def test_what_is_impossible(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::pflbench.data.source.UnofficialFile")
def test_real_cifar10(real: Callable[[Dataset], Path]) -> None:
    root = real(CIFAR10())
    clean, noisy = CIFAR10().load(root, 0), NoiseGroups("cifar10").load(root, 0)
    for group in (0, 9):
        drawn = differences(noisy, clean, group)
        assert drawn.var() == pytest.approx((25.5 * (group + 1) / 10) ** 2 + 1 / 12, rel=0.01)
