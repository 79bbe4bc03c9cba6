"""A folder of run files: the runs in them, and the treatment of damaged files."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, runfile
from pflbench.store.header import Foreign, Stored, Unfit
from pflbench.store.runfile import RunFile
from pflbench.store.shipped import ShippedRuns, line

SECOND_LOOK = 0.2
"""Seconds after which a file that looks damaged is looked at again: a network may show it half-written, or stale."""


class Folder:
    """The files in a folder of packs (`packed`), or of runs by themselves. A footer is read again only of a new file.

    `known`: the files at the last look. `mends`: True puts damaged files out of the way; else they stay, and nothing
    more is read of them. `shipped`: list of the runs that came with pflbench. `shows`: True for runs that are found.
    """

    def __init__(
        self, folder: Path, packed: bool, mends: bool, shipped: ShippedRuns, shows: Callable[[Stored], bool]
    ) -> None:
        self.folder, self.packed, self.mends, self.shipped, self.shows = folder, packed, mends, shipped, shows
        self.known: dict[Path, RunFile] = {}
        self._left: dict[Path, files.Identity] = {}
        """Damaged files that stay."""

    def all(self) -> list[RunFile]:
        """Return every readable file, by name. A damaged one is set aside. Raises `StoreError`."""
        found: list[RunFile] = []
        for _ in range(3):
            try:
                found = [file for path in files.parquet_files(self.folder) if (file := self._at(path)) is not None]
                break
            except FileNotFoundError:  # it was packed meanwhile: its runs are in a file that is not on our list
                continue
        return found

    def runs(self) -> Iterator[Stored]:
        """Every run that is shown, by file. Raises `StoreError`."""
        return (run for file in self.all() for run in file.entries.values() if self.shows(run))

    def find(self, id: str) -> Stored | None:
        """Return a run that is shown; of several packs that hold it the first of the best rank.

        Raises `StoreError`.
        """
        path, found = self.folder / f"{id}.parquet", list[RunFile]()
        if self.packed:
            found = self.all()
        else:
            with contextlib.suppress(FileNotFoundError):
                found = [file for file in [self._at(path) if path.is_file() else None] if file is not None]
        holding = (run for file in found if (run := file.entries.get(id)) is not None and self.shows(run))
        return min(holding, key=attrgetter("rank"), default=None)

    def read(self, run: Stored) -> RunResult | None:
        """Return the whole run; None if it cannot be read at its path, or not any more. Raises `StoreError`."""
        file, id = self.known.get(run.path), run.spec.id
        if file is None or id not in file.entries:
            return None
        for look in (1, 2):
            try:
                return file.read(id)
            except FileNotFoundError:
                return None
            except (Unfit, OSError) as error:
                if not self._again(error, look):
                    self._damaged(file, files.damage(run.path, error), id)
                    return None
        return None

    def read_several(self, path: Path, ids: Iterable[str]) -> dict[str, RunResult]:
        """Return those runs of a pack that can be read at once, by id; none if one is damaged, which `read` says."""
        file = self.known.get(path)
        try:
            return file.read_several(file.entries.keys() & ids) if file is not None else {}
        except (Unfit, OSError):
            return {}

    def _at(self, path: Path) -> RunFile | None:
        """The file with this path; None if it cannot be read. Raises `FileNotFoundError` and `StoreError`."""
        known = self.known.pop(path, None)
        for look in (1, 2):
            try:
                known = self._now(path, known)
                break
            except FileNotFoundError:
                raise
            except Foreign as error:
                files.leave_out(f"{str(path)!r} is", error)
                return None
            except (Unfit, OSError) as error:
                if not self._again(error, look):
                    self._put_away(path, files.damage(path, error))
                    return None
        if known is not None:
            self.known[known.path] = known
        return known

    def _now(self, path: Path, known: RunFile | None) -> RunFile | None:
        """The file with this path, which was `known`; None if it stays damaged. Raises `Unfit` and `OSError`."""
        if path in self._left and files.unchanged(path, self._left[path]):
            return None
        if known is not None and files.identity(path.stat()) == known.footer.identity:
            return known
        known = RunFile(path)
        if known.packed != self.packed:
            raise Unfit(f"no pflbench metadata of a {self._kind}")
        if known.foreign:
            some = "1 run in {!r} is" if len(known.foreign) == 1 else f"{len(known.foreign)} runs in {{!r}} are"
            files.leave_out(some.format(str(path)), known.foreign[0])
        for id, run in known.entries.items():
            if line(run) in self.shipped:
                known.entries[id] = run._replace(shipped=True)
        return self._damaged(known, known.unfit[0]) if known.unfit else known

    @property
    def _kind(self) -> str:
        return "pack" if self.packed else "run"

    def _again(self, error: Exception, look: int) -> bool:
        """Wait, and return True, if a file with this error is to be looked at once more."""
        if look > 1 or not (self.mends or getattr(error, "errno", None) == errno.ESTALE):
            return False
        time.sleep(SECOND_LOOK)
        return True

    def _damaged(self, file: RunFile, reason: str, id: str = "") -> RunFile | None:
        """Set a damaged file aside, and return what holds its other runs: a new pack, or the file where it must stay.

        `id`: the damaged run. A pack with foreign runs stays, as any does where nothing is mended.
        """
        if not self.packed:
            self._put_away(file.path, reason)
            return None
        reason = f"run {id}: {reason}" if id else reason
        if not self.mends:
            file.entries.pop(id, None)
        if file.foreign or not self.mends:
            files.warn(file.path, "pack", reason, "left as it is, its other runs are read")
            return file
        rescued = None
        if readable := [run for run in file.entries.values() if _is_readable(file, run)]:
            try:
                rescued = runfile.write_pack(self.folder, readable, file.read)
            except StoreError as error:
                files.warn(file.path, "pack", reason, f"left as it is, its other runs are read; {error}")
                return file
            reason += f"; its other {len(readable)} runs are in {rescued.path.name!r} now"
        self._put_away(file.path, reason)
        return rescued

    def _put_away(self, path: Path, reason: str) -> None:
        """Set a damaged file aside, or remember not to read it again."""
        if self.mends:
            files.set_aside(path, self._kind, reason)
            return
        self.known.pop(path, None)
        with contextlib.suppress(OSError):
            self._left[path] = files.identity(path.stat())
        files.warn(path, self._kind, reason, "left as it is")


def _is_readable(file: RunFile, run: Stored) -> bool:
    try:
        file.read(run.spec.id)
    except FileNotFoundError:
        return False
    except (Unfit, OSError) as error:
        files.damage(file.path, error)  # raises if the file cannot be reached at all
        return False
    return True
