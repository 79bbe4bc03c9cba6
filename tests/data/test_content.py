"""What a user's dataset or partition reads, as a hash."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data import content
from pflbench.data.partitions.cafeme import Shards
from pflbench.data.partitions.fedec import ClassShards
from pflbench.data.source import Normalization, Source
from pflbench.errors import DataMissing

OLD = time.time() - 100


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pool(seed: int = 0) -> Source:
    random = np.random.default_rng(seed)
    labels = np.arange(40, dtype=np.int64) % 2
    images = torch.from_numpy(random.integers(256, size=(40, 1, 2, 2), dtype=np.uint8))
    return Source(images, labels, None, 2, "", test=20)


@dataclass(frozen=True)
class Reads:
    """A dataset or partition that declares what it reads, below the data root."""

    names: tuple[str, ...]

    def files(self, root: Path) -> list[Path]:
        return [root / name for name in self.names]


def of(folder: Path, *names: str) -> str | None:
    return content.of_dataset(Reads(names), folder, 0)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-c](/[a-c])?\.bin", fullmatch=True), st.binary(max_size=9), min_size=1), st.data()
)
def test_files_count_by_their_bytes_and_not_by_where_they_lie(files: dict[str, bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name) / "here", Path(name) / "there"
        for file, text in files.items():
            (here / file).parent.mkdir(parents=True, exist_ok=True)
            (here / file).write_bytes(text)
        shutil.copytree(here, there)
        listed = data.draw(st.permutations(sorted(files)))
        found = of(here, *listed)
        assert found == of(there, *sorted(files)) == of(here, ".")  # in any order, or as a folder
        edited = data.draw(st.sampled_from(sorted(files)))
        (here / edited).write_bytes(files[edited] + b"!")
        assert of(here, *listed) != found


def test_nothing_declared_is_nothing_read(tmp_path: Path) -> None:
    assert of(tmp_path) is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere.npz", "empty"):
        with pytest.raises(DataMissing, match=name):
            of(tmp_path, name)


def test_files_behind_a_link_to_a_folder_count_and_a_loop_ends(tmp_path: Path) -> None:
    real, data = tmp_path / "real", tmp_path / "data"
    real.mkdir()
    data.mkdir()
    (real / "mine.npz").write_bytes(b"one")
    (data / "linked").symlink_to(real)
    (data / "up").symlink_to(data)

    def now() -> str | None:
        return content._of_files(Reads(("data",)).files, tmp_path)

    before = now()
    (real / "mine.npz").write_bytes(b"two")
    assert before != now()


def test_a_folder_counts_under_each_of_its_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "m").mkdir(parents=True)
    (data / "m" / "mine.npz").write_bytes(b"one")
    found = [of(tmp_path, "data")]
    for name in ("a", "z"):
        (data / name).symlink_to(data / "m")
        (data / "m" / name).symlink_to(data)  # both ways: a loop
        found.append(of(tmp_path, "data"))
    assert len(set(found)) == 3


def test_a_file_elsewhere_counts_by_its_name_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "split.json").write_text("[]")
    found = [of(tmp_path / "root", str(tmp_path / name / "split.json")) for name in ("a", "b")]
    assert found[0] == found[1]


def test_a_file_that_was_just_written_is_looked_at_again(tmp_path: Path) -> None:
    path, now = tmp_path / "small.bin", time.time()
    path.write_bytes(b"a")
    os.utime(path, (now, now))
    first = of(tmp_path, path.name)
    path.write_bytes(b"b")
    os.utime(path, (now, now))  # a coarse clock
    assert of(tmp_path, path.name) != first


class Loads:
    """A dataset without `files`."""

    def __init__(self, source: Source) -> None:
        self.source = source


def test_without_files_all_that_is_loaded_counts(tmp_path: Path) -> None:
    whole = pool()
    turned = replace(whole, labels=whole.labels[::-1].copy())
    others = [
        pool(1),
        turned,
        replace(whole, kind=whole.labels),
        replace(whole, classes=3),
        replace(whole, test=0),
        replace(whole, normalization=Normalization((0.5,), (0.5,))),
        replace(whole, images=whole.images.reshape(40, 1, 4, 1)),
    ]
    found = [content.of_dataset(Loads(one), tmp_path, 0, one) for one in (whole, pool(), *others)]  # type: ignore[arg-type]
    assert found[0] == found[1] and len(set(found)) == 1 + len(others)


def test_without_files_what_is_dealt_counts(tmp_path: Path) -> None:
    def dealt(partition: Shards | ClassShards, seed: int = 0) -> str | None:
        return content.of_partition(partition, tmp_path, pool, 4, seed)  # type: ignore[arg-type]

    assert dealt(Shards(shards=4)) == dealt(Shards(shards=4))
    dealer = ClassShards(classes_per_client=1)
    assert len({dealt(Shards(shards=4)), dealt(Shards(shards=20)), dealt(Shards(shards=4), 1), dealt(dealer)}) == 4


def test_the_hash_of_files_is_stored_until_one_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (OLD, OLD))
    first = of(tmp_path, *"abc")
    with monkeypatch.context() as patch:
        patch.setattr(content, "_sha256", None)
        assert of(tmp_path, *"abc") == first
    time.sleep(0.05)
    (tmp_path / "b").write_text("x")
    os.utime(tmp_path / "b", (OLD, OLD))  # same size and time
    assert of(tmp_path, *"abc") != first
    (tmp_path / "b").write_text("b")
    assert of(tmp_path, *"abc") == first


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_text("1")
    first = of(tmp_path, "a")
    (tmp_path / "a" / ".DS_Store").write_text("x")
    assert of(tmp_path, "a") == first
