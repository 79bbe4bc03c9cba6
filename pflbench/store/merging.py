"""`merge`: what other results folders hold, copied into one. The folders that it comes from are only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pflbench.errors import UsageError
from pflbench.result import RunResult
from pflbench.store import files, models
from pflbench.store.header import Stored, Unfit
from pflbench.store.requests import keep_requests, requests_of
from pflbench.store.store import MissingRun, Store


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
    is warned of, and left out, as links are. New runs of a pack are written into a pack.

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
    outcome, store = Merged(), Store(into)
    store.check_writable()
    for folder in store.folders:
        files.clean(folder)
    for source in sources:
        _merge(Store(source), store, outcome)
    return outcome


def _merge(source: Store, into: Store, outcome: Merged) -> None:
    by_file: dict[Path, list[Stored]] = {}
    for run in source.every().values():
        by_file.setdefault(run.path, []).append(run)
    for id, (shown, *others) in source.conflicts().items():
        several = ", ".join(repr(str(other)) for other in others)
        outcome.others.append(
            f"Run {id} has other scores in {several} than in {str(shown)!r}, whose scores are merged."
        )
    for path, runs in sorted(by_file.items()):
        if path.is_symlink():
            files.warn(path, "run or pack", Unfit("it is a link, which is not followed"))
            outcome.left.append(path)
            continue
        new = [run for run in runs if (present := into.find(run.spec.id)) is None or run.rank < present.rank]
        copied = _copy(new, source, into)
        outcome.added += len(copied)
        copied += [run for run in runs if run not in new and _is_same(run, source, into, outcome)]
        for run in copied:
            if run.failure is None and (folder := models.find(source.root, run.spec.id)) is not None:
                models.copy(folder, into.root, run.spec.id)
    outcome.left += source.unread()
    keep_requests(into, {id: sorted(several) for id, several in requests_of(source).items()}, ())


def _copy(runs: Sequence[Stored], source: Store, into: Store) -> list[Stored]:
    """Write runs of one file into the destination, and return those that could be read."""
    while runs := [run for run in runs if run == source.find(run.spec.id)]:
        try:
            if runs[0].path.parent == source.packs:
                into.write_pack(runs, source)
            else:
                into.write(source.fetch(runs[0]))
            break
        except MissingRun:  # damaged: it was named, and is not in the index of the source any more
            continue
    return list(runs)


def _is_same(run: Stored, source: Store, into: Store, outcome: Merged) -> bool:
    """True if the destination has these scores; others are noted.

    The user's run goes before a shipped one of the same id, in both folders.
    """
    present = into.find(run.spec.id)
    if present is None or run.failure is not None or run.checksum == present.checksum is not None:
        different = ""
    else:
        different = bits_apart(source.fetch(run), into.fetch(present))
        if different and run.rank == present.rank:
            outcome.others.append(
                f"Run {run.spec.id} has other scores in {str(run.path)!r} ({different}): {str(present.path)!r} stays."
            )
            return False
    outcome.same += 1
    return not different


def bits_apart(result: RunResult, there: RunResult) -> str:
    """Difference of the scores at the moments that both have, in words; empty if they are equal to the last bit."""
    mine, theirs = ({score[:4]: repr(score) for score in one.scores} for one in (result, there))
    shared = mine.keys() & theirs.keys()
    if not shared:
        return "at no moment that both have" if mine or theirs else ""
    different = sum(mine[moment] != theirs[moment] for moment in shared)
    return f"{different} of {len(shared)}" if different else ""
