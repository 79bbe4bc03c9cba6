"""`pack`: runs from single files into one file per setting."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pflbench.store import files
from pflbench.store.runfile import RunFile
from pflbench.store.store import MissingRun, OtherScores, Store


class Packed(NamedTuple):
    """A pack that was written: how many runs it holds, and how many of them had a single file until now."""

    path: Path
    runs: int
    added: int


def pack(store: Store, ids: Collection[str] | None = None) -> list[Packed]:
    """Put the runs of these ids (None: all) into packs, one for each setting, together with what is packed already.

    Raises `StoreError`.
    """
    done: list[Packed] = []
    written = set[str]()
    for setting in sorted(_settings(store, ids)):
        while True:
            try:
                packed = _pack(store, setting, ids, written)
                break
            except MissingRun:  # damaged: it was named, and is not in the index any more
                continue
        if packed:
            done.append(packed)
    files.clean(store.packs)
    return sorted(done)


def _settings(store: Store, ids: Collection[str] | None) -> set[str]:
    """The settings of the runs that are to be packed."""
    settings = {run.spec.setting() for file in _singles(store, ids) for run in file.entries.values()}
    if ids is None:
        settings |= {run.spec.setting() for pack in _replaceable(store) for run in pack.entries.values()}
    return settings


def _pack(store: Store, setting: str, ids: Collection[str] | None, written: set[str]) -> Packed | None:
    """Write a pack of this setting's runs in place of their files; None: nothing to change.

    `written`: runs that are in new packs. A pack of several settings goes with the last of them.
    """
    singles = {id: file for file in _singles(store, ids) for id in _of(file, setting)}
    packs = [pack for pack in _replaceable(store) if _of(pack, setting)]
    members = {*singles, *(id for pack in packs for id in _of(pack, setting))}
    if not members or (not singles and len(packs) == 1 and packs[0].entries.keys() == members):
        return None
    _warn_of_changes(store, singles)
    new = store.write_pack(run for id in sorted(members) if (run := store.find(id)) is not None)
    written |= members
    # Packs go first: a run by itself goes before its packed self until that is gone for good.
    _remove(store, [pack for pack in packs if pack.path != new.path and pack.entries.keys() <= written], new)
    _remove(store, singles.values(), new)
    return Packed(new.path, len(new.entries), len(singles.keys() & new.entries.keys()))


def _warn_of_changes(store: Store, singles: Mapping[str, RunFile]) -> None:
    """Name finished runs that have other scores in a pack than in single files."""
    for pack in store.packed():
        for id in pack.entries.keys() & singles.keys():
            copies = pack.entries[id], singles[id].entries[id]
            sums = {run.checksum for run in copies if run.failure is None and not run.shipped}
            if len(sums - {None}) > 1:
                say = f"The scores of run {id} changed: a new pack replaces those in {str(pack.path)!r}."
                warnings.warn(say, OtherScores, stacklevel=4)


def _remove(store: Store, replaced: Iterable[RunFile], new: RunFile) -> None:
    """Remove files whose runs are in a new pack."""
    for file in replaced:
        store.remove(file, f" Its runs are in {str(new.path)!r} too, so remove it.")
        files.sync_folder(file.path.parent)


def _of(file: RunFile, setting: str) -> list[str]:
    return [id for id, run in file.entries.items() if run.spec.setting() == setting]


def _singles(store: Store, ids: Collection[str] | None) -> list[RunFile]:
    """The files of single runs that are to be packed.

    A run that is also in a pack which stays is left out: it goes before the pack only from a single file.
    """
    replaceable = {pack.path for pack in _replaceable(store)}
    staying = {
        id
        for pack in store.packed()
        if pack.path not in replaceable
        for id, run in pack.entries.items()
        if not run.shipped
    }
    wanted = lambda id: (ids is None or id in ids) and id not in staying  # noqa: E731
    return [file for file in store.singles() if any(map(wanted, file.entries))]


def _replaceable(store: Store) -> list[RunFile]:
    """The packs that may be replaced.

    The others hold what is not read and would be lost, a run that has other scores in another pack, or runs that came
    with pflbench.
    """
    conflicting = {path for paths in store.conflicts().values() for path in paths}
    return [
        pack
        for pack in store.packed()
        if pack.entries
        and not pack.unread
        and pack.path not in conflicting
        and not any(run.shipped for run in pack.entries.values())
    ]
