"""`remove`: runs out of a store, from single files and from packs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, models, runfile
from pflbench.store.runfile import RunFile
from pflbench.store.store import Store


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
        StoreError: A file cannot be removed or written, or it holds runs that this version cannot read.
    """
    for id in ids:
        store.check_place(id)  # a copy in a pack may be readable where its single file is another version's
    done = []
    for pack in store.packs.all():
        leaving = tuple(id for id, run in pack.entries.items() if id in ids and not run.shipped)
        if leaving:
            done.append(Removed(pack.path, leaving, _without(store, pack, leaving)))
    for id in sorted(ids):
        if (path := store.path(id)).is_file():
            files.unlink(path)
            done.append(Removed(path, (id,), None))
    models.remove(store.root, ids)
    for folder in (store.packs.folder, store.runs):
        if folder.is_dir():
            files.sync_folder(folder)
            files.clean(folder)
    return done


def _without(store: Store, pack: RunFile, leaving: Collection[str]) -> Path | None:
    """Replace a pack by one without these runs; None if it has no others."""
    if unread := [*pack.foreign, *pack.unfit]:
        raise StoreError(f"{str(pack.path)!r} holds runs that cannot be read ({unread[0]}): it stays as it is.")

    def read(id: str) -> RunResult:
        result = store.packs.read(pack.entries[id])
        if result is None:
            raise StoreError(f"{str(pack.path)!r} is not what it was: nothing was removed from it. Try again.")
        return result

    staying = [run for id, run in pack.entries.items() if id not in leaving]
    rest = runfile.rewrite(store.packs.folder, staying, read, [pack])
    return rest.path if rest else None
