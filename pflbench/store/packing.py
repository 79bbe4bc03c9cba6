"""`pack`: runs from files of their own into one file per setting."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pflbench.result import RunResult
from pflbench.store import files, packfile
from pflbench.store.header import Header
from pflbench.store.packfile import Pack, PackedRun
from pflbench.store.store import MissingRun, Store


class Packed(NamedTuple):
    """A pack that was written: how many runs it holds, and how many of them had a file of their own until now."""

    path: Path
    runs: int
    added: int


def pack(store: Store, ids: Collection[str] | None = None) -> list[Packed]:
    """Put the runs of these ids (None: all) into packs, one for each setting, together with what is packed already.

    Every run is readable at every moment: a pack is read again and compared before it gets its name, and only then
    the files that it replaces are removed. Raises `StoreError`.
    """
    before = _identities(store.runs)
    singles = _singles(store, ids)
    settings = set(singles)
    if ids is None:
        settings |= {setting for old in _mergeable(store) for setting in _settings(old)}
    done = []
    written: set[str] = set()
    for setting in sorted(settings):
        own = singles.get(setting, set())
        new, old = _write(store, setting, own)
        if new is None:
            continue
        written |= new.entries.keys()
        _remove_replaced(store, new, old, written)
        done.append(Packed(new.path, len(new.entries), _remove_singles(store, own, new, before)))
    files.clean(store.packs.folder)
    return sorted(done)


def _singles(store: Store, ids: Collection[str] | None) -> dict[str, set[str]]:
    """The ids of runs in files of their own that are to be packed, by setting."""
    # A run that is also in a pack which stays is left out: it goes before the pack only from a file of its own.
    staying = {id for old in store.packs.all() if old.foreign for id in old.entries}
    singles: dict[str, set[str]] = {}
    for id, run in store.singles().items():
        if (ids is None or id in ids) and id not in staying:
            singles.setdefault(run.spec.setting(), set()).add(id)
    return singles


def _remove_replaced(store: Store, new: Pack, old: Sequence[Pack], written: set[str]) -> None:
    """Remove the packs that `new` was made from, once all their runs are in new packs."""
    for each in old:
        if each.path != new.path and each.entries.keys() <= written and not each.unfit:
            files.remove(each.path, each.identity, new.path)
    files.sync_folder(store.packs.folder)  # a redone run goes before its packed self until that is gone for good


def _remove_singles(store: Store, own: set[str], new: Pack, before: Mapping[Path, files.Identity]) -> int:
    """Remove the files of runs that are in `new` now; how many they were."""
    leaving = [path for id in sorted(own & new.entries.keys()) if (path := store.path(id)) in before]
    for path in leaving:
        files.remove(path, before[path], new.path)
    return len(leaving)


def _write(store: Store, setting: str, own: set[str]) -> tuple[Pack | None, list[Pack]]:
    """A new pack of this setting's packed runs and `own`, and the packs it was made from; None: nothing to change."""
    broken: set[str] = set()

    def read(id: str) -> RunResult:
        try:
            return store.read(id)
        except MissingRun:
            broken.add(id)
            raise

    while True:  # until every run could be read: a broken one was set aside, with a warning, and costs no other
        packs = [old for old in _mergeable(store) if _members(old, setting)]
        members = sorted({*own, *(id for old in packs for id in _members(old, setting))} - broken)
        if own <= broken and len(packs) == 1 and packs[0].entries.keys() == set(members):
            return None, packs
        sources = [PackedRun(Header(*run[:3]), run.rows) for id in members if (run := store.find(id)) is not None]
        if not sources:
            return None, packs
        try:
            return packfile.write(store.packs.folder, sources, read), packs
        except MissingRun:
            continue


def _mergeable(store: Store) -> list[Pack]:
    """The packs that may be replaced: what is not read of the others would be lost."""
    return [pack for pack in store.packs.all() if not pack.foreign]


def _identities(folder: Path) -> dict[Path, files.Identity]:
    found = {}
    for path in files.parquet_files(folder):
        with contextlib.suppress(FileNotFoundError):
            found[path] = files.identity(path.stat())
    return found


def _settings(pack: Pack) -> set[str]:
    return {entry.header.spec.setting() for entry in pack.entries.values()}


def _members(pack: Pack, setting: str) -> list[str]:
    return [id for id, entry in pack.entries.items() if entry.header.spec.setting() == setting]
