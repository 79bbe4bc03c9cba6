"""`pflbench status`: how far the suites are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pflbench.cli import common
from pflbench.cli.asking import asking

if TYPE_CHECKING:
    from pflbench.selection import Selection
    from pflbench.store import Stored
    from pflbench.store.asked import Askers
    from pflbench.suite.cells import Expansion
    from pflbench.suite.own import Own


@asking(("suite", "rounds", "precision"))
def status(
    selection: Selection,
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
) -> int:
    """Say for every suite and profile with results how many runs are done, failed or missing, and why runs failed."""
    from pflbench.reading.tables import elsewhere, every_profile, with_results
    from pflbench.report.reading import readable
    from pflbench.store import Store
    from pflbench.store.asked import askers

    store = Store(results)
    stored, asked = {run.spec.id: run for run in store.list()}, askers(store)
    own = readable(store, data_dir)
    tables = with_results(selection, store, own)
    named = {run.id for table in tables for run in table.runs}
    for table in tables:
        _say(table, stored, [id for id in stored if id not in named and _beside(table, stored[id], asked)], own)
    tables = tables or every_profile(selection, store, own)
    other = elsewhere(tables, store)
    if not stored:
        print(f"No results in {str(results)!r} yet.")
    elif other:
        print(other)
    return 0


def _beside(table: Expansion, run: Stored, asked: Askers) -> bool:
    """Whether a suite asked for a run, or may have: nobody knows who did of runs from before that was recorded."""
    if run.spec.id in asked:
        return (table.suite, table.profile) in asked[run.spec.id]
    return run.spec.setting() in table.settings


def _say(table: Expansion, stored: dict[str, Stored], beside: list[str], found: Own) -> None:
    """A table's own runs, then those that no table names: own methods, other hyperparameters, other seeds."""
    from pflbench.suite.labels import labelled
    from pflbench.suite.load import read

    own = [run.id for run in table.runs]
    failed = any(stored[id].failure is not None for id in own if id in stored)
    suite = read(str(table.path), found) if failed else None
    labels = labelled(suite, table).labels if suite else {}
    print(f"{table.suite} [{table.profile}]: {_count(own, stored)}")
    if beside:
        print(f"  beside the suite's rows: {_count(beside, stored)}")
    for id in [*own, *beside]:
        run = stored.get(id)
        if run is not None and run.failure is not None:
            print(f"  failed {id} {labels.get(id, run.spec.method.name)} seed {run.spec.seed}: {run.failure}")


def _count(ids: list[str], stored: dict[str, Stored]) -> str:
    states = Counter("missing" if id not in stored else "failed" if stored[id].failure else "done" for id in ids)
    return ", ".join(f"{states[state]} {state}" for state in ("done", "failed", "missing"))
