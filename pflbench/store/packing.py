"""`pack`: runs from single files into one file per setting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pflbench.result import RunResult
from pflbench.store import files, runfile
from pflbench.store.header import Stored
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
    singles = _singles(store, ids)
    settings = set(singles)
    if ids is None:
        settings |= {run.spec.setting() for old in _mergeable(store) for run in old.entries.values()}
    done = []
    written: set[str] = set()
    for setting in sorted(settings):
        single = singles.get(setting, {})
        changed = _changed(store, single)
        new = _rewritten(store, setting, single, written)
        if new is None:
            continue
        for id, old_path in changed.items():
            say = f"The scores of run {id} changed: {str(new.path)!r} replaces those in {str(old_path)!r}."
            warnings.warn(say, OtherScores, stacklevel=2)
        written |= new.entries.keys()
        done.append(Packed(new.path, len(new.entries), len(single.keys() & new.entries)))
    files.clean(store.packs.folder)
    return sorted(done)


def _rewritten(store: Store, setting: str, single: Mapping[str, RunFile], written: Collection[str]) -> RunFile | None:
    """A new pack of this setting's runs, packed and `single`, in place of their files; None: nothing to change.

    `written`: runs that are in other new packs. A pack of several settings goes with the last of them.
    """
    broken: set[str] = set()

    def read(id: str) -> RunResult:
        try:
            return store.read(id)
        except MissingRun:
            broken.add(id)
            raise

    while True:  # until every run could be read: a damaged one was set aside, with a warning, and costs no other
        packs = [old for old in _mergeable(store) if _of(old, setting)]
        ids = {*single, *(id for old in packs for id in _of(old, setting))} - broken
        if broken.issuperset(single) and len(packs) == 1 and packs[0].entries.keys() == ids:
            return None
        runs = {id: run for id in sorted(ids) if (run := store.find(id)) is not None}
        with suppress(MissingRun):
            return _in_place_of(store, runs, read, [*packs, *single.values()], {*runs, *written})


def _in_place_of(
    store: Store,
    runs: Mapping[str, Stored],
    read: Callable[[str], RunResult],
    replaced: Iterable[RunFile],
    written: Set[str],
) -> RunFile | None:
    """Write a pack of these runs, and remove the files all of whose runs are in this pack or in others (`written`)."""
    leaving = [file for file in replaced if file.entries.keys() <= written and not file.unfit]
    return runfile.rewrite(store.packs.folder, list(runs.values()), read, leaving) if runs else None


def _changed(store: Store, single: Mapping[str, RunFile]) -> dict[str, Path]:
    """Finished runs that have other scores in a pack than in single files, by id, with the pack."""
    found = {}
    for old in store.packs.all():
        for id in old.entries.keys() & single.keys():
            runs = old.entries[id], single[id].entries[id]
            sums = {run.checksum for run in runs if run.failure is None and not run.shipped}
            if len(sums - {None}) > 1:
                found[id] = old.path
    return found


def _singles(store: Store, ids: Collection[str] | None) -> dict[str, dict[str, RunFile]]:
    """The files of single runs that are to be packed, by setting and id."""
    singles = store.singles.all()
    # A run that is also in a pack which stays is left out: it goes before the pack only from a single file.
    merged = {old.path for old in _mergeable(store)}
    staying = {
        id for old in store.packs.all() if old.path not in merged for id, run in old.entries.items() if not run.shipped
    }
    found: dict[str, dict[str, RunFile]] = {}
    for file in singles:
        for id, run in file.entries.items():
            if (ids is None or id in ids) and id not in staying:
                found.setdefault(run.spec.setting(), {})[id] = file
    return found


def _of(pack: RunFile, setting: str) -> list[str]:
    return [id for id, run in pack.entries.items() if run.spec.setting() == setting]


def _mergeable(store: Store) -> list[RunFile]:
    """The packs that may be replaced.

    The others hold what is not read and would be lost, a run that has other scores in another pack, or runs that came
    with pflbench.
    """
    apart = {path for paths in store.conflicts().values() for path in paths}
    apart |= {run.path for pack in store.packs.all() for run in pack.entries.values() if run.shipped}
    return [pack for pack in store.packs.all() if not pack.foreign and pack.path not in apart]
