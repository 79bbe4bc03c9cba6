"""`pack`, `merge` and `rm`: runs into one file per setting, in from other results folders, and out of a folder.

A pack never changes: another one is written and read again before its runs leave their files, so that no run is ever
missing. Whoever is interrupted can start again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import StoreError, UsageError
from pflbench.result import RunResult
from pflbench.store import files, models
from pflbench.store.header import Stored, Unfit
from pflbench.store.requests import keep_requests, requests_of
from pflbench.store.runfile import RunFile
from pflbench.store.store import Store


class Packed(NamedTuple):
    """A pack that was written, the number of its runs, and of those that had a single file until now."""

    path: Path
    runs: int
    added: int


def pack(store: Store, ids: Collection[str] | None = None) -> list[Packed]:
    """Put the runs of these ids (None: all) into packs, one for each setting, together with what is packed already.

    Raises `StoreError`.
    """
    members: dict[str, list[RunFile]] = {}
    for file in _movable(store, ids):
        for setting in {run.spec.setting() for run in file.entries.values()}:
            members.setdefault(setting, []).append(file)
    done, written, runs = list[Packed](), set[str](), store.every()
    for setting, several in sorted(members.items()):
        every = _ids(several, setting)
        added = {id for file in several if not file.packed for id in file.entries}
        is_packed = len(several) == 1 and every == several[0].entries.keys()
        if not every & runs.keys() or (not added and (is_packed or ids is not None)):
            continue
        results = store.read_several(runs[id] for id in sorted(every & runs.keys()))
        if results.keys() < every & runs.keys():  # a damaged run: it was named, and is not in the index any more
            return sorted([*done, *pack(store, ids)])
        path = store.write_pack(results.values())
        written |= results.keys()
        _remove_packed(store, several, path, written)
        done.append(Packed(path, len(results), len(added & results.keys())))
    return sorted(done)


def _movable(store: Store, ids: Collection[str] | None) -> list[RunFile]:
    """Packs that may be replaced, and files of single runs that are to be packed.

    A pack stays that holds what is not read and would be lost, a run with other scores in another pack, or runs that
    came with pflbench. So does the file of a user's run in such a pack: it goes before the pack only by itself.
    """
    conflicting = {path for paths in store.conflicts().values() for path in paths}
    packs, staying = list[RunFile](), set[str]()
    for file in store.indexed(store.packs):
        users = {id for id, run in file.entries.items() if not run.shipped}
        if file.unread or file.path in conflicting or len(users) < len(file.entries):
            staying |= users
        else:
            packs.append(file)
    singles = (file for file in store.indexed(store.runs) if file.entries)
    return packs + [one for one in singles if one.path.stem not in staying and (ids is None or one.path.stem in ids)]


class Removed(NamedTuple):
    """A file that runs were removed from, and the pack that holds what else was in it, if something was."""

    path: Path
    runs: tuple[str, ...]
    rest: Path | None


def remove(store: Store, ids: Collection[str]) -> list[Removed]:
    """Remove every copy of the runs of these ids, and their models.

    Raises:
        StoreError: A file cannot be removed or written, or it holds runs that cannot be read.
    """
    done = []
    for file in store.indexed(store.packs):
        if leaving := tuple(id for id, run in file.entries.items() if id in ids and not run.shipped):
            try:
                for reason in file.unread:
                    raise reason
                staying = file.read(id for id in file.entries if id not in leaving)
            except (Unfit, OSError) as error:
                raise StoreError(f"{str(file.path)!r} stays as it is: not all of it can be read ({error}).") from error
            rest = store.write_pack(staying.values()) if staying else None
            store.remove(file)
            done.append(Removed(file.path, leaving, rest))
    for id in sorted(ids):
        if (path := store.path(id)).is_file():
            files.unlink(path)
            done.append(Removed(path, (id,), None))
    models.remove(store.root, ids)
    return done


@dataclass
class Merged:
    """Outcome of a merge.

    Attributes:
        added: Number of runs that are in the destination only now, or finished there only now.
        same: Number of runs that were in the destination.
        others: Sentences on runs of the destination that have other scores or are damaged, and stay as they were.
        unread: Files that could not be read, or not all of them.
    """

    added: int = 0
    same: int = 0
    others: list[str] = field(default_factory=list)
    unread: list[Path] = field(default_factory=list)


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Copy the runs of these results folders into another, which may be new. What is read is checked, and read again.

    A finished run of the destination stays; a failed one gives way to a finished one. What cannot be read in a source
    is warned of, and left out. New runs of a pack are written into a pack.

    Raises:
        UsageError: A source is no results folder.
        StoreError: A source cannot be read, or the destination not be written.
    """
    for source in sources:
        if not any((source / name).is_dir() for name in ("runs", "packs")):
            raise UsageError(f"{str(source)!r} is no results folder: it has neither runs/ nor packs/ in it.")
    outcome, store = Merged(), Store(into)
    store.check_writable()
    for source in sources:
        _merge(Store(source), store, outcome)
    return outcome


def _ids(several: Iterable[RunFile], setting: str) -> set[str]:
    return {id for file in several for id, run in file.entries.items() if run.spec.setting() == setting}


def _remove_packed(store: Store, several: Iterable[RunFile], path: Path, written: Collection[str]) -> None:
    """Remove the files whose runs are all in new packs; one of several settings goes at the last of them."""
    for file in several:  # packs go first: a run by itself goes before its packed self until that is gone for good
        if file.path != path and not file.unread and all(id in written for id in file.entries):
            store.remove(file)


def _merge(source: Store, into: Store, outcome: Merged) -> None:
    new, same = _compared(source, into, outcome)
    outcome.same += len(same)
    for path, runs in sorted(new.items()):
        results = source.read_several(runs)
        if path.parent == source.packs and results:
            into.write_pack(results.values())
        else:
            for result in results.values():
                into.write(result)
        outcome.added += len(results)
        same += [run for run in runs if run.spec.id in results]
    for run in same:
        if run.failure is None:
            models.copy(source.root, into.root, run.spec.id)
    outcome.unread += [file.path for folder in source.folders for file in source.indexed(folder) if file.unread]
    keep_requests(into, {id: sorted(several) for id, several in requests_of(source).items()}, ())


def _compared(source: Store, into: Store, outcome: Merged) -> tuple[dict[Path, list[Stored]], list[Stored]]:
    """Runs that the destination lacks, by file, and those that it has; runs with other scores are noted."""
    present, new, same = into.every(), dict[Path, list[Stored]](), list[Stored]()
    for id, run in sorted(source.every().items()):
        at = present.get(id)
        if at is None or run.rank[:2] < at.rank[:2]:
            new.setdefault(run.path, []).append(run)
            continue
        is_equal = run.checksum is not None and run.checksum == at.checksum
        if run.rank[:2] > at.rank[:2] or is_equal:
            same.append(run)
        elif not (ours := source.read_several([run])):
            continue  # damaged: the store has warned of it
        elif not (theirs := into.read_several([at])):
            outcome.others.append(f"Run {id} cannot be read in {str(at.path)!r}, which stays.")
        elif not (text := difference(ours[id], theirs[id])):
            same.append(run)
        else:
            outcome.others.append(f"Run {id} has other scores in {str(run.path)!r} ({text}): {str(at.path)!r} stays.")
    return new, same


def difference(one: RunResult, other: RunResult) -> str:
    """Difference of the scores at the moments that both have, in words; empty if they are equal to the last bit."""
    first, second = ({score[:4]: repr(score) for score in result.scores} for result in (one, other))
    shared = first.keys() & second.keys()
    if not shared:
        return "at no moment that both have" if first or second else ""
    different = sum(first[moment] != second[moment] for moment in shared)
    return f"{different} of {len(shared)}" if different else ""
