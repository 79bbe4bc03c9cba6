"""Claims: which run is being trained by whom, so that several processes share the work of one results folder.

A claim is a file in `<results>/claims/`, named by the run, that tells a random token of its owner. Another file of the
owner holds a number that grows every few seconds. Who finds a claim looks at that number: while it changes, the run is
taken; once it did not change for long enough by the watcher's own clock, the claim is renamed, and the run is free.

A claim saves work and guards nothing: results are whole without it, and whoever lost one keeps what is stored.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pflbench.errors import StoreError
from pflbench.store.checked import parsed
from pflbench.store.files import said
from pflbench.store.process import Process, here

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links say of one."""


class Pace(NamedTuple):
    """How often claims are kept and watched, in seconds.

    Attributes:
        beat: Between two signs of life.
        look: Between two looks at the claims of others.
        patience: So long a claim's owner gives no sign of life before it is taken for dead.
        poll: Between two tries to claim something where all is claimed.
        again: Between two tries to read a file that a network does not show yet.
    """

    beat: float = 5.0
    look: float = 15.0
    patience: float = 120.0
    poll: float = 2.0
    again: float = 0.1


class Files:
    """What claims do with files. Tests put another in its place."""

    def create(self, path: Path, content: str) -> None:
        """A new file with this content, whole from its first moment. Raises `FileExistsError` and other `OSError`."""
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(content)
            try:
                os.link(temporary, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                with path.open("x", encoding="utf-8") as file:
                    file.write(content)
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, path: Path) -> str:
        """A file's content. Raises `OSError`."""
        return path.read_text(encoding="utf-8", errors="replace")

    def beat(self, path: Path, number: int) -> None:
        """Write a number into a file, which may be new; on a full disk an old one still changes. Raises `OSError`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.write(descriptor, b"%20d" % number)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name. Raises `OSError`."""
        path.rename(to)

    def remove(self, path: Path) -> None:
        """Remove a file. Raises `OSError`."""
        path.unlink()

    def names(self, folder: Path) -> list[str]:
        """The names in a folder. Raises `OSError`."""
        return [path.name for path in folder.iterdir()]


@dataclass
class _Watched:
    """A claim of another: the last sign of life, since when none came, and when it was last looked at, in seconds."""

    sign: str | None
    looked: float
    silent: float = 0.0


class _Owner(NamedTuple):
    """Who holds a claim: a token, and the process; of a claim that cannot be read its text, and None."""

    token: str
    process: Process | None


class Claims:
    """The claims of this process on runs of a results folder. A context manager: at its end they are given back.

    Args:
        results: The results folder.
        files: What is done with files.
        clock: Seconds that never go back.
        sleep: Waits for so many seconds.
        me: This process.
        pace: How often claims are kept and watched.
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
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        _LIVING.add(self.token)

    def __enter__(self) -> Claims:
        """Keep the claims, and watch those of others, from now on."""
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what is claimed."""
        self.close()

    def close(self) -> None:
        """Give back what is claimed; nothing is left of this process."""
        self._ended.set()
        with self._lock:
            _LIVING.discard(self.token)  # also where its files cannot be removed
            self.release(tuple(self._held))
            self._sweep()
            with contextlib.suppress(OSError):
                self.files.remove(self._beats(self.token))
            with contextlib.suppress(OSError):
                self.folder.rmdir()  # which another process may still need: then it is not empty

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """Claim all these runs, or none; `partly`: as many as nobody else has. Raises `StoreError`.

        Returns:
            Those that are claimed now.
        """
        taken: list[str] = []
        with self._lock:
            try:
                for id in ids:
                    if id in self._held or self._take(id):
                        taken.append(id)
                    elif not partly:
                        self.release(taken)
                        return []
            except OSError as error:
                self.release(taken)
                raise StoreError(
                    f"Cannot note in {str(self.folder)!r} what is being trained: {said(error)}. "
                    "Free it, or choose another folder with --results."
                ) from error
        return taken

    def release(self, ids: Collection[str]) -> None:
        """Give runs back. What was taken over meanwhile stays its taker's."""
        with self._lock:
            for id in ids:
                self._held.discard(id)
                with contextlib.suppress(OSError):
                    there = self._read(self._path(id))
                    if there is not None and _owner(there).token == self.token:
                        self.files.remove(self._path(id))

    def holders(self, ids: Collection[str]) -> list[str]:
        """Who else claims some of these runs, in words."""
        found = dict[str, None]()
        for id in ids:
            with contextlib.suppress(OSError):
                if there := self._read(self._path(id)):
                    owner = _owner(there)
                    found.setdefault(str(owner.process or "another process"))
        return list(found)

    def look(self) -> None:
        """Look at the signs of life of those who hold claims."""
        with self._lock:
            try:
                names = self.files.names(self.folder)
            except OSError:
                return
            tokens = set()
            for name in names:
                if name.endswith(".claim") and name.removesuffix(".claim") not in self._held:
                    with contextlib.suppress(OSError):
                        if (there := self._read(self.folder / name)) is not None:
                            tokens.add(_owner(there).token)
            for token in tokens:
                self._silence(token)
            self._watched = {token: one for token, one in self._watched.items() if token in tokens}

    def beat(self) -> None:
        """Give a sign of life. Raises `OSError`."""
        with self._lock:
            if self._number:  # else nothing was claimed yet
                self._number += 1
                self.files.beat(self._beats(self.token), self._number)

    def _live(self) -> None:
        looked = self.clock()
        while not self._ended.wait(self.pace.beat):
            with self._lock:
                if self._ended.is_set():
                    return
                with contextlib.suppress(OSError):
                    self.beat()
                if self.clock() - looked >= self.pace.look:
                    looked = self.clock()
                    self.look()

    def _take(self, id: str) -> bool:
        """Claim a run. Raises `OSError`."""
        path = self._path(id)
        there = self._read(path)
        if there is not None and _owner(there).token != self.token:
            if not self._dead(_owner(there)) or not self._take_away(path, there):
                return False
            there = None
        if there is None:
            self._create(path)
        # A network may report as failed what it did, or as done what it did not: what is there decides.
        seen = self._read_again(path)
        if seen is None or _owner(seen).token != self.token:
            return False
        self._held.add(id)
        return True

    def _sweep(self) -> None:
        """Take away what the dead left, also on runs that they had stored."""
        with contextlib.suppress(OSError):
            for name in self.files.names(self.folder):
                there = self._read(self.folder / name) if name.endswith(".claim") else None
                if there is not None and self._dead(_owner(there)):
                    self._take_away(self.folder / name, there)

    def _create(self, path: Path) -> None:
        """Write a claim, where none is. Raises `OSError`."""
        content = json.dumps({"token": self.token, "process": self.me.said()})
        for last in (False, False, True):
            try:
                if not self._number:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    self.files.beat(self._beats(self.token), 1)
                    self._number = 1
                self.files.create(path, content)
            except FileExistsError:
                return
            except FileNotFoundError:  # the last other one who ended removed the empty folder
                self._number = 0
                if last:
                    raise
            except OSError as error:
                if error.errno != errno.ESTALE or last:
                    raise
            else:
                return

    def _take_away(self, path: Path, dead: str) -> bool:
        """Rename a dead process's claim to a name of our own: of several takers one finds it. Raises `OSError`."""
        if self._read(path) != dead:
            return False
        aside = path.with_name(f"{path.stem}.{uuid.uuid4().hex}.stale")
        try:
            self.files.rename(path, aside)
        except OSError as error:  # of a network it may be done all the same
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        moved = self._read_again(aside)
        if moved is None:
            return False
        if moved != dead:  # between look and rename another took it over: it is given back
            with contextlib.suppress(FileExistsError):
                self.files.create(path, moved)
        else:
            with contextlib.suppress(OSError):
                self.files.remove(self._beats(_owner(dead).token))
        with contextlib.suppress(OSError):
            self.files.remove(aside)
        return moved == dead

    def _dead(self, owner: _Owner) -> bool:
        if owner.process is not None:
            if owner.process.gone or (owner.process == self.me and owner.token not in _LIVING):
                return True
        # Looked at again: it may have given a sign since the last look.
        return self._silence(owner.token) >= self.pace.patience

    def _silence(self, token: str) -> float:
        """For how many seconds the owner of this token gave no sign while we watched."""
        sign, now = None, self.clock()
        with contextlib.suppress(OSError):
            sign = self._read(self._beats(token))
        before = self._watched.get(token)
        if before is None:
            self._watched[token] = _Watched(sign, now)
            return 0.0
        if sign is not None and sign != before.sign:
            before.sign, before.silent = sign, 0.0
        else:  # a clock that jumps, or a watcher that slept, saw nothing of the time between
            before.silent += max(0.0, min(now - before.looked, 2 * self.pace.look))
        before.looked = now
        return before.silent

    def _read(self, path: Path) -> str | None:
        """A file's content; None if there is none. Raises `OSError`."""
        for last in (False, False, True):
            try:
                return self.files.read(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.ESTALE or last:
                    raise
        return None

    def _read_again(self, path: Path) -> str | None:
        """The same of a file that should be there; a network may show it late."""
        for _ in range(3):
            if (there := self._read(path)) is not None:
                return there
            self.sleep(self.pace.again)
        return self._read(path)

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.claim"

    def _beats(self, token: str) -> Path:
        name = token if token.isalnum() and len(token) == 32 else "none"  # a claim may hold anything
        return self.folder / f"{name}.beat"


PACE = Pace()
_LIVING: set[str] = set()
"""The tokens of this process's claims that are not closed."""


@lru_cache(maxsize=4096)
def _owner(claim: str) -> _Owner:
    """Who wrote this claim."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        content = parsed(claim)
        return _Owner(str(content["token"]), Process.read(content["process"]))
    return _Owner(claim, None)
