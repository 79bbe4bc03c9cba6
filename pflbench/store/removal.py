"""`remove`: runs out of a store, from single files and from packs."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import StoreError
from pflbench.store import files, models
from pflbench.store.runfile import RunFile
from pflbench.store.store import MissingRun, Store


class Removed(NamedTuple):
    """A file that runs were removed from: which, and the pack that holds what else was in it, if something was."""

    path: Path
    runs: tuple[str, ...]
    rest: Path | None


def remove(store: Store, ids: Collection[str]) -> list[Removed]:
    """Remove every copy of the runs of these ids, and their models.

    A pack never changes: what else it holds is written as another pack and read again before the pack goes, so that
    no other run is ever missing. Whoever is interrupted can start again.

    Raises:
        StoreError: A file cannot be removed or written, or it holds runs that cannot be read.
    """
    for id in ids:
        store.check_path(id)  # a copy in a pack may be readable where its single file is another version's
    done = []
    for pack in store.packed():
        leaving = tuple(id for id, run in pack.entries.items() if id in ids and not run.shipped)
        if leaving:
            done.append(Removed(pack.path, leaving, _without(store, pack, leaving)))
    for id in sorted(ids):
        if (path := store.path(id)).is_file():
            files.unlink(path)
            done.append(Removed(path, (id,), None))
    models.remove(store.root, ids)
    for folder in (store.packs, store.runs):
        if folder.is_dir():
            files.sync_folder(folder)
            files.clean(folder)
    return done


def _without(store: Store, pack: RunFile, leaving: Collection[str]) -> Path | None:
    """Replace a pack by one without these runs; None if it has no others."""
    staying = [run for id, run in pack.entries.items() if id not in leaving]
    rest = None
    with suppress(MissingRun):  # then it is among those that cannot be read
        rest = store.write_pack(staying).path if staying and not pack.unread else None
    if pack.unread:
        raise StoreError(f"{str(pack.path)!r} holds runs that cannot be read ({pack.unread[0]}): it stays as it is.")
    store.remove(pack, f" Its other runs are in {str(rest)!r} too." if rest else "")
    return rest
