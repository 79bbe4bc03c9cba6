"""Store of runs: find, read and write. A crash leaves nothing or a whole file; a damaged one is named and stays."""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, shipped
from pflbench.store.header import Stored, Unfit

if TYPE_CHECKING:
    from pflbench.store.runfile import RunFile

_PROBE = bytes(64 * 1024)


class MissingRun(StoreError):
    """The store has no readable run of this id."""


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder: `<root>/runs/<id>.parquet` each, or many in `<root>/packs/*.parquet`.

    Copies of a run go by their rank (`Stored.rank`). Each file is indexed once (a run by itself again when it changed);
    one that cannot be read, or not all of it, is named in a warning and stays.
    Creates nothing before a write.

    Args:
        root: The results folder.
        fresh: Leave out the runs that came with pflbench, wherever they lie.
    """

    packaged: ClassVar = False
    """Read also the packs that came with pflbench, where they are not those of the results folder."""

    def __init__(self, root: Path, fresh: bool = False) -> None:
        self.root, self.fresh = Path(root), fresh
        self.runs, self.packs = self.root / "runs", self.root / "packs"
        self.folders = [self.runs, self.packs]
        came = shipped.shipped_folder()
        if self.packaged and not fresh and came.resolve() != self.packs.resolve():
            self.folders.append(came)
        self._shipped = shipped.shipped_runs()
        self._files: dict[Path, RunFile] = {}

    def path(self, id: str) -> Path:
        """Path to which a run of this id is written; it may be packed later."""
        return self.runs / f"{id}.parquet"

    def check_writable(self) -> None:
        """Create the folder and write a probe: hours of training must not end at a full or read-only disk.

        Raises `StoreError`.
        """
        with files.replacing(self.runs / "probe") as (file, _):
            file.write(_PROBE)
            files.sync(file)

    def status(self, id: str) -> Literal["missing", "done", "failed"]:
        """State of a run, from its metadata alone."""
        stored = self.find(id)
        if stored is None:
            return "missing"
        return "done" if stored.failure is None else "failed"

    def write(self, result: RunResult) -> Path:
        """Write a run atomically and return its path. A failure never replaces a finished run. Raises `StoreError`."""
        from pflbench.store import runfile

        if result.failure is not None and (stored := self.find(result.spec.id)) and stored.failure is None:
            return stored.path
        path = self.path(result.spec.id)
        runfile.write(path, result)
        return path

    def write_pack(self, results: Iterable[RunResult]) -> Path:
        """Write runs of one setting into a pack and return its path. Raises `StoreError`."""
        from pflbench.store import runfile

        path = runfile.write_pack(self.packs, results)
        self._files.pop(path, None)
        return path

    def find(self, id: str) -> Stored | None:
        """Return a run as its files are now; None if there is none that can be read. Raises `StoreError`.

        The folders are listed only if no known file has it finished; a known pack may be gone, which `read` notices.
        """
        self._at(self.path(id))  # first: what is being packed leaves its file once it is in the pack
        run = self._best(id)
        if run is None or run.failure is not None:
            for folder in self.folders[1:]:
                self.indexed(folder)
            run = self._best(id)
        return run

    def read(self, id: str) -> RunResult:
        """Return the whole run. Raises `MissingRun` if there is none that can be read, and `StoreError`."""
        for _ in range(3):  # meanwhile it may be packed, and packed again
            if (run := self.find(id)) is None:
                break
            file = self._files[run.path]
            with files.failing(f"Cannot read {str(run.path)!r}"), contextlib.suppress(FileNotFoundError):
                try:
                    return file.read([id])[id]
                except Unfit as error:
                    del file.entries[id]
                    file.unread.append(Unfit(f"run {id}: {error}; `pflbench rm {id}` lets it be trained again"))
                    files.warn(file.path, file.unread[-1])
                    continue
            del self._files[run.path]
        raise MissingRun(f"There is no run {id} in {str(self.root)!r}.")

    def read_several(self, runs: Iterable[Stored]) -> dict[str, RunResult]:
        """Return those of these runs that can be read, by id: faster than one after the other."""
        by_file = defaultdict[Path, list[str]](list)
        for run in runs:
            by_file[run.path].append(run.spec.id)
        results = dict[str, RunResult]()
        for path, ids in by_file.items():
            try:
                results |= self._files[path].read(ids)
            except (KeyError, Unfit, OSError):
                for id in ids:
                    with contextlib.suppress(MissingRun):
                        results[id] = self.read(id)
        return results

    def list(self) -> StoredRuns:
        """Every readable run, sorted by id. Raises `StoreError`."""
        self.conflicts()
        return [run for _, run in sorted(self.every().items())]

    def every(self) -> dict[str, Stored]:
        """Return every readable run by its id. Raises `StoreError`."""
        runs = dict[str, Stored]()
        for file in (file for folder in self.folders for file in self.indexed(folder)):
            for id, run in file.entries.items():
                if self._is_shown(run) and (id not in runs or run.rank < runs[id].rank):
                    runs[id] = run
        return runs

    def conflicts(self) -> dict[str, Sequence[Path]]:
        """Finished runs of the user that several packs hold with different scores, with a warning for each.

        By id, these packs; the first is the one that is shown. All stay as they are until the user removes a copy.
        """
        packs: dict[str, dict[Path, str | None]] = {}
        for pack in self.indexed(self.packs):
            for id, run in pack.entries.items():
                if run.failure is None and not run.shipped:
                    packs.setdefault(id, {})[pack.path] = run.checksum
        different = {id: [*sums] for id, sums in packs.items() if len({*sums.values()} - {None}) > 1}
        for id, (first, *others) in different.items():
            warnings.warn(
                f"Run {id} has other scores in {', '.join(repr(str(other)) for other in others)} than in "
                f"{str(first)!r}, which is shown. Both stay until you move one of the files away; "
                f"`pflbench rm {id}` removes both copies.",
                stacklevel=3,
            )
        return dict(different)

    def indexed(self, folder: Path) -> Sequence[RunFile]:
        """The Parquet files of a folder, by name. Raises `StoreError`."""
        return [file for path in files.parquet_files(folder) if (file := self._at(path)) is not None]

    def remove(self, file: RunFile) -> None:
        """Remove a pack, or a single run that was not replaced meanwhile. Raises `StoreError`."""
        self._files.pop(file.path, None)
        if file.packed or file.is_current():
            files.unlink(file.path)

    def _at(self, path: Path) -> RunFile | None:
        """The file with this path; None if there is none. Packs never change. Raises `StoreError`."""
        from pflbench.store.runfile import RunFile

        known = self._files.get(path)
        if known is not None and (known.packed or known.is_current()):
            return known
        self._files.pop(path, None)
        with files.failing(f"Cannot read {str(path)!r}"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._add(RunFile(path))
        return None

    def _add(self, file: RunFile) -> RunFile:
        is_named = file.entries.keys() == {file.path.stem} if file.path.parent == self.runs else file.packed
        if file.entries and not is_named:
            file.entries.clear()
            file.unread.append(Unfit("a pack belongs into packs/, a single run under its id into runs/"))
        for reason in {str(reason): reason for reason in file.unread}.values():
            files.warn(file.path, reason)
        for id, run in file.entries.items():
            if shipped.line(run) in self._shipped:
                file.entries[id] = run._replace(shipped=True)
        self._files[file.path] = file
        return file

    def _best(self, id: str) -> Stored | None:
        copies = (file.entries[id] for file in self._files.values() if id in file.entries)
        return min(filter(self._is_shown, copies), key=attrgetter("rank"), default=None)

    def _is_shown(self, run: Stored) -> bool:
        """True for runs that the user requested: of the package's folder only those that came with it."""
        return not self.fresh if run.shipped else run.path.parent in self.folders[:2]


class ShownStore(Store):
    """The runs under a results folder for readers, with those that came with pflbench, unless `fresh`."""

    packaged = True
