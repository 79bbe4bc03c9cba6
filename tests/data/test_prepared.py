"""Prepared arrays: made once, mapped as they were made, and made again after any change."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pflbench.data import prepared as module
from pflbench.data.prepared import prepared
from pflbench.errors import DataMissing

ARRAYS = (np.arange(30, dtype=np.uint8).reshape(2, 3, 5).swapaxes(1, 2), np.arange(4), np.array(["ä", "w10"]))


class Making:
    """What makes arrays, and how often it did."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays, self.times = arrays or ARRAYS, 0

    def __call__(self) -> tuple[np.ndarray, ...]:
        self.times += 1
        return self.arrays


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.png"
    path.write_bytes(b"12345")
    return path


def same(found: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> bool:
    pairs = zip(found, right, strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b) for a, b in pairs)


def mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def test_made_once_and_mapped(file: Path, cache: Path) -> None:
    make = Making()
    for _ in range(2):
        found = prepared("r", [file], make)
        assert same(found, ARRAYS) and make.times == 1 and all(map(mapped, found))
    assert [len(list(folder.glob("*.npy"))) for folder in cache.iterdir()] == [3]


def test_what_is_written_into_an_array_stays_in_the_process(file: Path) -> None:
    make = Making()
    images = prepared("r", [file], make)[0]
    torch.from_numpy(images).zero_()  # nor is there a warning that it must not be written to
    assert not images.any() and same(prepared("r", [file], make), ARRAYS) and make.times == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["u1", "<i8", "<f4", "<U7"]).flatmap(
            lambda dtype: arrays_of.arrays(
                dtype,
                arrays_of.array_shapes(min_dims=0, min_side=0),
                elements={"allow_nan": False} if dtype == "<f4" else None,
            )
        ),
        max_size=4,
    )
)
def test_any_arrays_come_back(file: Path, arrays: list[np.ndarray]) -> None:
    recipe = str(uuid.uuid4())
    for _ in range(2):
        assert same(prepared(recipe, [file], lambda: tuple(arrays)), tuple(arrays))


def test_other_files_and_recipes_are_other_arrays(file: Path, tmp_path: Path) -> None:
    make = Making()
    other = tmp_path / "b.png"
    other.write_bytes(b"12345")
    os.utime(other, ns=(file.stat().st_mtime_ns,) * 2)
    for recipe, files in (("r", [file]), ("s", [file]), ("r", [other]), ("r", [file, other]), ("r", [other, file])):
        before = make.times
        prepared(recipe, files, make)
        assert make.times == before + 1
    file.write_bytes(b"123456")
    prepared("r", [file], make)
    os.utime(file, ns=(5, 5))
    prepared("r", [file], make)
    assert make.times == 7


def test_a_file_of_the_same_size_and_time_is_told(file: Path) -> None:
    make = Making()
    os.utime(file, ns=(5, 5))
    prepared("r", [file], make)
    time.sleep(0.05)
    file.write_bytes(b"54321")
    os.utime(file, ns=(5, 5))
    prepared("r", [file], make)
    assert make.times == 2


def test_nothing_is_kept_of_files_that_may_change_without_showing(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED", 2 * 10**9)
    assert same(prepared("r", [file], Making()), ARRAYS) and not cache.exists()

    def changing() -> tuple[np.ndarray, ...]:
        file.write_bytes(b"now another size")
        os.utime(file, ns=(7, 7))
        return ARRAYS

    os.utime(file, ns=(5, 5))
    assert same(prepared("r", [file], changing), ARRAYS) and not cache.exists()
    assert same(prepared("r", [file], Making()), ARRAYS) and cache.exists()


def test_a_missing_file_is_named(file: Path) -> None:
    with pytest.raises(DataMissing, match=r"b\.png"):
        prepared("r", [file, file.with_name("b.png")], Making())


def test_what_making_raises_is_let_through_and_nothing_is_kept(file: Path, cache: Path) -> None:
    def fail() -> tuple[np.ndarray, ...]:
        raise DataMissing("no")

    with pytest.raises(DataMissing, match="no"):
        prepared("r", [file], fail)
    assert not cache.exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" + data[1:]])
def test_a_damaged_file_is_made_again(damage: Any, file: Path, cache: Path) -> None:
    make = Making()
    prepared("r", [file], make)
    (folder,) = cache.iterdir()
    damaged = folder / "1.npy"
    damaged.write_bytes(damage(damaged.read_bytes()))
    for _ in range(2):
        assert same(prepared("r", [file], make), ARRAYS) and make.times == 2
    assert [folder] == list(cache.iterdir())


def test_nothing_half_written_remains(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *args: Any, **kwargs: Any) -> None:
        path.write_bytes(b"so far so good")
        raise OSError("No space left on device")

    monkeypatch.setattr(module.np, "save", full)
    assert same(prepared("r", [file], Making()), ARRAYS)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_to_costs_time_only(file: Path, cache: Path) -> None:
    cache.write_text("in the way")
    make = Making()
    for times in (1, 2):
        assert same(prepared("r", [file], make), ARRAYS) and make.times == times


PROCESS = """
import sys, time
from pathlib import Path
import numpy as np
from pflbench.data import prepared as module

def make():
    Path(sys.argv[2], f"made-{sys.argv[3]}").touch()
    while len(list(Path(sys.argv[2]).glob("made-*"))) < 2:  # both are at it
        time.sleep(0.01)
    return np.full((1000, 1000), 7, dtype=np.uint8), np.arange(5)

module.SETTLED = -1
images, numbers = module.prepared("r", [Path(sys.argv[1])], make)
print(images.sum(), numbers.tolist())
"""


def test_what_a_killed_process_left_goes_after_a_day(file: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    for name, age in ((".old.bin", 2), (".new.bin", 0.5)):
        (cache / name).write_bytes(b"half")
        os.utime(cache / name, (time.time() - age * 86400,) * 2)
    os.utime(file, ns=(5, 5))
    prepared("r", [file], Making())
    assert {path.name for path in cache.iterdir() if path.name[0] == "."} == {".new.bin"}


def test_two_processes_at_once(file: Path, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "xdg")}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(file), str(tmp_path), str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in both:
        assert process.communicate(timeout=60)[0].split() == ["7000000", "[0,", "1,", "2,", "3,", "4]"]
        assert process.returncode == 0
    assert len(list((tmp_path / "xdg" / "pflbench" / "prepared").iterdir())) == 1
