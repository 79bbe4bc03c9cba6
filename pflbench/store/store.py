"""Store of runs: find, read and write. A crash leaves nothing or a whole file; a damaged one is named and stays."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, runfile, shipped
from pflbench.store.header import Stored, Unfit
from pflbench.store.runfile import RunFile

_PROBE = bytes(64 * 1024)


class OtherScores(UserWarning):
    """Packs hold a run with different scores; the message names them and says how to decide."""


class MissingRun(StoreError):
    """The store has no readable run of this id."""


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder: `<root>/runs/<id>.parquet` each, or many in `<root>/packs/*.parquet`.

    Copies of a run go by their rank (`Stored.rank`), and a run by itself before a packed one. Each file is indexed once
    (a run by itself again when it changed); one that cannot be read, or not all of it, is named in a warning and stays.
    Creates nothing before a write.

    Args:
        root: The results folder.
        packaged: Read also the packs that came with pflbench, where they are not those of the results folder.
        fresh: Leave out the runs that came with pflbench, wherever they lie.
    """

    def __init__(self, root: Path, packaged: bool = False, fresh: bool = False) -> None:
        self.root, self.fresh = Path(root), fresh
        self.runs, self.packs = self.root / "runs", self.root / "packs"
        self.folders = [self.runs, self.packs]
        came = shipped.shipped_folder()
        if packaged and not fresh and came.resolve() != self.packs.resolve():
            self.folders.append(came)
        self._shipped = shipped.shipped_runs()
        self._files: dict[Path, RunFile] = {}

    def path(self, id: str) -> Path:
        """Path to which a run of this id is written; it may be packed later."""
        return self.runs / f"{id}.parquet"

    def check_writable(self, ids: Iterable[str] = ()) -> None:
        """Create the folder and write a probe: hours of training must not end at a full or read-only disk.

        Raises `StoreError`, also if another version's file has the path of one of these runs.
        """
        for id in ids:
            self.check_path(id)
        with files.replacing(self.runs / "probe") as (file, temporary):
            file.write(_PROBE)
            files.sync(file)
            temporary.unlink()

    def check_path(self, id: str) -> None:
        """Raise `StoreError` if another version's file has the path of the run of this id."""
        if (file := self._at(self.path(id))) is not None:
            runfile.check_replaceable(file)

    def status(self, id: str) -> Literal["missing", "done", "failed"]:
        """State of a run, from its metadata alone."""
        stored = self.find(id)
        if stored is None:
            return "missing"
        return "done" if stored.failure is None else "failed"

    def write(self, result: RunResult) -> Path:
        """Write a run atomically and return its path. A failure never replaces a finished run.

        Raises `StoreError`, also if another version's file has its path.
        """
        path = self.path(result.spec.id)
        if result.failure is not None and (stored := self.find(result.spec.id)) and stored.failure is None:
            return stored.path
        self.check_path(result.spec.id)
        self._add(runfile.write(path, result))
        files.clean(self.runs)
        return path

    def find(self, id: str) -> Stored | None:
        """Return a run as its metadata describe it; None if there is none that can be read. Raises `StoreError`."""
        single = self._at(self.path(id))  # first: what is being packed leaves its file once it is in the pack
        several = [file for file in [single] if file is not None]
        if single is None or any(any(run.rank) for run in single.entries.values()):
            several += [file for folder in self.folders[1:] for file in self._in(folder)]
        copies = (file.entries[id] for file in several if id in file.entries)
        return min(filter(self._is_shown, copies), key=attrgetter("rank"), default=None)

    def read(self, id: str) -> RunResult:
        """Return the whole run. Raises `MissingRun` if there is none that can be read."""
        for _ in range(3):  # between finding and reading it may be packed, and packed again
            stored = self.find(id)
            result = None if stored is None else self._read(stored)
            if result is not None:
                return result
        raise MissingRun(f"There is no run {id} in {str(self.root)!r}.")

    def fetch(self, stored: Stored) -> RunResult:
        """Return the whole of a run that `list` described, without looking through all packs again.

        Raises `MissingRun` if it is gone from its file, and is nowhere else.
        """
        return self._read(stored) or self.read(stored.spec.id)

    def fetch_several(self, runs: Iterable[Stored]) -> dict[str, RunResult]:
        """Return those of these runs, as `list` described them, that can be read at once, by id."""
        by_file: dict[Path, list[str]] = {}
        for run in runs:
            by_file.setdefault(run.path, []).append(run.spec.id)
        results = dict[str, RunResult]()
        for path, ids in by_file.items():
            try:
                results |= self._files[path].read_several(self._files[path].entries.keys() & ids)
            except (KeyError, Unfit, OSError):
                continue  # `fetch` tells which run is damaged
        return results

    def list(self) -> StoredRuns:
        """Every readable run, sorted by id."""
        runs = self.every()
        self.conflicts()
        return [runs[id] for id in sorted(runs)]

    def every(self) -> dict[str, Stored]:
        """Return every readable run by its id."""
        runs = dict[str, Stored]()
        for folder in self.folders:
            for file in self._in(folder):
                for id, run in file.entries.items():
                    if self._is_shown(run):
                        runs[id] = min(runs.get(id, run), run, key=attrgetter("rank"))
        return runs

    def conflicts(self) -> dict[str, Sequence[Path]]:
        """Finished runs of the user that several packs hold with different scores, with a warning for each.

        By id, these packs; the first is the one that is shown. All stay as they are until the user removes a copy.
        """
        packs: dict[str, dict[Path, str | None]] = {}
        for pack in self.packed():
            for id, run in pack.entries.items():
                if run.failure is None and not run.shipped:
                    packs.setdefault(id, {})[pack.path] = run.checksum
        different = {id: list(sums) for id, sums in packs.items() if len({*sums.values()} - {None}) > 1}
        for id, (shown, *others) in different.items():
            say = (
                f"Run {id} has other scores in {', '.join(repr(str(other)) for other in others)} than in "
                f"{str(shown)!r}, which is shown. Both stay until you move one of the files away; "
                f"`pflbench rm {id}` removes both copies."
            )
            warnings.warn(say, OtherScores, stacklevel=3)
        return dict(different)

    def singles(self) -> Sequence[RunFile]:
        """The files of single runs, by name. Raises `StoreError`."""
        return self._in(self.runs)

    def packed(self) -> Sequence[RunFile]:
        """The packs of the results folder, by name. Raises `StoreError`."""
        return self._in(self.packs)

    def unread(self) -> Sequence[Path]:
        """The files that cannot be read, or not all of them. Raises `StoreError`."""
        return [file.path for folder in self.folders for file in self._in(folder) if file.unread]

    def write_pack(self, runs: Iterable[Stored], source: Store | None = None) -> RunFile:
        """Write these runs of a store (None: of this one) into a pack.

        Raises `MissingRun` if one of them is damaged, and `StoreError`.
        """
        of, read = {run.spec.id: run for run in runs}, (source or self).fetch
        return self._add(runfile.write_pack(self.packs, [*of.values()], lambda id: read(of[id])))

    def remove(self, file: RunFile, note: str = "") -> None:
        """Remove a pack, or a single run that was not replaced meanwhile. Raises `StoreError`, with the note."""
        self._files.pop(file.path, None)
        with contextlib.suppress(FileNotFoundError):
            if file.packed or files.identity(file.path.stat()) == file.identity:
                files.unlink(file.path, note)

    def _in(self, folder: Path) -> Sequence[RunFile]:
        return [file for path in files.parquet_files(folder) if (file := self._at(path)) is not None]

    def _at(self, path: Path) -> RunFile | None:
        """The file with this path; None if there is none. Packs never change. Raises `StoreError`."""
        known = self._files.get(path)
        try:
            if known is None or (path.parent == self.runs and files.identity(path.stat()) != known.identity):
                return self._add(RunFile(path))
        except (FileNotFoundError, NotADirectoryError):
            self._files.pop(path, None)
            return None
        except OSError as error:
            raise files.unreadable(path, error) from error
        return known

    def _add(self, file: RunFile) -> RunFile:
        if file.entries and file.packed == (file.path.parent == self.runs):
            file.entries.clear()
            file.unread.append(Unfit("a pack belongs into packs, a single run into runs"))
        for reason in {str(reason): reason for reason in file.unread}.values():
            files.warn(file.path, _kind(file), reason)
        for id, run in file.entries.items():
            if shipped.line(run) in self._shipped:
                file.entries[id] = run._replace(shipped=True)
        self._files[file.path] = file
        return file

    def _is_shown(self, run: Stored) -> bool:
        """True for runs that the user asked for: of the package's folder only those that came with it."""
        return not self.fresh if run.shipped else run.path.parent in self.folders[:2]

    def _read(self, stored: Stored) -> RunResult | None:
        """Return the whole run; None if it cannot be read at its path, or not any more. Raises `StoreError`."""
        id, file = stored.spec.id, self._files.get(stored.path)
        if file is None or id not in file.entries:
            return None
        try:
            return file.read(id)
        except FileNotFoundError:
            self._files.pop(stored.path)
        except OSError as error:
            raise files.unreadable(stored.path, error) from error
        except Unfit as error:
            reason = Unfit(f"run {id}: {error}" if file.packed else str(error))
            del file.entries[id]
            file.unread.append(reason)
            files.warn(file.path, _kind(file), reason)
        return None


def _kind(file: RunFile) -> str:
    return "pack" if file.packed or file.path.parent.name == "packs" else "run"
