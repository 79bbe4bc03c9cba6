"""The store's runs, each read at most once: several cells may read one run."""

from __future__ import annotations

from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import MissingRun, Store, Stored


class Shelf:
    """The runs in a store. `stored` shrinks where reading a run shows that its file is damaged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._results: dict[str, RunResult] = {}
        self.stored: dict[str, Stored] = {stored.spec.id: stored for stored in store.list()}

    def read(self, run: RunSpec) -> RunResult | None:
        """The run's result if it is done."""
        if run.id not in self.stored or self.failed(run):
            return None
        if run.id not in self._results:
            try:
                self._results[run.id] = self._store.read(run.id)
            except MissingRun:  # damaged behind its metadata; the store has warned and set it aside
                del self.stored[run.id]
                return None
        return self._results[run.id]

    def failed(self, run: RunSpec) -> bool:
        """Whether the run is there and failed."""
        return run.id in self.stored and self.stored[run.id].failure is not None
