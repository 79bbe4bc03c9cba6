"""SUN397: the hierarchy's spreadsheet, which categories and photos count, what is done to a photo, and the cache."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openpyxl
import pytest
import torch
from PIL import Image

from pflbench.data.datasets import sun397
from pflbench.data.datasets.sun397 import SUN397, categories, shrunk
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, PflbenchError

TITLES = ["category", *sun397.SUPERCLASSES, "shopping and dining"]
HIERARCHY: list[tuple[str, int, int, int]] = [
    ("'/a/abbey'", 0, 0, 1),
    ("'/a/airport'", 1, 0, 0),
    ("'/b/beach'", 0, 1, 0),
    ("'/c/cottage_garden'", 0, 1, 1),  # in two superclasses: does not count
    ("/c/church/indoor", 1, 0, 0),
    ("/c/church/outdoor", 0, 0, 1),
    ("/d/desert", 0, 1, 0),
    ("/d/den", 1, 0, 0),  # the third of its superclass: not used
    ("/e/empty", 0, 0, 0),
]
USED = ["a/airport", "c/church/indoor", "b/beach", "d/desert", "a/abbey", "c/church/outdoor"]


def write_xlsx(path: Path, rows: Sequence[Sequence[str | int | None]], sheet: str = "SUN397") -> None:
    """A workbook with this sheet behind another one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    book = openpyxl.Workbook()
    found = book.create_sheet(sheet)
    for row in rows:
        found.append(row)
    book.save(path)


def write_hierarchy(path: Path, rows: Sequence[tuple[str, int, int, int]] = HIERARCHY) -> None:
    write_xlsx(path, [[None, "Which type of scene?"], TITLES, *([*row, 1] for row in rows)])


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with two categories a superclass and five photos a category, of which the last is one too many."""
    monkeypatch.setattr(sun397, "CATEGORIES", 2)
    monkeypatch.setattr(sun397, "IMAGES", 4)
    monkeypatch.setattr(sun397, "TRAIN", 3)
    folder = tmp_path / "SUN397"
    write_hierarchy(folder / "hierarchy_three_levels" / "three_levels.xlsx")
    for number, name in enumerate(USED):
        (folder / name).mkdir(parents=True)
        for k in range(5):
            Image.new("RGB", (90, 70), (40 * number, 50 * k, 0)).save(folder / name / f"sun_{'abcde'[k]}.jpg")
    return tmp_path


# ---- the spreadsheet


def test_the_first_categories_of_one_superclass_each(small: Path) -> None:
    assert categories(small / "SUN397" / "hierarchy_three_levels" / "three_levels.xlsx") == USED


def test_too_few_categories_are_counted(small: Path) -> None:
    sheet = small / "SUN397" / "hierarchy_three_levels" / "three_levels.xlsx"
    write_hierarchy(sheet, HIERARCHY[:-3])
    with pytest.raises(ValueError, match="not 2 of each"):
        categories(sheet)


def test_a_spreadsheet_of_something_else(small: Path) -> None:
    write_xlsx(small / "SUN397" / "hierarchy_three_levels" / "three_levels.xlsx", [["name", "indoor"]])
    with pytest.raises(PflbenchError, match=r"^sun397 in .* cannot be read"):
        SUN397().load(small, 0)


# ---- the photos


def test_a_photo_is_cropped_resized_and_stored_as_jpeg(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8).repeat(30, 0).repeat(30, 1)
    Image.fromarray(pixels).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as photo:
        square = photo.crop((60, 0, 270, 210)).resize((64, 64), Image.Resampling.BICUBIC)
    stored = io.BytesIO()
    square.save(stored, "JPEG")
    found = shrunk(tmp_path / "a.jpg")
    assert np.array_equal(found, np.asarray(Image.open(stored)).transpose(2, 0, 1))
    assert not np.array_equal(found, np.asarray(square).transpose(2, 0, 1))  # JPEG loses


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_photos_of_other_modes_become_rgb(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.new("RGB", (64, 80), (200, 200, 200)).convert(mode).save(path, "TIFF")  # the content decides, not the name
    assert shrunk(path).shape == (3, 64, 64) and abs(int(shrunk(path)[1, 32, 32]) - 200) < 10


def test_the_pool(small: Path) -> None:
    assert SUN397().status(small).startswith("ready")
    SUN397().fetch(small)  # nothing to do
    a, b = SUN397().load(small, 0), SUN397().load(small, 1)
    assert a.images.shape == (24, 3, 64, 64) and a.images.dtype == torch.uint8
    assert a.test == 6 and a.classes == 3 and a.normalization is None
    assert a.kind is not None and b.kind is not None
    for rows, each in ((slice(0, 18), 3), (slice(18, 24), 1)):
        assert np.bincount(a.kind[rows]).tolist() == [each] * 6
    assert np.array_equal(a.labels, a.kind // 2)
    # Red tells the category, green the file: the first four of each, whatever the seed.
    red, green = ((a.images[:, c, 32, 32].numpy() / step).round().astype(int) for c, step in ((0, 40), (1, 50)))
    assert np.array_equal(red, a.kind)
    assert sorted(zip(red, green, strict=True)) == [(c, k) for c in range(6) for k in range(4)]
    assert a.hash == b.hash and not torch.equal(a.images, b.images)
    assert torch.equal(a.images, SUN397().load(small, 0).images)


def test_too_few_photos_are_counted(small: Path) -> None:
    for name in ("sun_a.jpg", "sun_b.jpg"):
        (small / "SUN397" / "d" / "desert" / name).unlink()
    with pytest.raises(PflbenchError, match=r"desert has 3 of 4 images"):
        SUN397().load(small, 0)


def test_a_damaged_photo_is_named(small: Path, cache: Path) -> None:
    path = small / "SUN397" / "b" / "beach" / "sun_b.jpg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(PflbenchError, match=r"sun_b\.jpg"):
        SUN397().load(small, 0)
    assert not cache.exists()


def test_what_is_missing_is_named(small: Path) -> None:
    for name in ("load", "fetch"):
        with pytest.raises(DataMissing, match=r"SUN397\.tar\.gz") as error:
            SUN397().load(small / "no", 0) if name == "load" else SUN397().fetch(small / "no")
        for path in ("a", "hierarchy_three_levels/three_levels.xlsx"):
            assert str(small / "no" / "SUN397" / path) in str(error.value)
            assert str(small / "no" / "SUN397" / path) in SUN397().status(small / "no")


# ---- the cache


def forbid(path: Path) -> np.ndarray:
    raise AssertionError(f"read {path}")


def test_photos_are_read_once(small: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, files = SUN397().load(small, 0), sorted(small.rglob("*"))
    monkeypatch.setattr(sun397, "shrunk", forbid)
    again = SUN397().load(small, 0)
    assert torch.equal(first.images, again.images) and first.hash == again.hash
    assert sorted(small.rglob("*")) == files and len(list(cache.iterdir())) == 1


def test_other_photos_are_other_images(small: Path) -> None:
    first = SUN397().load(small, 0)
    Image.new("RGB", (90, 70), (1, 2, 3)).save(small / "SUN397" / "a" / "abbey" / "sun_Z.jpg")
    assert SUN397().load(small, 0).hash != first.hash


@pytest.mark.data
def test_real_sun397(real: Callable[[Dataset], Path]) -> None:
    source = SUN397().load(real(SUN397()), 0)
    assert source.images.shape == (15_000, 3, 64, 64) and source.test == 3000 and source.kind is not None
    assert np.bincount(source.kind[:12_000]).tolist() == [80] * 150
