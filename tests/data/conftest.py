"""What the tests of datasets share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pflbench.data import prepared
from pflbench.data.datasets.image_sources import SOURCES
from pflbench.data.root import data_root
from pflbench.data.source import Dataset

from .image_collections import CLASSES, EACH


@pytest.fixture
def real() -> Callable[[Dataset], Path]:
    """Dataset → the data root that holds it; skips the test where it is not there."""

    def root(dataset: Dataset) -> Path:
        status = dataset.status(data_root())
        if not status.startswith("ready"):
            pytest.skip(status)
        return data_root()

    return root


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where prepared arrays are kept, empty for each test. Files however new are held to stay as they are."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(prepared, "cache_folder", lambda: folder)
    monkeypatch.setattr(prepared, "SETTLED", -1)
    return folder / "prepared"


@pytest.fixture
def small_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data root; sources of images are complete if they are as small as those of `image_collections`."""
    for name, source in SOURCES.items():
        monkeypatch.setattr(type(source), "least", 1 if name == "gtsrb" else EACH)
        if name not in ("cifar-fs", "fc100"):
            monkeypatch.setattr(type(source), "classes", CLASSES)
    return tmp_path
