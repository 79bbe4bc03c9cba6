"""Store of runs: find, read and write. A crash leaves nothing or a whole file; a damaged one is set aside and named."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, runfile, shipped
from pflbench.store.folder import Folder
from pflbench.store.header import Stored
from pflbench.store.runfile import RunFile

_PROBE = bytes(64 * 1024)


class OtherScores(UserWarning):
    """Packs hold a run with different scores; the message names them and says how to decide."""


class MissingRun(StoreError):
    """The store has no readable run of this id."""


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder: `<root>/runs/<id>.parquet` each, or many in `<root>/packs/*.parquet`.

    Copies of a run go by their rank (`Stored.rank`), and a run by itself before a packed one. Creates nothing before a
    write.

    Args:
        root: The results folder.
        mends: Rename damaged files.
        packaged: Read also the packs that came with pflbench, where they are not those of the results folder.
        fresh: Leave out the runs that came with pflbench, wherever they lie.
    """

    def __init__(self, root: Path, mends: bool = True, packaged: bool = False, fresh: bool = False) -> None:
        self.root, self.fresh = Path(root), fresh
        self.runs = self.root / "runs"
        listed = shipped.shipped_runs()

        def shows(run: Stored) -> bool:
            return not (fresh and run.shipped)

        self.singles = Folder(self.runs, False, mends, listed, shows)
        self.packs = Folder(self.root / "packs", True, mends, listed, shows)
        self.folders = [self.singles, self.packs]
        came = shipped.shipped_folder()
        if packaged and not fresh and came.resolve() != self.packs.folder.resolve():
            self.folders.append(Folder(came, True, False, listed, attrgetter("shipped")))
        self._checksums: dict[tuple[Path, files.Identity, str], str | None] = {}

    def path(self, id: str) -> Path:
        """Path to which a run of this id is written; it may be packed later."""
        return self.runs / f"{id}.parquet"

    def check_writable(self, ids: Iterable[str] = ()) -> None:
        """Create the folder and write a probe: hours of training must not end at a full or read-only disk.

        Raises `StoreError`, also if a file that is not to be replaced has the place of one of these runs.
        """
        for id in ids:
            self.check_place(id)
        with files.replacing(self.runs / "probe") as (file, temporary):
            file.write(_PROBE)
            files.sync(file)
            temporary.unlink()

    def check_place(self, id: str) -> None:
        """Raise `StoreError` if a file that is not to be replaced has the place of the run of this id."""
        runfile.check_place(self.path(id))

    def status(self, id: str) -> Literal["missing", "done", "failed"]:
        """State of a run, from its metadata alone. A damaged file is set aside and counts as missing."""
        stored = self.find(id)
        if stored is None:
            return "missing"
        return "done" if stored.failure is None else "failed"

    def write(self, result: RunResult) -> Path:
        """Write a run atomically and return its path. A failure never replaces a finished run.

        Raises `StoreError`, also if a file that is not to be replaced has its place.
        """
        path = self.path(result.spec.id)
        if result.failure is not None and (stored := self.find(result.spec.id)) and stored.failure is None:
            return stored.path
        self.check_place(result.spec.id)
        runfile.write(path, result)
        files.clean(self.runs)
        return path

    def find(self, id: str) -> Stored | None:
        """Return a run as its metadata describe it; None if there is none that can be read."""
        found = self.singles.find(id)  # first: what is being packed leaves its file once the pack is there
        for folder in self.folders[1:]:
            if found is None or any(found.rank):
                found = min(filter(None, (found, folder.find(id))), key=attrgetter("rank"), default=None)
        return found

    def read(self, id: str) -> RunResult:
        """Return the whole run. Raises `MissingRun` if there is none that can be read."""
        for _ in range(3):  # between finding and reading it may be packed, and packed again; a damaged one is set aside
            stored = self.find(id)
            if stored is None:
                break
            result = self._read(stored)
            if result is not None:
                return result
        raise MissingRun(f"There is no run {id} in {str(self.root)!r}.")

    def fetch(self, stored: Stored) -> RunResult:
        """Return the whole of a run that `list` described, without looking through all packs again.

        Raises `MissingRun` if it is gone from its file, and is nowhere else.
        """
        return self._read(stored) or self.read(stored.spec.id)

    def fetch_several(self, runs: Iterable[Stored]) -> dict[str, RunResult]:
        """Return those of these runs, as `list` described them, that lie in packs and can be read at once, by id."""
        of: dict[Path, list[str]] = {}
        for run in runs:
            of.setdefault(run.path, []).append(run.spec.id)
        found = dict[str, RunResult]()
        for path, ids in of.items():
            found |= self.folder_of(path).read_several(path, ids)
        return found

    def _read(self, stored: Stored) -> RunResult | None:
        return self.folder_of(stored.path).read(stored)

    def folder_of(self, path: Path) -> Folder:
        """Return the folder that a file of runs lies in."""
        return next(folder for folder in self.folders if folder.folder == path.parent)

    def list(self) -> StoredRuns:
        """Every readable run, sorted by id."""
        found = self.every()
        self.conflicts()
        return [found[id] for id in sorted(found)]

    def every(self) -> dict[str, Stored]:
        """Return every readable run by its id."""
        found = dict[str, Stored]()
        for folder in self.folders:
            for run in folder.runs():
                found[run.spec.id] = min(found.get(run.spec.id, run), run, key=attrgetter("rank"))
        return found

    def conflicts(self) -> dict[str, Sequence[Path]]:
        """Finished runs of the user that several packs hold with different scores, with a warning for each.

        By id, these packs; the first is the one that is shown. All stay as they are until the user removes a copy.
        """
        holding: dict[str, list[RunFile]] = {}
        for pack in self.packs.all():
            for id, run in pack.entries.items():
                if run.failure is None and not run.shipped:
                    holding.setdefault(id, []).append(pack)
        found: dict[str, Sequence[Path]] = {}
        for id, packs in holding.items():
            if len(packs) > 1 and len({self._checksum(pack, id) for pack in packs} - {None}) > 1:
                found[id] = [pack.path for pack in packs]
                shown, *others = map(str, found[id])
                say = (
                    f"Run {id} has other scores in {', '.join(map(repr, others))} than in {shown!r}, which is shown. "
                    f"Both stay until you move one of the files away; `pflbench rm {id}` removes both copies."
                )
                warnings.warn(say, OtherScores, stacklevel=3)
        return found

    def _checksum(self, pack: RunFile, id: str) -> str | None:
        """`schema.checksum` of a pack's run; None if it cannot be read."""
        from pflbench.store import schema

        key = pack.path, pack.footer.identity, id
        if key not in self._checksums:
            known = pack.entries[id].checksum
            result = self.packs.read(pack.entries[id]) if known is None else None
            self._checksums[key] = known if result is None else schema.checksum(result)
        return self._checksums[key]
