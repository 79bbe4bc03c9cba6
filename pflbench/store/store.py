"""Find, read and write runs. A crash leaves nothing or a whole file; a broken file is set aside and named."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pflbench import renames
from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files, runfile
from pflbench.store.folder import Packs, Singles
from pflbench.store.footers import Footers
from pflbench.store.header import Stored
from pflbench.store.packfile import Pack

_PROBE = bytes(64 * 1024)


class OutdatedRuns(UserWarning):
    """Some stored runs bear names that their methods have no more; the message says which and what to do."""


class OtherScores(UserWarning):
    """Packs hold a run with different scores; the message names them and says how to decide."""


class MissingRun(StoreError):
    """The store has no readable run of this id."""


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder: `<root>/runs/<id>.parquet` each, or many in `<root>/packs/*.parquet`.

    A run in a file of its own goes before a packed one, but a finished run before a failed one. Creates nothing
    before a write. `packed`: whether packs are looked into; else only runs in files of their own are there. `mends`:
    whether broken files are renamed; `remembered`: whether footers are, for other processes.
    """

    def __init__(self, root: Path, packed: bool = True, mends: bool = True, remembered: bool = True) -> None:
        self.root = Path(root)
        self.runs = self.root / "runs"
        self._footers = Footers(self.root, remembered)
        self.singles = Singles(self.runs, self._footers, mends=mends)
        self.packs = Packs(self.root / "packs", self._footers, packed, mends)
        self._checksums: dict[tuple[Path, files.Identity, str], str | None] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Those that hold runs, beside which it is noted who asked for them."""
        return (self.runs, self.packs.folder) if self.packs.seen else (self.runs,)

    def path(self, id: str) -> Path:
        """Where a run of this id is written; it may be packed later."""
        return self.singles.path(id)

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
        files.check_place(self.path(id), runfile.RunFile)

    def status(self, id: str) -> Literal["missing", "done", "failed"]:
        """Whether the run is there, from its metadata alone. A corrupt file is set aside and counts as missing."""
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
        """The run as its metadata describes it; None if there is none that can be read."""
        file = self.singles.find(id)  # first: what is being packed leaves its file once the pack is there
        single = file.entries[id] if file else None
        if single is not None and single.failure is None:
            return single
        pack = self.packs.find(id)
        packed = pack.entries[id] if pack else None
        return single if packed is None or not _goes_before(packed, single) else packed

    def read(self, id: str) -> RunResult:
        """The whole run. Raises `MissingRun` if there is none that can be read."""
        for _ in range(3):  # between finding and reading it may be packed, and packed again; a broken one is set aside
            stored = self.find(id)
            if stored is None:
                break
            result = self._read(stored)
            if result is not None:
                return result
        raise MissingRun(f"There is no run {id} in {str(self.root)!r}.")

    def fetch(self, stored: Stored) -> RunResult:
        """The whole of a run that `list` described: from where it was then, without looking through all packs again.

        Raises `MissingRun` if it is not there any more, and nowhere else.
        """
        return self._read(stored) or self.read(stored.spec.id)

    def fetch_several(self, runs: Iterable[Stored]) -> dict[str, RunResult]:
        """Those of these runs, as `list` described them, that lie in packs and can be read at once, by id."""
        of: dict[Path, list[str]] = {}
        for run in runs:
            of.setdefault(run.path, []).append(run.spec.id)
        found = dict[str, RunResult]()
        for path, ids in of.items():
            found |= self._read_several(path, ids)
        return found

    def _read_several(self, path: Path, ids: Sequence[str]) -> dict[str, RunResult]:
        pack = self.packs.known.get(path)
        return self.packs.read_several(pack, pack.entries.keys() & ids) if pack else {}

    def _read(self, stored: Stored) -> RunResult | None:
        id = stored.spec.id
        if stored.path == self.path(id):
            file = self.singles.known.get(stored.path) or self.singles.find(id)
            return self.singles.read(file, id) if file else None
        pack = self.packs.known.get(stored.path) or self.packs.find(id)
        return self.packs.read(pack, id) if pack and id in pack.entries else None

    def list(self) -> StoredRuns:
        """Every readable run whose method still has the name it had then, sorted by id; warns of the others."""
        found = self.every()
        self._footers.keep()
        every = [found[id] for id in sorted(found)]
        self._warn(every)
        self.conflicts()
        return [run for run in every if renamed(run.spec) is None]

    def every(self) -> dict[str, Stored]:
        """Every readable run by its id."""
        found = {id: run for file in self.singles.all() for id, run in file.entries.items()}
        for pack in self.packs.all():
            found |= {id: run for id, run in pack.entries.items() if _goes_before(run, found.get(id))}
        return found

    def conflicts(self) -> dict[str, Sequence[Path]]:
        """Finished runs that several packs hold with different scores, with a warning for each.

        By id, these packs; the first is the one that is shown. All stay as they are until the user removes a copy.
        """
        holding: dict[str, list[Pack]] = {}
        for pack in self.packs.all():
            for id, run in pack.entries.items():
                if run.failure is None:
                    holding.setdefault(id, []).append(pack)
        found: dict[str, Sequence[Path]] = {}
        for id, packs in holding.items():
            if len(packs) > 1 and len({self._checksum(pack, id) for pack in packs} - {None}) > 1:
                found[id] = [pack.path for pack in packs]
                shown, *others = map(str, found[id])
                say = (
                    f"Run {id} has other scores in {', '.join(map(repr, others))} than in {shown!r}, which is shown. "
                    f"Both stay until you remove one: `pflbench rm {id} --file {shlex.quote(others[0])}`."
                )
                warnings.warn(say, OtherScores, stacklevel=3)
        return found

    def _checksum(self, pack: Pack, id: str) -> str | None:
        """`schema.checksum` of a pack's run; None if it cannot be read."""
        from pflbench.store import schema

        key = pack.path, pack.footer.identity, id
        if key not in self._checksums:
            known = pack.entries[id].checksum
            result = self.packs.read(pack, id) if known is None else None
            self._checksums[key] = known if result is None else schema.checksum(result)
        return self._checksums[key]

    def _warn(self, runs: Iterable[Stored]) -> None:
        """Say how many of these are left out, by the names that their methods had and have."""
        there = Counter((run.spec.method.name, now.method.name) for run in runs if (now := renamed(run.spec)))
        told = [
            f"{number} {'run' if number == 1 else 'runs'} of the method that was named {old!r} and is {new!r} now"
            for (old, new), number in sorted(there.items())
        ]
        if told:
            command = f"pflbench upgrade --results {shlex.quote(str(self.root))}"
            say = f"In {str(self.root)!r} there are {' and '.join(told)}, which are left out: run `{command}`."
            warnings.warn(say, OutdatedRuns, stacklevel=3)


def renamed(spec: RunSpec) -> RunSpec | None:
    """The run under its method's name of today; None if that is the name it has. Else no table takes it."""
    name = renames.method_now(spec.method.name, spec.method.hyper)
    if name is None:
        return None
    return spec.model_copy(update={"method": spec.method.model_copy(update={"name": name})})


def _goes_before(packed: Stored, other: Stored | None) -> bool:
    return other is None or (other.failure is not None and packed.failure is None)
