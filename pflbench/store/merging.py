"""`merge`: what other results folders hold, copied into one. The folders that it comes from are only read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pflbench.errors import StoreError, UsageError
from pflbench.result import RunResult
from pflbench.store import files, models, runfile
from pflbench.store.header import Stored
from pflbench.store.requests import keep_requests, requests_of
from pflbench.store.runfile import RunFile
from pflbench.store.store import Store


@dataclass
class Merged:
    """Outcome of a merge.

    Attributes:
        added: How many runs are in the destination only now, or finished there only now.
        same: How many were there.
        others: Runs with other scores than the destination's, which was kept; in sentences.
        left: Files that could not be read, or not all of them.
    """

    added: int = 0
    same: int = 0
    others: list[str] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True if the destination has everything now."""
        return not self.others and not self.left


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Copy the runs of these results folders into another, which may be new. What is read is checked, and read again.

    A finished run of the destination stays; a failed one gives way to a finished one. What cannot be read in a source
    is warned of, and left out, as links are. A pack of which the destination has no run is copied as it is.

    Raises:
        UsageError: A source is no results folder, or the destination.
        StoreError: A source cannot be read, or the destination not be written.
    """
    for source in sources:
        if not source.is_dir():
            raise UsageError(f"There is no results folder {str(source)!r}.")
        if not any((source / name).is_dir() for name in ("runs", "packs")):
            raise UsageError(f"{str(source)!r} is no results folder: it has neither runs/ nor packs/ in it.")
        if into.is_dir() and source.samefile(into):
            raise UsageError(f"{str(source)!r} is to be merged into itself.")
    found, store = Merged(), Store(into, mends=False)
    store.check_writable()
    for folder in store.folders:
        files.clean(folder.folder)
    for source in sources:
        _merge(Store(source, mends=False), store, found)
    return found


def _merge(source: Store, into: Store, found: Merged) -> None:
    by_file: dict[Path, list[Stored]] = {}
    for run in source.every().values():
        by_file.setdefault(run.path, []).append(run)
    left = _unread(source)
    for id, (shown, *others) in source.conflicts().items():
        several = ", ".join(repr(str(other)) for other in others)
        found.others.append(f"Run {id} has other scores in {several} than in {str(shown)!r}, whose scores are merged.")
    for path, runs in sorted(by_file.items()):
        if path.is_symlink():
            files.warn(path, "run or pack", "it is a link, which is not followed", "left as it is")
            left.add(path)
            continue
        pack = source.packs.known.get(path)
        digests = _digests(source, runs)
        if len(digests) < len(runs):
            left.add(path)
        elif pack is not None and path not in left and _is_new(pack, runs, into):
            _copy(pack, digests, into)
            found.added += len(runs)
            _copy_models(runs, source, into)
            continue
        read = [run for run in runs if run.spec.id in digests]
        _copy_models([run for run in read if _add(run, source.fetch(run), into, found)], source, into)
    found.left += sorted(left)
    into.packs.known.clear()
    keep_requests(into, {id: sorted(several) for id, several in requests_of(source).items()}, ())


def _unread(source: Store) -> set[Path]:
    """The files that cannot be read, or not all of them."""
    return {
        path
        for folder in source.folders
        for path in files.parquet_files(folder.folder)
        if path not in folder.known or folder.known[path].foreign or folder.known[path].unfit
    }


def _copy_models(runs: Iterable[Stored], source: Store, into: Store) -> None:
    for run in runs:
        if (kept := models.find(source.root, run.spec.id)) is not None:
            models.copy(kept, into.root, run.spec.id)


def _digests(source: Store, runs: Collection[Stored]) -> dict[str, str]:
    """The `schema.digest` of each of these runs that can be read, by id."""
    from pflbench.store import schema

    read = {run.spec.id: source.folder_of(run.path).read(run) for run in runs}
    return {id: schema.digest(result) for id, result in read.items() if result is not None}


def _is_new(pack: RunFile, runs: Collection[Stored], into: Store) -> bool:
    """True if all of a pack is selected and nothing of it is in the destination."""
    return len(pack.entries) == len(runs) and all(into.find(run.spec.id) is None for run in runs)


def _copy(pack: RunFile, digests: dict[str, str], into: Store) -> None:
    """Copy a pack. Raises `StoreError`."""
    try:
        content = pack.path.read_bytes()
    except OSError as error:
        raise files.unreadable(pack.path, error) from error
    path = into.packs.folder / pack.path.name
    if path.exists():
        raise StoreError(f"{str(path)!r} cannot be read, and is not replaced. Move it away.")
    runfile.publish(path, lambda file: file.write(content), digests)


def _add(run: Stored, result: RunResult, into: Store, found: Merged) -> bool:
    """Write a run into the destination unless it has it; whether the destination has these scores now.

    The user's run goes before a shipped one of the same id, in both folders.
    """
    there = into.find(run.spec.id)
    if there is None or run.rank < there.rank:
        into.write(result)
        found.added += 1
        return True
    different = bits_apart(result, into.fetch(there)) if run.failure is None else ""
    if different and run.rank == there.rank:
        found.others.append(
            f"Run {run.spec.id} has other scores in {str(run.path)!r} ({different}): {str(there.path)!r} stays."
        )
        return False
    found.same += 1
    return run.failure is None and not different


def bits_apart(result: RunResult, there: RunResult) -> str:
    """Difference of the scores at the moments that both have, in words; empty if they are equal to the last bit."""
    mine, theirs = ({score[:4]: repr(score) for score in one.scores} for one in (result, there))
    shared = mine.keys() & theirs.keys()
    if not shared:
        return "at no moment that both have" if mine or theirs else ""
    different = sum(mine[moment] != theirs[moment] for moment in shared)
    return f"{different} of {len(shared)}" if different else ""
