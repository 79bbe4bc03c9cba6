"""Find, read and write runs. A crash leaves nothing or a whole file; a broken file is set aside and named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import files, outdated
from pflbench.store.footers import Footer, Footers, read_footer
from pflbench.store.header import Foreign, Unfit, header
from pflbench.store.pack_folder import Packs
from pflbench.store.packfile import Pack

_PROBE = bytes(64 * 1024)


class MissingRun(StoreError):
    """The store has no readable run of this id."""


class Stored(NamedTuple):
    """A run in the store, as its file's metadata describes it. `rows` is how many scores and metrics it has."""

    spec: RunSpec
    provenance: dict[str, Any]
    failure: str | None
    path: Path
    rows: int

    @property
    def ids(self) -> tuple[str, ...]:
        """The run's id, and those that it had before `pflbench upgrade`."""
        former = self.provenance.get("former_ids")
        return (self.spec.id, *former.split(",")) if former else (self.spec.id,)


StoredRuns = list[Stored]


class Store:
    """The runs under a results folder: `<root>/runs/<id>.parquet` each, or many in `<root>/packs/*.parquet`.

    A run in a file of its own goes before a packed one, but a finished run before a failed one. Creates nothing
    before a write. `packed`: whether packs are looked into; else only runs in files of their own are there.
    """

    def __init__(self, root: Path, packed: bool = True) -> None:
        self.root = Path(root)
        self.runs = self.root / "runs"
        self._footers = Footers(self.root)
        self.packs = Packs(self.root / "packs", self._footers, seen=packed)

    def path(self, id: str) -> Path:
        """Where a run of this id is written; it may be packed later."""
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
        files.check_place(self.path(id), lambda path: _described(path, read_footer(path)))

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
        from pflbench.store import singlefile

        self.check_place(result.spec.id)
        singlefile.write(path, result)
        files.clean(self.runs)
        return path

    def find(self, id: str) -> Stored | None:
        """The run as its metadata describes it; None if there is none that can be read."""
        single = self._inspect(self.path(id))  # first: what is being packed leaves its file once the pack is there
        if single is not None and single.failure is None:
            return single
        pack = self.packs.find(id)
        packed = None if pack is None else _in(pack, id)
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

    def list(self) -> StoredRuns:
        """Every readable run whose method still has the name it had then, sorted by id; warns of the others."""
        every = self._all()
        outdated.warn((run.spec for run in every), self.root)
        return [run for run in every if outdated.renamed(run.spec) is None]

    def _all(self) -> StoredRuns:
        found = self.singles()
        for pack in self.packs.all():
            for id in pack.entries:
                packed = _in(pack, id)
                if _goes_before(packed, found.get(id)):
                    found[id] = packed
        self._footers.keep()
        return [found[id] for id in sorted(found)]

    def singles(self) -> dict[str, Stored]:
        """Every readable run that has a file of its own, by id."""
        paths = files.parquet_files(self.runs)
        return {path.stem: stored for path in paths if (stored := self._inspect(path)) is not None}

    def read_single(self, id: str) -> RunResult | None:
        """The run from a file of its own; None if it has none that can be read. Raises `StoreError`."""
        from pflbench.store import singlefile

        path = self.path(id)
        try:
            return singlefile.read(path)
        except FileNotFoundError:
            return None
        except (Unfit, OSError) as error:
            files.set_aside(path, "run", files.damage(path, error))
            return None

    def _read(self, stored: Stored) -> RunResult | None:
        id = stored.spec.id
        if stored.path == self.path(id):
            return self.read_single(id)
        pack = self.packs.known(stored.path) or self.packs.find(id)
        return None if pack is None else self.packs.read(pack, id)

    def _inspect(self, path: Path) -> Stored | None:
        try:
            return self._footers.describe(path, lambda footer: _described(path, footer)) if path.is_file() else None
        except FileNotFoundError:
            return None
        except Foreign as error:
            files.leave_out(f"{str(path)!r} is", str(error), error.advice)
            return None
        except (Unfit, OSError) as error:
            files.set_aside(path, "run", files.damage(path, error))
            return None


def _described(path: Path, footer: Footer) -> Stored:
    """The run of a file as its metadata describes it. Raises `Unfit`."""
    head = header(footer.metadata)
    if head.spec.id != path.stem:
        advice = f"If that is a mistake, rename it to '{head.spec.id}.parquet'."
        raise Foreign(f"run {head.spec.id}, which is not its name", advice)
    return Stored(*head, path, sum(footer.groups))


def _in(pack: Pack, id: str) -> Stored:
    entry = pack.entries[id]
    return Stored(*entry.header, pack.path, entry.rows)


def _goes_before(packed: Stored, other: Stored | None) -> bool:
    return other is None or (other.failure is not None and packed.failure is None)
