"""Packs: read like single runs, and no run is ever unreadable on the way into one."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import (
    Runs,
    break_page,
    broken,
    change_metadata,
    contents,
    done,
    elsewhere,
    failed,
    finished,
    names,
    pack_files,
    snapshots,
    spec,
)

from pflbench.errors import StoreError
from pflbench.result import RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store import CorruptFile, MissingRun, Store, files, runfile
from pflbench.store.verbs import pack, remove


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def two_settings(store: Store) -> Runs:
    runs = [done(0), done(1), failed(2), elsewhere(done(3), 7), elsewhere(done(4), 7)]
    for run in runs:
        store.write(run)
    return {run.spec.id: run for run in sorted(runs, key=lambda run: run.spec.id)}


any_run = st.builds(elsewhere, finished | broken, st.integers(1, 2))
many = st.lists(any_run, unique_by=lambda run: run.spec.id, max_size=6)


@settings(max_examples=20)
@given(many)
def test_what_is_packed_is_read_as_it_was(runs: list[RunResult]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for run in runs:
            store.write(run)
        packed = pack(store)
        assert contents(store) == {run.spec.id: run for run in runs}
        assert sum(p.runs for p in packed) == sum(p.added for p in packed) == len(runs)
        assert {p.path for p in packed} == set(pack_files(store))
        assert len(packed) == len({run.spec.setting() for run in runs})
        assert not list(store.root.glob("runs/*"))
        before = {path: path.stat() for path in pack_files(store)}
        assert pack(store) == []
        assert {path: path.stat() for path in pack_files(store)} == before


# Few runs with many versions each, so that they meet again.
version = st.builds(
    lambda seed, rounds, note, fails: elsewhere(failed(seed) if fails else done(seed, note=note), rounds),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 99),
    st.booleans(),
)
operation = st.one_of(
    version,
    st.just("pack"),
    st.sets(st.integers(0, 5)),  # pack these
    st.lists(version, min_size=1, max_size=3),  # another store's packs are copied here
)


@settings(max_examples=20)
@given(st.lists(operation, max_size=8))
def test_packing_changes_nothing_whatever_came_before(operations: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "here")
        for number, operation in enumerate(operations):
            before = contents(store)
            if isinstance(operation, RunResult):
                store.write(operation)
                if operation.failure is None or operation.spec.id not in before or before[operation.spec.id].failure:
                    before[operation.spec.id] = operation
            elif isinstance(operation, list):
                other = Store(Path(folder) / f"other-{number}")
                for run in operation:
                    other.write(run)
                pack(other)
                store.packs.mkdir(parents=True, exist_ok=True)
                for path in pack_files(other):
                    shutil.copy(path, store.packs)
                theirs, now = contents(other), contents(store)
                assert now.keys() == before.keys() | theirs.keys()
                assert all(now[id] in (before.get(id), theirs.get(id)) for id in now)
                continue
            else:
                ids = sorted(before)
                chosen = None if operation == "pack" else {ids[i] for i in operation if i < len(ids)}  # type: ignore[attr-defined]
                pack(store, chosen)
                for id in ids if chosen is None else chosen:
                    assert not store.path(id).exists()
            assert contents(store) == dict(sorted(before.items()))
        pack(store)
        assert len(pack_files(store)) == len({run.spec.setting() for run in contents(store).values()})


def test_nan_survives(store: Store) -> None:
    store.write(RunResult(spec(), (Score("global", 1, 0, 0, 0, 1, math.nan, -0.0),), {"x": math.nan}))
    pack(store)
    result = store.read(spec().id)
    assert math.isnan(result.scores[0].loss_sum) and math.isnan(result.provenance["x"])
    assert math.copysign(1, result.scores[0].accuracy) == -1


def test_a_large_whole_number_is_a_number(store: Store) -> None:
    store.write(done(wall_seconds=2**60 + 1))
    pack(store)
    assert store.read(spec().id).provenance["wall_seconds"] == 2**60 + 1


def test_a_message_with_an_undecodable_file_name_is_stored(store: Store) -> None:
    store.write(RunResult(spec(), failure="no \udcff: \U0001f600"))
    pack(store)
    assert store.read(spec().id).failure == "no \\udcff: \U0001f600"


def test_a_pack_is_named_for_readers_and_by_its_runs(store: Store) -> None:
    two_settings(store)
    stem = r"digits-dirichlet-4-clients-{}-rounds-[0-9a-f]{{8}}\.parquet"
    first, second = pack(store)
    assert sorted([first.runs, second.runs]) == [2, 3]
    for path, rounds in zip(pack_files(store), (3, 7), strict=True):
        assert re.fullmatch(stem.format(rounds), path.name)
    own = spec().model_copy(update={"dataset": spec().dataset.model_copy(update={"name": "/a b/ü" + "x" * 300})})
    store.write(RunResult(own, done().scores))
    (packed,) = pack(store)
    assert len(packed.path.name) < 120 and packed.path.name.isascii()


def test_plain_readers_read_a_glob_of_runs_and_packs(store: Store) -> None:
    for seed in range(3):
        store.write(done(seed, device="cpu", wall_seconds=2))
    store.write(failed(3))
    single = pd.concat([pd.read_parquet(path) for path in sorted(store.runs.glob("*.parquet"))])
    pack(store)
    (packed,) = pack_files(store)
    pd.testing.assert_frame_equal(pd.read_parquet(packed), single.reset_index(drop=True))
    store.write(done(4, device="cpu"))
    both = pa.dataset.dataset([str(path) for path in store.root.glob("*/*.parquet")])
    rows = both.to_table(filter=pa.compute.field("seed") > 1).to_pandas()
    assert sorted(rows.run_id) == sorted([spec(2).id] * 2 + [spec(4).id] * 2)
    assert pq.read_schema(packed).remove_metadata() == pq.read_schema(store.path(spec(4).id)).remove_metadata()


def test_packing_again_merges_and_leaves_one_file(store: Store) -> None:
    for seed in range(3):
        store.write(done(seed))
    (first,) = pack(store, {spec(0).id, spec(1).id})
    assert (first.runs, first.added) == (2, 2)
    assert names(store) == [f"{spec(2).id}.parquet"]
    (second,) = pack(store)
    assert (second.runs, second.added) == (3, 1) and second.path != first.path
    assert pack_files(store) == [second.path] and names(store) == []


def test_a_redone_run_goes_before_its_packed_self_and_replaces_it(store: Store) -> None:
    store.write(done(0, device="cpu"))
    store.write(failed(1))
    pack(store)
    store.write(done(0, device="cuda"))
    store.write(done(1))
    assert [run.provenance["commit"] for run in store.list()] == ["c0ffee"] * 2
    assert store.read(spec(0).id).provenance["device"] == "cuda"
    pack(store)
    (path,) = pack_files(store)
    assert set(pd.read_parquet(path).device.dropna()) == {"cuda"} and names(store) == []
    assert store.status(spec(1).id) == "done"


def test_a_failure_never_replaces_a_packed_result(store: Store, tmp_path: Path) -> None:
    store.write(done())
    (packed,) = pack(store)
    assert store.write(failed()) == packed.path
    assert not list(store.runs.iterdir())
    shutil.copy(Store(tmp_path / "other").write(failed()), store.runs)  # stores merge by copying
    assert store.status(spec().id) == "done" and store.read(spec().id) == done()
    pack(store)
    assert contents(store) == {spec().id: done()} and names(store) == []


def test_packs_merge_by_copying(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    for seeds, place in (((0, 1), store), ((1, 2), other)):
        for seed in seeds:
            place.write(done(seed))
        pack(place)
    shutil.copytree(other.root, store.root, dirs_exist_ok=True)
    assert contents(store) == {spec(seed).id: done(seed) for seed in sorted(range(3), key=lambda s: spec(s).id)}
    assert len(pack_files(store)) == 2
    (packed,) = pack(store)
    assert (packed.runs, packed.added) == (3, 0) and pack_files(store) == [packed.path]


def test_a_pack_of_several_settings_is_taken_apart(store: Store) -> None:
    """Another version of pflbench may draw the lines between settings elsewhere."""
    runs = two_settings(store)
    listed = store.list()
    mixed = runfile.write_pack(store.packs, list(runs.values()))
    for run in listed:
        run.path.unlink()
    assert contents(store) == runs
    assert len(pack(store)) == 2
    assert contents(store) == runs and len(pack_files(store)) == 2 and not mixed.exists()
    assert pack(store) == []


@pytest.mark.parametrize("packed", [(0, 3), (0, 1, 2, 3, 4)])
def test_killed_at_any_moment_every_run_is_read_and_packing_goes_on(
    store: Store, tmp_path: Path, packed: tuple[int, ...]
) -> None:
    runs = two_settings(store)
    pack(store, {list(runs)[i] for i in packed})
    if len(packed) == 5:
        for run in (done(0, device="new"), elsewhere(done(3, device="new"), 7)):
            store.write(run)
            runs[run.spec.id] = run
    left = snapshots(store, lambda: pack(store), tmp_path / "left")
    assert len(left) >= 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for root in left:
            assert contents(Store(root)) == runs
        for root in left[::4]:
            pack(Store(root))
            assert contents(Store(root)) == runs
            assert len(list(root.glob("packs/*.parquet"))) == 2 and not list(root.glob("runs/*.parquet"))


PLACES = [(os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "open")]


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize(("place", "name"), PLACES, ids=lambda p: p if isinstance(p, str) else "")
def test_a_full_disk_or_ctrl_c_costs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: type, name: str, kind: type[BaseException]
) -> None:
    runs = two_settings(store)
    pack(store, set({run.spec.rounds: id for id, run in runs.items()}.values()))  # one of each setting
    real, moment = getattr(place, name), 0

    def fail(*arguments: object, **options: object) -> object:
        nonlocal moment
        moment -= 1
        if moment == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if kind is OSError else kind()
        return real(*arguments, **options)

    for first in range(1, 60, 4 if name == "open" else 1):
        here, moment = Store(store.root.with_name(str(first))), first
        shutil.copytree(store.root, here.root)
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            try:
                pack(here)
            except (StoreError, KeyboardInterrupt) as error:
                assert isinstance(error, StoreError) == (kind is OSError)
                assert "\n" not in str(error)
        assert contents(here) == runs
        assert name == "unlink" or not list(here.root.glob("*/*.tmp"))
        if moment > 0:  # it was over before
            break
        pack(here)
        assert contents(here) == runs and not names(here) and len(list(here.root.glob("packs/*.parquet"))) == 2
    assert 2 < first < 57


def test_a_disk_that_takes_only_so_much(store: Store) -> None:
    resource = pytest.importorskip("resource")
    runs = two_settings(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StoreError, match=r"Cannot write results to .*packs.*: File too large"):
            pack(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(store) == runs and pack_files(store) == []


@pytest.mark.parametrize("damage", ["other numbers", "fewer rows", "no file"])
def test_nothing_is_removed_unless_it_was_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    runs = two_settings(store)
    real = pq.ParquetWriter.write_table

    def write(self: pq.ParquetWriter, table: pa.Table, **options: object) -> None:
        if damage == "other numbers":
            at = table.column_names.index("accuracy")
            table = table.set_column(at, table.schema.field(at), pa.array([0.125] * len(table)))
        if damage == "fewer rows":
            table = table.slice(1)
        if damage != "no file":
            real(self, table, **options)

    before = names(store)
    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", write)
        with pytest.raises(StoreError, match=r"What was written to .*packs"):
            pack(store)
    assert names(store) == before and pack_files(store) == []
    assert contents(store) == runs


def test_a_run_redone_while_its_old_self_is_packed_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(done())
    real = runfile.write_pack

    def write(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        store.write(done(device="new"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(runfile, "write_pack", write)
        pack(store)
    assert contents(store) == {spec().id: done(device="new")}
    assert names(store) == [f"{spec().id}.parquet"]
    pack(store)
    assert contents(store) == {spec().id: done(device="new")} and names(store) == []


def test_two_packing_at_a_time_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = two_settings(store)
    late = done(5)
    real = files.sync_folder

    def meanwhile(folder: Path) -> None:
        monkeypatch.setattr(files, "sync_folder", real)
        store.write(late)
        pack(Store(store.root))
        real(folder)

    monkeypatch.setattr(files, "sync_folder", meanwhile)
    pack(store)
    assert contents(store) == dict(sorted({**runs, late.spec.id: late}.items()))
    pack(store)
    assert len(pack_files(store)) == 2 and names(store) == []


def test_a_reader_follows_what_is_packed_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(2):
        store.write(done(seed))
    pack(store, {spec(0).id})
    reader, calls = Store(store.root), 0
    assert reader.status(spec(0).id) == "done"
    real = files.parquet_files

    def listing(folder: Path) -> list[Path]:
        nonlocal calls
        found = real(folder)
        calls += 1
        if calls == 1:  # right after the reader looked, the pack becomes another
            pack(Store(store.root))
        return found

    monkeypatch.setattr(files, "parquet_files", listing)
    assert reader.status(spec(0).id) == "done"
    assert reader.read(spec(1).id) == done(1)


def not_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1 no more than that")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def other_version(path: Path) -> None:
    change_metadata(path, "pflbench.pack", lambda _: b"2")


def no_list(path: Path) -> None:
    change_metadata(path, "pflbench.runs", lambda _: b"[1]")


def other_rows(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table, path)  # one row group


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (not_parquet, "footer|magic"),
        (truncated, "footer|magic"),
        (foreign, "schema version None"),
        (other_version, "pack version 2, where this version of pflbench reads 1"),
        (no_list, "unreadable list of runs"),
        (other_rows, "does not fit its rows"),
    ],
)
def test_a_damaged_pack_is_named_and_stays(store: Store, damage: Callable[[Path], None], reason: str) -> None:
    for seed in (0, 1):
        store.write(done(seed))
    ((path, *_),) = pack(store)
    store.write(done(2))
    damage(path)
    content = path.read_bytes()
    store = Store(store.root)
    with pytest.warns(CorruptFile, match=rf"{path.name}' is not a readable pack: .*({reason}).*left as it is"):
        assert store.status(spec().id) == "missing"
    assert [run.spec for run in store.list()] == [spec(2)]
    assert [one.runs for one in pack(store)] == [1] and path.read_bytes() == content


def test_one_damaged_run_costs_no_other(store: Store) -> None:
    for seed in range(4):
        store.write(done(seed))
    ((path, *_),) = pack(store)
    lost = sorted(spec(seed).id for seed in range(4))[2]
    break_page(path, 2)
    assert store.status(lost) == "done"
    message = rf"{path.name}' is not a readable pack: run {lost}: .* \(left as it is"
    store = Store(store.root)
    with pytest.warns(CorruptFile, match=message), pytest.raises(MissingRun, match=lost):
        store.list()
        store.read(lost)
    assert store.status(lost) == "missing"
    others = [id for id in sorted(spec(seed).id for seed in range(4)) if id != lost]
    assert [store.read(run.spec.id).spec.id for run in store.list()] == others
    assert pack(store) == [] and pack_files(store) == [path]


def test_a_damaged_run_does_not_keep_others_from_being_packed(store: Store) -> None:
    for seed in range(3):
        store.write(done(seed))
    path = store.path(spec(1).id)
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    with pytest.warns(CorruptFile, match=path.name):
        (packed,) = pack(store)
    assert (packed.runs, packed.added) == (2, 2)
    assert names(store) == [path.name] and path.read_bytes() == content


def test_a_pack_with_a_run_of_another_version_is_never_written_anew(store: Store) -> None:
    for seed in range(3):
        store.write(done(seed))
    ((path, *_),) = pack(store)
    newer = lambda listing: listing.replace(b'"pflbench.schema": "1"', b'"pflbench.schema": "2"', 1)  # noqa: E731
    change_metadata(path, "pflbench.runs", newer)
    whole = path.read_bytes()
    store = Store(store.root)
    with pytest.warns(CorruptFile, match=r"schema version 2, .* \(left as it is"):
        listed = store.list()
    assert len(listed) == 2 and pack(store) == []
    redone = done(listed[0].spec.seed, device="new")
    store.write(redone)
    pack(store)  # leaves it where it goes before the pack that stays
    assert store.read(redone.spec.id) == redone
    with pytest.raises(StoreError, match=r"stays as it is: not all of it can be read \(schema version 2"):
        remove(store, {run.spec.id for run in listed})
    store.write(done(3))
    assert [one.runs for one in pack(store)] == [1] and path.read_bytes() == whole


def test_a_packed_run_with_more_rows_than_its_spec_allows_costs_no_other(store: Store) -> None:
    store.write(done())
    many = done(1)
    with mock.patch.object(RunSpec, "most_rows", 10**9):
        store.write(replace(many, scores=tuple(many.scores) * 2000))
        ((path, *_),) = pack(store)
    with pytest.warns(CorruptFile, match=rf"{path.name}.*run {many.spec.id} has .* rows, where its spec allows 1,380"):
        assert [run.spec for run in Store(store.root).list()] == [spec()]


def test_what_cannot_be_removed_is_named_and_still_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(done())
    real = Path.unlink

    def refuse(self: Path, *arguments: object, **options: object) -> None:
        if self.suffix == ".parquet":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreError, match=rf"Cannot remove .*{spec().id}.*: Read-only file system"):
            pack(store)
    assert contents(store) == {spec().id: done()}


def test_footers_are_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = two_settings(store)
    pack(store)
    store, read = Store(store.root), []
    real = pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda *a, **o: read.append(1) or real(*a, **o))
    for id in [*runs, *runs]:
        assert store.status(id) != "missing"
        store.read(id)
    store.list()
    assert len(read) == 2
    store.write(done(9))
    pack(store)
    assert len(store.list()) == 6
    assert len(read) < 10


def test_leftovers_and_other_files(store: Store) -> None:
    store.packs.mkdir(parents=True)
    half = store.packs / ".x.ab12.tmp"
    half.write_bytes(b"half")
    os.utime(half, (0, 0))
    (store.packs / "notes.txt").write_text("mine")
    store.write(done())
    ((path, *_),) = pack(store)
    assert [p.name for p in pack_files(store)] == [path.name, "notes.txt"]


def test_an_empty_store_has_nothing_to_pack(store: Store) -> None:
    assert pack(store) == [] and not store.root.exists()
