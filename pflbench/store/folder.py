"""The two folders of runs in a results folder: which runs their files hold, and what becomes of a broken one."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Generic

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, packfile
from pflbench.store.footers import Footer, Footers
from pflbench.store.header import Foreign, Unfit
from pflbench.store.packfile import Pack
from pflbench.store.runfile import File, RunFile

SECOND_LOOK = 0.2
"""Seconds after which a file that looks damaged is looked at again: a network may show it half-written, or stale."""


class Folder(Generic[File]):
    """The files of one kind in a folder. A footer is read once, and again only if its file became another.

    `known`: the files as they were when they were last looked into. `seen`: whether there are any, for whoever looks.
    `mends`: whether a broken file is put out of the way; else it stays as it is, and nothing more is read of it.
    """

    kind: type[File]

    def __init__(self, folder: Path, footers: Footers, seen: bool = True, mends: bool = True) -> None:
        self.folder, self._footers, self.seen, self.mends = folder, footers, seen, mends
        self.known: dict[Path, File] = {}
        self._left: dict[Path, files.Identity] = {}
        """Broken files that stay."""

    def read(self, file: File, id: str) -> RunResult | None:
        """One of a file's runs; None if it cannot be read there, or not any more. Raises `StoreError`."""
        for look in (1, 2):
            try:
                return file.read(id)
            except FileNotFoundError:
                return None
            except (Unfit, OSError) as error:
                if not self._again(error, look):
                    self._broken(file, files.damage(file.path, error), id)
                    return None
        return None

    def read_several(self, file: File, ids: Iterable[str]) -> dict[str, RunResult]:
        """What can be read at once of a file's runs, by id: nothing if anything is wrong with it, which `read` says."""
        try:
            return file.read_several(ids)
        except (Unfit, OSError):
            return {}

    def _again(self, error: Exception, look: int) -> bool:
        """Whether a file of which this was said is to be looked at once more; waits until then."""
        if look > 1 or not (self.mends or getattr(error, "errno", None) == errno.ESTALE):
            return False
        time.sleep(SECOND_LOOK)
        return True

    def _broken(self, file: File, reason: str, id: str = "") -> File | None:
        """Put a damaged file (`id`: one of its runs is) out of the way; the one that takes its place, if one does."""
        self._put_away(file.path, reason)
        return None

    def _put_away(self, path: Path, reason: str) -> None:
        """See to it that a broken file is not read again."""
        if self.mends:
            files.set_aside(path, self.kind.kind, reason)
            return
        self.known.pop(path, None)
        with contextlib.suppress(OSError):
            self._left[path] = files.identity(path.stat())
        files.warn(path, self.kind.kind, reason, "left as it is")

    def _at(self, path: Path) -> File | None:
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

    def _now(self, path: Path, known: File | None) -> File | None:
        """The file with this path, which was `known`; None if it stays broken. Raises `Unfit` and `OSError`."""
        if path in self._left and files.unchanged(path, self._left[path]):
            return None
        if known is not None and files.identity(path.stat()) == known.footer.identity:
            return known
        known = self._footers.describe(path, lambda footer: self._sound(path, footer))
        if known.foreign:
            some = "1 run in {!r} is" if len(known.foreign) == 1 else f"{len(known.foreign)} runs in {{!r}} are"
            files.leave_out(some.format(str(path)), known.foreign[0])
        return self._broken(known, known.unfit[0]) if known.unfit else known

    def _sound(self, path: Path, footer: Footer) -> File:
        """The file with this footer. Raises `Unfit`, also if the footer is remembered and some of it cannot be read."""
        file = self.kind(path, footer)
        if footer.parsed is None and (file.unfit or file.foreign):
            raise Unfit("the file itself has to say it")
        return file


class Singles(Folder[RunFile]):
    """Runs in files of their own, named by their ids."""

    kind = RunFile

    def path(self, id: str) -> Path:
        """Where the run of this id is."""
        return self.folder / f"{id}.parquet"

    def find(self, id: str) -> RunFile | None:
        """The file of this run; None if it has none that can be read. Raises `StoreError`."""
        try:
            return self._at(self.path(id)) if self.path(id).is_file() else None
        except FileNotFoundError:
            return None

    def all(self) -> list[RunFile]:
        """Every readable file, by name. A broken one is set aside. Raises `StoreError`."""
        return [file for path in files.parquet_files(self.folder) if (file := self.find(path.stem)) is not None]


class Packs(Folder[Pack]):
    """Files of many runs."""

    kind = Pack

    def find(self, id: str) -> Pack | None:
        """The pack that holds this run; of several the first, but one where it is finished before where it failed."""
        holding = [pack for pack in self.all() if id in pack.entries]
        finished = [pack for pack in holding if pack.entries[id].failure is None]
        return next(iter(finished + holding), None)

    def all(self) -> list[Pack]:
        """Every readable pack, by name. A broken one is set aside. Raises `StoreError`."""
        for _ in range(3 if self.seen else 0):
            try:
                return [pack for path in files.parquet_files(self.folder) if (pack := self._at(path)) is not None]
            except FileNotFoundError:  # it was packed again meanwhile: its runs are in a file that is not on our list
                continue
        return []

    def _broken(self, file: Pack, reason: str, id: str = "") -> Pack | None:
        """Write what a damaged pack still holds as another pack, which is returned, and set the damaged one aside.

        One with foreign runs stays, as any does where nothing is mended.
        """
        reason = f"run {id}: {reason}" if id else reason
        if not self.mends:
            file.entries.pop(id, None)
        if file.foreign or not self.mends:
            files.warn(file.path, "pack", reason, "left as it is, its other runs are read")
            return file
        readable = [id for id in file.entries if _is_readable(file, id)]
        rescued = None
        if readable:
            try:
                rescued = packfile.write(self.folder, [file.entries[id] for id in readable], file.read)
            except StoreError as error:
                files.warn(file.path, "pack", reason, f"left as it is, its other runs are read; {error}")
                return file
            reason += f"; its other {len(readable)} runs are in {rescued.path.name!r} now"
        self._put_away(file.path, reason)
        return rescued


def _is_readable(pack: Pack, id: str) -> bool:
    try:
        pack.read(id)
    except FileNotFoundError:
        return False
    except (Unfit, OSError) as error:
        files.damage(pack.path, error)  # raises if the file cannot be reached at all
        return False
    return True
