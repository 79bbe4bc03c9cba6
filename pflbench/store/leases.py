"""Leases on runs, by which several processes share the work of one results folder.

A lease is the file `claims/RUN.claim`, a `filelock.SoftFileLease`: its holder touches it every few seconds. Others take
it once the holder's process has ended, if that can be known from here, or once the file stood unchanged for two minutes
by their own clock.

A lease saves work and guards nothing: results are whole without it, and the loser of a lease keeps what is stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from pflbench.store.files import FREE_IT, failing, sync_folder

TRIES = 3
"""Attempts to take a lease: one may only remove that of a dead process, or meet a folder that is just removed."""


class Pace(NamedTuple):
    """Intervals in seconds.

    Attributes:
        beat: Between two signs of life, and at least between two looks at a lease of another process.
        patience: Silence after which a holder counts as dead; the same for all who share a folder.
        poll: Between two tries to take a lease where all are taken.
    """

    beat: float = 5.0
    patience: float = 120.0
    poll: float = 2.0


class Leases(AbstractContextManager["Leases"]):
    """Leases of this process on runs of a results folder. A context manager that gives them back at its end."""

    def __init__(self, results: Path, pace: Pace | None = None) -> None:
        self.folder, self.pace = results / "claims", pace or PACE
        self._leases: dict[str, SoftFileLease] = {}
        """By run. They stay between two looks, as each remembers when its file changed last."""
        self._looks: dict[str, tuple[float, str]] = {}
        """Time of the last look at each lease of another process, and its holder in words; empty if it names none."""

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()

    def close(self) -> None:
        """Give all leases back, and remove those of dead holders, also on runs that are stored."""
        self.release(tuple(self._leases))
        empty = list[Path]()
        for path in self.folder.glob("*.claim"):
            with suppress(OSError):
                if self._take(path.stem):
                    self.release([path.stem])
                elif not path.read_bytes():
                    empty.append(path)
        if empty:  # a process creates its lease and then writes it: one that was killed in between never will
            time.sleep(self.pace.beat)
        for path in empty:
            with suppress(OSError):
                if not path.read_bytes():
                    path.unlink()
        with suppress(OSError):
            self.folder.rmdir()  # fails while another process needs it: it is not empty

    def take(self, ids: Sequence[str], partly: bool = False) -> list[str]:
        """Take leases on all these runs or on none; `partly`: on those that are free. Return the ids taken.

        Raises `StoreError`.
        """
        taken: list[str] = []
        if not partly and any(map(self._was_taken, ids)):
            return taken
        with failing(f"Cannot note in {str(self.folder)!r} what is being trained", FREE_IT):
            try:
                for id in ids:
                    if self._take(id):
                        taken.append(id)
                    elif not partly:
                        self.release(taken)
                        return []
            except OSError:
                self.release(taken)
                raise
        return taken

    def release(self, ids: Collection[str]) -> None:
        """Give leases back; one that another process took over stays."""
        for id in ids:
            if (lease := self._leases.get(id)) is not None and lease.is_locked:
                with suppress(OSError):
                    lease.release()

    def holders(self, ids: Collection[str]) -> list[str]:
        """Return the holders of leases on these runs at the last look, in words."""
        texts = [self._looks[id][1] for id in ids if id in self._looks]
        return list(dict.fromkeys(filter(None, texts)))

    def _was_taken(self, id: str) -> bool:
        """True if another process had the lease at a look that is not a beat old."""
        return id in self._looks and time.monotonic() - self._looks[id][0] < self.pace.beat

    def _take(self, id: str) -> bool:
        if id not in self._leases:
            self._leases[id] = SoftFileLease(
                self.folder / f"{id}.claim",
                lease_duration=self.pace.patience,
                heartbeat_interval=self.pace.beat,
                blocking=False,
                thread_local=False,
            )
        lease = self._leases[id]
        if lease.is_locked and lease.compromise is None:
            return True
        self.release([id])
        if self._was_taken(id):
            return False
        for tries in reversed(range(TRIES)):
            try:
                lease.acquire()
                sync_folder(Path(lease.lock_file))  # others remove a lease that stays empty
                self._looks.pop(id, None)
                return True
            except (Timeout, LeaseSettingsMismatch):
                if os.path.lexists(lease.lock_file):
                    break
            except OSError:
                if not tries:
                    raise
        holder = f"process {owner.pid} on {owner.hostname.partition('?')[0]}" if (owner := lease.owner) else ""
        if not holder and id in self._looks and not self._looks[id][1]:  # `filelock` never takes an empty one
            Path(lease.lock_file).unlink(missing_ok=True)
        self._looks[id] = time.monotonic(), holder
        return False


PACE = Pace()
