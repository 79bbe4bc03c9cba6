"""Leases on runs, by which several processes share the work of one results folder.

A lease is the file `claims/RUN.claim` with a random token of its holder. The holder's file `claims/TOKEN.beat` has a
number that grows every few seconds. Others watch that number. A lease whose number stood still for too long, by the
watcher's clock, is renamed, and the run is free.

A lease saves work and guards nothing: results are whole without it, and the loser of a lease keeps what is stored.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import StoreError
from pflbench.store.checked import parsed
from pflbench.store.files import error_text
from pflbench.store.process import Process, here

TRIES = 3
"""Tries of an operation on a network's file system that shows old or no files for a moment."""
AGAIN = 0.1
"""Seconds between two of them."""
LOOK = 3
"""Signs of life between two looks at the leases of others."""


class Pace(NamedTuple):
    """Intervals in seconds.

    Attributes:
        beat: Between two signs of life.
        patience: Silence after which a holder counts as dead.
        poll: Between two tries to take a lease where all are taken.
    """

    beat: float = 5.0
    patience: float = 120.0
    poll: float = 2.0

    @property
    def look(self) -> float:
        """Interval between two looks at the leases of others."""
        return LOOK * self.beat


class Files:
    """File operations of leases, each of which raises `OSError`. Tests and simulations replace them."""

    def create(self, path: Path, content: str) -> None:
        """Create a file, unless nothing can be written into it. Raises `FileExistsError` if there is one."""
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                path.unlink()
                raise

    def read(self, path: Path) -> str:
        """Return a file's content."""
        return path.read_text(encoding="utf-8", errors="replace")

    def beat(self, path: Path, number: int) -> None:
        """Write a number into a file, old or new. An old file changes even on a full disk: its length stays."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.write(descriptor, b"%20d" % number)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file."""
        path.rename(to)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return [path.name for path in folder.iterdir()]


class Lease(NamedTuple):
    """Content of a lease, its holder's token and process. The token of unreadable content is the content itself."""

    content: str
    token: str
    process: Process | None

    @classmethod
    def of(cls, content: str) -> Lease:
        """Parse the content of a file, which may be anything."""
        with suppress(ValueError, TypeError, KeyError):
            found = parsed(content)
            return cls(content, str(found["token"]), Process.read(found["process"]))
        return cls(content, content, None)


class Silence(NamedTuple):
    """Last sign of a holder, time of the last look, and seconds without another sign."""

    sign: str | None
    looked: float
    seconds: float = 0.0


class Leases:
    """Leases of this process on runs of a results folder. A context manager that gives them back at its end.

    Args:
        results: The results folder.
        files: File operations.
        clock: Seconds that never go back.
        sleep: Waits for some seconds.
        me: This process.
        pace: Intervals; default `PACE`.
    """

    def __init__(
        self,
        results: Path,
        files: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        me: Process | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.folder, self.files, self.clock, self.sleep = results / "claims", files or Files(), clock, sleep
        self.pace, self.me, self.token = pace or PACE, me or here(), uuid.uuid4().hex
        self._held: set[str] = set()
        self._number = 0
        self._silences: dict[str, Silence] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        _OPEN.add(self.token)

    def __enter__(self) -> Leases:
        """Give signs of life and watch other holders from now on."""
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()

    def close(self) -> None:
        """Give all leases back, and remove those of dead holders, also on runs that are stored."""
        self._ended.set()
        with self._lock:
            _OPEN.discard(self.token)  # also where its files cannot be removed
            self.release(tuple(self._held))
            for path, lease in self._others():
                with suppress(OSError):
                    if self._dead(lease):
                        self._take_away(path, lease)
            with suppress(OSError):
                self.files.remove(self._beat_file(self.token))
            with suppress(OSError):
                self.folder.rmdir()  # fails while another process needs it: it is not empty

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """Take leases on all these runs or on none; `partly`: on those that are free. Return the ids taken.

        Raises `StoreError`.
        """
        taken: list[str] = []
        with self._lock:
            try:
                for id in ids:
                    if id in self._held or self._take_again(id):
                        taken.append(id)
                    elif not partly:
                        self.release(taken)
                        return []
            except OSError as error:
                self.release(taken)
                raise StoreError(
                    f"Cannot note in {str(self.folder)!r} what is being trained: {error_text(error)}. "
                    "Free it, or choose another folder with --results."
                ) from error
        return taken

    def release(self, ids: Collection[str]) -> None:
        """Give leases back; one that another process took over stays."""
        with self._lock:
            for id in ids:
                self._held.discard(id)
                with suppress(OSError):
                    lease = self._read(self._path(id))
                    if lease is not None and lease.token == self.token:
                        self.files.remove(self._path(id))

    def holders(self, ids: Collection[str]) -> list[str]:
        """Return the holders of leases on these runs, in words."""
        found = dict[str, None]()
        for id in ids:
            with suppress(OSError):
                if lease := self._read(self._path(id)):
                    found.setdefault(str(lease.process or "another process"))
        return list(found)

    def look(self) -> None:
        """Look for signs of life of other holders."""
        with self._lock:
            tokens = {lease.token for _, lease in self._others()}
            self._silences = {token: self._silence(token) for token in tokens}

    def beat(self) -> None:
        """Give a sign of life, once a lease was taken. Raises `OSError`."""
        with self._lock:
            if self._number:
                self._number += 1
                self.files.beat(self._beat_file(self.token), self._number)

    def _live(self) -> None:
        for number in itertools.count(1):
            if self._ended.wait(self.pace.beat):
                return
            with self._lock:
                if self._ended.is_set():
                    return
                with suppress(OSError):
                    self.beat()
                if number % LOOK == 0:
                    self.look()

    def _take_again(self, id: str) -> bool:
        """Take a lease; repeated where a file handle is stale or the folder vanished. Raises `OSError`."""
        for _ in range(TRIES):
            try:
                return self._take(id)
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.ENOENT):
                    raise
                self._number, last = 0, error  # the folder may have been removed, with our sign of life in it
        raise last

    def _take(self, id: str) -> bool:
        path = self._path(id)
        there = self._read(path)
        if there is not None and there.token != self.token:
            if not self._dead(there) or not self._take_away(path, there):
                return False
            there = None
        if there is None:
            if not self._number:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._number = 1
                self.beat()
            with suppress(FileExistsError):
                self.files.create(path, json.dumps({"token": self.token, "process": self.me.fields()}))
        # A network may report as failed what it did, or as done what it did not: the file decides.
        lease = self._read(path, late=True)
        if lease is None or lease.token != self.token:
            return False
        self._held.add(id)
        return True

    def _take_away(self, path: Path, dead: Lease) -> bool:
        """Rename a dead holder's lease to a unique name: of several takers one finds it there. Raises `OSError`."""
        if self._read(path) != dead:
            return False
        aside = path.with_name(f"{path.stem}.{uuid.uuid4().hex}.stale")
        try:
            self.files.rename(path, aside)
        except OSError as error:  # a network may have renamed it all the same
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        moved = self._read(aside, late=True)
        if moved is None:
            return False
        if moved != dead:  # another took it over since the look: give it back
            with suppress(FileExistsError):
                self.files.create(path, moved.content)
        for left in [aside] if moved != dead else [self._beat_file(dead.token), aside]:
            with suppress(OSError):
                self.files.remove(left)
        return moved == dead

    def _dead(self, lease: Lease) -> bool:
        if (process := lease.process) is not None:
            if process.gone or (process == self.me and lease.token not in _OPEN):
                return True
        self._silences[lease.token] = silence = self._silence(lease.token)
        return silence.seconds >= self.pace.patience

    def _silence(self, token: str) -> Silence:
        """Look at a holder's sign of life."""
        sign, now = None, self.clock()
        with suppress(OSError):
            sign = self._text(self._beat_file(token))
        before = self._silences.get(token)
        if before is None or (sign is not None and sign != before.sign):
            return Silence(sign, now)
        # A clock that jumps, or a watcher that slept, saw nothing of the time between.
        return Silence(before.sign, now, before.seconds + max(0.0, min(now - before.looked, 2 * self.pace.look)))

    def _others(self) -> list[tuple[Path, Lease]]:
        """The readable leases in the folder that this process does not hold, with their paths."""
        found = []
        with suppress(OSError):
            for path in (self.folder / name for name in self.files.names(self.folder)):
                if path.suffix == ".claim" and path.stem not in self._held:
                    with suppress(OSError):
                        if (lease := self._read(path)) is not None:
                            found.append((path, lease))
        return found

    def _read(self, path: Path, late: bool = False) -> Lease | None:
        """The lease in a file; None if there is none. `late`: one is expected; a network may show it a moment later."""
        for number in range(TRIES + 1 if late else 1):
            if number:
                self.sleep(AGAIN)
            if (text := self._text(path)) is not None:
                return Lease.of(text)
        return None

    def _text(self, path: Path) -> str | None:
        """The content of a file; None if there is none. Raises `OSError`."""
        try:
            return self.files.read(path)
        except FileNotFoundError:
            return None

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.claim"

    def _beat_file(self, token: str) -> Path:
        name = token if token.isalnum() and len(token) == 32 else "none"  # a lease may hold anything
        return self.folder / f"{name}.beat"


PACE = Pace()
_OPEN: set[str] = set()
"""Tokens of this process's leases that are not closed."""
