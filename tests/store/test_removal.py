"""Removing runs: every copy of them goes, and nothing else, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import done, failed

from pflbench.errors import StoreError
from pflbench.store import Store
from pflbench.store.verbs import pack, remove


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three runs in a pack, and a fourth in a file of its own."""
    made = Store(tmp_path)
    for seed in range(3):
        made.write(done(seed))
    pack(made)
    made.write(done(3))
    return made


def seeds(store: Store) -> list[int]:
    return sorted(run.spec.seed for run in Store(store.root).list())


def test_all_copies_go(store: Store) -> None:
    store.write(done(0, commit="redone"))  # goes before the packed one
    found = remove(store, {done(0).spec.id})
    assert [len(one.runs) for one in found] == [1, 1] and seeds(store) == [1, 2, 3]
    assert store.status(done(0).spec.id) == "missing"
    assert [store.read(done(seed).spec.id) for seed in (1, 2, 3)] == [done(seed) for seed in (1, 2, 3)]


def test_a_failed_run_is_in_no_row_group_and_goes_too(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(failed(0))
    store.write(done(1))
    pack(store)
    remove(store, {failed(0).spec.id})
    assert seeds(store) == [1]


def test_a_pack_with_nothing_left_goes(store: Store) -> None:
    found = remove(store, {done(seed).spec.id for seed in range(3)})
    assert [one.rest for one in found] == [None] and not list(store.packs.iterdir())


def test_no_other_run_is_missing_if_the_new_pack_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr("pflbench.store.runfile.write_pack", full)
    with pytest.raises(StoreError, match="no space left"):
        remove(store, {done(0).spec.id})
    assert seeds(store) == [0, 1, 2, 3]


def test_being_killed_before_the_old_pack_goes_loses_nothing_and_can_be_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pflbench.store.files.unlink", killed)
        remove(store, {done(0).spec.id})
    assert seeds(store) == [0, 1, 2, 3] and len(list(store.packs.iterdir())) == 2
    remove(store, {done(0).spec.id})
    assert seeds(store) == [1, 2, 3] and len(list(store.packs.iterdir())) == 1


def test_a_damaged_pack_is_not_written_anew(store: Store) -> None:
    (path,) = store.packs.iterdir()
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF  # among the scores of the first run
    path.write_bytes(content)
    first = min(done(seed).spec.id for seed in range(3))
    other = max(done(seed).spec.id for seed in range(3))
    with pytest.raises(StoreError, match="stays as it is"):
        remove(store, {other})
    assert path.read_bytes() == content
    remove(Store(store.root), {first})
    assert Store(store.root).status(first) == "missing" and len(seeds(store)) == 3
    remove(Store(store.root), {other})
    assert len(seeds(store)) == 2
