"""`pack`: runs from files of their own into one file per setting."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pflbench.result import RunResult
from pflbench.store import files, packfile
from pflbench.store.packfile import Pack
from pflbench.store.runfile import RunFile
from pflbench.store.store import MissingRun, OtherScores, Store


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
    singles = _singles(store, ids)
    settings = set(singles)
    if ids is None:
        settings |= {run.spec.setting() for old in _mergeable(store) for run in old.entries.values()}
    done = []
    written: set[str] = set()
    for setting in sorted(settings):
        own = singles.get(setting, {})
        changed = _changed(store, own)
        new, replaced = _write(store, setting, own)
        if new is None:
            continue
        for id, old_path in changed.items():
            say = f"The scores of run {id} changed: {str(new.path)!r} replaces those in {str(old_path)!r}."
            warnings.warn(say, OtherScores, stacklevel=2)
        written |= new.entries.keys()
        for old in replaced:
            if old.path != new.path and old.entries.keys() <= written and not old.unfit:
                files.remove(old.path, old.footer.identity, new.path)
        files.sync_folder(store.packs.folder)  # a redone run goes before its packed self until that is gone for good
        leaving = [own[id] for id in sorted(own.keys() & new.entries)]
        for single in leaving:
            files.remove(single.path, single.footer.identity, new.path)
        done.append(Packed(new.path, len(new.entries), len(leaving)))
    files.clean(store.packs.folder)
    return sorted(done)


def _changed(store: Store, own: Mapping[str, RunFile]) -> dict[str, Path]:
    """Finished runs that have other scores in a pack than in files of their own, by id, with the pack."""
    found = {}
    for old in store.packs.all():
        for id in old.entries.keys() & own.keys():
            runs = old.entries[id], own[id].entries[id]
            sums = {run.checksum for run in runs if run.failure is None}
            if len(sums - {None}) > 1:
                found[id] = old.path
    return found


def _singles(store: Store, ids: Collection[str] | None) -> dict[str, dict[str, RunFile]]:
    """The files of single runs that are to be packed, by setting and id."""
    singles = store.singles.all()
    # A run that is also in a pack which stays is left out: it goes before the pack only from a file of its own.
    merged = {old.path for old in _mergeable(store)}
    staying = {id for old in store.packs.all() if old.path not in merged for id in old.entries}
    found: dict[str, dict[str, RunFile]] = {}
    for file in singles:
        for id, run in file.entries.items():
            if (ids is None or id in ids) and id not in staying:
                found.setdefault(run.spec.setting(), {})[id] = file
    return found


def _write(store: Store, setting: str, own: Collection[str]) -> tuple[Pack | None, Sequence[Pack]]:
    """A new pack of this setting's packed runs and `own`, and the packs it was made from; None: nothing to change."""
    broken: set[str] = set()

    def read(id: str) -> RunResult:
        try:
            return store.read(id)
        except MissingRun:
            broken.add(id)
            raise

    while True:  # until every run could be read: a broken one was set aside, with a warning, and costs no other
        packs = [old for old in _mergeable(store) if _of(old, setting)]
        ids = sorted({*own, *(id for old in packs for id in _of(old, setting))} - broken)
        if broken.issuperset(own) and len(packs) == 1 and packs[0].entries.keys() == set(ids):
            return None, packs
        runs = [run for id in ids if (run := store.find(id)) is not None]
        if not runs:
            return None, packs
        try:
            return packfile.write(store.packs.folder, runs, read), packs
        except MissingRun:
            continue


def _of(pack: Pack, setting: str) -> list[str]:
    return [id for id, run in pack.entries.items() if run.spec.setting() == setting]


def _mergeable(store: Store) -> list[Pack]:
    """The packs that may be replaced.

    The others hold what is not read and would be lost, or a run that has other scores in another pack.
    """
    apart = {path for paths in store.conflicts().values() for path in paths}
    return [pack for pack in store.packs.all() if not pack.foreign and pack.path not in apart]
