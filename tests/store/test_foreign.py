"""Files of another version of pflbench, or under another name than their own: named, left out, and never touched."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import break_page, change_metadata, done, failed, pack_files, spec

from pflbench.errors import StoreError
from pflbench.store import CorruptFile, ForeignFile, MissingRun, Store
from pflbench.store.packing import pack
from pflbench.store.removal import remove


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def other_version(path: Path) -> None:
    change_metadata(path, "pflbench.schema", lambda _: b"2")


def with_another_field(path: Path) -> None:
    change_metadata(path, "pflbench.spec", lambda text: text.replace(b"{", b'{"attention":"all",', 1))


def with_another_id(path: Path) -> None:
    """As a version wrote it in which uniform weights were not the default."""
    told = lambda text: json.dumps({**json.loads(text), "weights": "uniform"}).encode()  # noqa: E731
    change_metadata(path, "pflbench.spec", told)


def under_another_name(path: Path) -> None:
    shutil.copy(path.with_name(f"{spec(1).id}.parquet"), path)


FOREIGN = [
    (other_version, "schema version 2, where this version of pflbench reads 1. Read it with the version that wrote it"),
    (
        with_another_field,
        "a run that this version of pflbench cannot describe (attention: Extra inputs are not permitted)",
    ),
    (with_another_id, f"which is {spec(0).id} to this version of pflbench. Read it with"),
    (
        under_another_name,
        f"run {spec(1).id}, which is not its name. If that is a mistake, rename it to '{spec(1).id}.parquet'.",
    ),
]


@pytest.mark.parametrize(("make", "reason"), FOREIGN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_foreign_file_is_named_left_out_and_stays(store: Store, make: Callable[[Path], None], reason: str) -> None:
    path = [store.write(done(seed)) for seed in (1, 0)][1]
    make(path)
    before = path.read_bytes()
    for look in (lambda new: new.status(path.stem), Store.list, pack):
        with pytest.warns(ForeignFile) as caught:
            look(Store(store.root))
        assert all(str(one.message).startswith(f"{str(path)!r} is left out: ") for one in caught)
        assert all(reason in str(one.message) for one in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignFile)
        assert store.status(path.stem) == "missing"
        assert [run.spec for run in store.list()] == [spec(1)]
        for write in (done(0), failed(0)):
            with pytest.raises(StoreError, match="is not replaced: ") as caught_error:
                store.write(write)
            assert reason in str(caught_error.value) and "\n" not in str(caught_error.value)
        with pytest.raises(StoreError, match="is not replaced: "):
            store.check_writable([spec(2).id, spec(0).id])
        store.check_writable([spec(2).id])
        with pytest.raises(StoreError, match="is not replaced: "):
            remove(store, {spec(0).id, spec(1).id})
        assert store.status(spec(1).id) == "done"
        store.write(done(2))
    assert path.read_bytes() == before and {p.suffix for p in store.runs.iterdir()} == {".parquet"}


def packed(store: Store) -> Path:
    for seed in range(3):
        store.write(done(seed))
    ((path, *_),) = pack(store)
    return path


def test_a_pack_of_another_version_is_named_left_out_and_stays(store: Store) -> None:
    path = packed(store)
    change_metadata(path, "pflbench.pack", lambda _: b"2")
    before = path.read_bytes()
    message = rf"{path.name}' is left out: pack version 2, where this version of pflbench reads 1\. Read it with"
    with pytest.warns(ForeignFile, match=message):
        assert Store(store.root).list() == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignFile)
        for seed in range(3):
            store.write(done(seed))
        with pytest.raises(StoreError, match="is not replaced: pack version 2"):
            pack(store)  # of the same runs, so it would have the same name
        store.write(done(3))
        pack(store)
        assert len(store.list()) == 4
    assert path.read_bytes() == before and len(pack_files(store)) == 2


def test_a_pack_with_a_run_of_another_version_is_never_written_anew(store: Store) -> None:
    path = packed(store)
    newer = lambda listing: listing.replace(b'"pflbench.schema": "1"', b'"pflbench.schema": "2"', 1)  # noqa: E731
    change_metadata(path, "pflbench.runs", newer)
    before = path.read_bytes()
    with pytest.warns(ForeignFile, match=r"' is left out: schema version 2, where .* Read it with"):
        listed = Store(store.root).list()
    assert len(listed) == 2
    store = Store(store.root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignFile)
        assert pack(store) == []
        redone = done(listed[0].spec.seed, device="new")
        store.write(redone)
        pack(store)  # leaves it where it goes before the pack that stays
        assert Store(store.root).read(redone.spec.id) == redone
        with pytest.raises(StoreError, match=r"cannot be read \(schema version 2.*\): it stays as it is"):
            remove(store, {run.spec.id for run in listed})
        store.write(done(7))
        assert [one.runs for one in pack(store)] == [1]
        assert len(store.list()) == 3
    assert path.read_bytes() == before and len(pack_files(store)) == 2


def test_damage_beside_a_run_of_another_version_is_named_and_nothing_is_set_aside(store: Store) -> None:
    path = packed(store)
    newer = lambda listing: listing.replace(b'"pflbench.schema": "1"', b'"pflbench.schema": "2"', 1)  # noqa: E731
    change_metadata(path, "pflbench.runs", newer)
    store = Store(store.root)
    with pytest.warns(ForeignFile):
        ids = [run.spec.id for run in store.list()]
    break_page(path, 1)
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignFile)
        with pytest.warns(CorruptFile, match="left as it is"), pytest.raises(MissingRun):
            store.read(ids[0])
        assert store.read(ids[1]).spec.id == ids[1]
    assert path.read_bytes() == before and pack_files(store) == [path]
