"""Leases on runs, by which several processes share the work of one results folder.

A lease is the file `claims/RUN.claim`, a `filelock.SoftFileLease`: its holder touches it every few seconds. Others take
it once the holder's process has ended, if that can be known from here, or once the file stood unchanged for two minutes
by their own clock.

A lease saves work and guards nothing: results are whole without it, and the loser of a lease keeps what is stored.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from pflbench.errors import StoreError
from pflbench.store.files import error_text

TRIES = 3
"""Attempts to take a lease: one may only remove that of a dead process, or meet a folder that is just removed."""


class Pace(NamedTuple):
    """Intervals in seconds.

    Attributes:
        beat: Between two signs of life.
        patience: Silence after which a holder counts as dead; the same for all who share a folder.
        poll: Between two tries to take a lease where all are taken.
    """

    beat: float = 5.0
    patience: float = 120.0
    poll: float = 2.0


class Leases:
    """Leases of this process on runs of a results folder. A context manager that gives them back at its end."""

    def __init__(self, results: Path, pace: Pace | None = None) -> None:
        self.folder, self.pace = results / "claims", pace or PACE
        self._leases: dict[str, SoftFileLease] = {}
        """By run. Kept between two tries, as each remembers when the file changed last."""
        self._unread: dict[str, float] = {}
        """By run, when its lease had no owner that can be read for the first time."""

    def __enter__(self) -> Leases:
        """Return these leases."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()

    def close(self) -> None:
        """Give all leases back, and remove those of dead holders, also on runs that are stored."""
        self.release(tuple(self._leases))
        for path in self.folder.glob("*.claim"):
            with suppress(OSError):
                if self._take(path.stem):
                    self.release([path.stem])
        with suppress(OSError):
            self.folder.rmdir()  # fails while another process needs it: it is not empty

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """Take leases on all these runs or on none; `partly`: on those that are free. Return the ids taken.

        Raises `StoreError`.
        """
        taken: list[str] = []
        try:
            for id in ids:
                if self._take(id):
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
        for id in ids:
            if (lease := self._leases.get(id)) is not None and lease.is_locked:
                with suppress(OSError):
                    lease.release()

    def holders(self, ids: Collection[str]) -> list[str]:
        """Return the holders of leases on these runs, in words."""
        owners = [self._lease(id).owner for id in ids]
        texts = [f"process {one.pid} on {one.hostname.partition('?')[0]}" for one in owners if one is not None]
        return list(dict.fromkeys(texts))

    def _lease(self, id: str) -> SoftFileLease:
        if id not in self._leases:
            self._leases[id] = SoftFileLease(
                self.folder / f"{id}.claim",
                lease_duration=self.pace.patience,
                heartbeat_interval=self.pace.beat,
                blocking=False,
                thread_local=False,
            )
        return self._leases[id]

    def _take(self, id: str) -> bool:
        lease = self._lease(id)
        if lease.is_locked and lease.compromise is None:
            return True
        self.release([id])
        for _ in range(TRIES):
            try:
                lease.acquire()
                _flush(Path(lease.lock_file))
                return True
            except (Timeout, LeaseSettingsMismatch):
                continue
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.ENOENT):
                    raise
        self._remove_unread(id, lease)
        return False

    def _remove_unread(self, id: str, lease: SoftFileLease) -> None:
        """Remove a lease that names no owner for too long: `filelock` never takes an empty one.

        Raises `OSError`.
        """
        if lease.owner is not None:
            self._unread.pop(id, None)
        elif time.monotonic() - self._unread.setdefault(id, time.monotonic()) > self.pace.patience:
            Path(lease.lock_file).unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have a network's file server keep the content: others remove a lease that stays empty for two seconds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


PACE = Pace()
