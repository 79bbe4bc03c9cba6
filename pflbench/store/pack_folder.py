"""The packs of a results folder: which runs they hold, and what becomes of a broken one."""

from __future__ import annotations

from pathlib import Path

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files, packfile
from pflbench.store.footers import Footer, Footers
from pflbench.store.header import Foreign, Unfit
from pflbench.store.packfile import Pack


class Packs:
    """The packs in a folder. A footer is read once, and again only if its file became another.

    `seen`: whether there are any, for whoever looks.
    """

    def __init__(self, folder: Path, footers: Footers, seen: bool = True) -> None:
        self.folder, self._footers, self.seen = folder, footers, seen
        self._known: dict[Path, Pack] = {}

    def all(self) -> list[Pack]:
        """Every readable pack, by name. A broken one is set aside. Raises `StoreError`."""
        found: list[Pack] = []
        for _ in range(3 if self.seen else 0):
            try:
                found = [pack for path in files.parquet_files(self.folder) if (pack := self._load(path)) is not None]
                break
            except FileNotFoundError:  # it was packed again meanwhile: its runs are in a file that is not on our list
                continue
        self._known = {pack.path: pack for pack in found}
        return found

    def find(self, id: str) -> Pack | None:
        """The pack that holds this run; of several the first, but one where it is finished before where it failed."""
        holding = [pack for pack in self.all() if id in pack.entries]
        finished = [pack for pack in holding if pack.entries[id].header.failure is None]
        return next(iter(finished + holding), None)

    def known(self, path: Path) -> Pack | None:
        """The pack in this file, as it was when packs were last looked through."""
        return self._known.get(path)

    def read(self, pack: Pack, id: str) -> RunResult | None:
        """One of a pack's runs; None if it cannot be read there, or not any more. Raises `StoreError`."""
        try:
            return pack.read(id)
        except FileNotFoundError:
            return None
        except (Unfit, OSError) as error:
            self._rescue(pack, f"run {id}: {files.damage(pack.path, error)}")
            return None

    def _load(self, path: Path) -> Pack | None:
        known = self._known.get(path)
        try:
            if known is not None and files.identity(path.stat()) == known.identity:
                return known
            pack = self._footers.describe(path, lambda footer: _sound(path, footer))
        except FileNotFoundError:
            raise
        except Foreign as error:
            files.leave_out(f"{str(path)!r} is", str(error), error.advice)
            return None
        except (Unfit, OSError) as error:
            files.set_aside(path, "pack", files.damage(path, error))
            return None
        if pack.foreign:
            some = "1 run in {!r} is" if len(pack.foreign) == 1 else f"{len(pack.foreign)} runs in {{!r}} are"
            files.leave_out(some.format(str(path)), str(pack.foreign[0]), pack.foreign[0].advice)
        return self._rescue(pack, pack.unfit[0]) if pack.unfit else pack

    def _rescue(self, pack: Pack, reason: str) -> Pack | None:
        """Write what a damaged pack still holds as another pack, which is returned, and set the damaged one aside."""
        if pack.foreign:
            files.warn(pack.path, "pack", reason, "left as it is, its other runs are read")
            return pack
        readable = [id for id in pack.entries if _is_readable(pack, id)]
        rescued = None
        if readable:
            sources = [pack.entries[id] for id in readable]
            try:
                rescued = packfile.write(self.folder, sources, pack.read)
            except StoreError as error:
                files.warn(pack.path, "pack", reason, f"left as it is, its other runs are read; {error}")
                return pack
            reason += f"; its other {len(readable)} runs are in {rescued.path.name!r} now"
        files.set_aside(pack.path, "pack", reason)
        return rescued


def _sound(path: Path, footer: Footer) -> Pack:
    """The pack with this footer. Raises `Unfit`, also if the footer is remembered and some of it cannot be read."""
    pack = Pack(path, footer)
    if footer.parsed is None and (pack.unfit or pack.foreign):
        raise Unfit("the file itself has to say it")
    return pack


def _is_readable(pack: Pack, id: str) -> bool:
    try:
        pack.read(id)
    except FileNotFoundError:
        return False
    except (Unfit, OSError) as error:
        files.damage(pack.path, error)  # raises if the file cannot be reached at all
        return False
    return True
