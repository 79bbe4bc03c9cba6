"""`pflbench status`: how far the suites are."""

from __future__ import annotations

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.cli.report import with_results


def status(suite: common.Suites = None, results: common.Results = common.DEFAULT_RESULTS) -> int:
    """Say for every suite and profile with results how many runs are done, failed or missing, and why runs failed."""
    from pflbench.store import Store

    store = Store(results)
    shown = False
    for table in with_results(suite, None, None, None, store):
        states = {spec.id: store.status(spec.id) for spec in table.runs}
        counts = {state: list(states.values()).count(state) for state in ("done", "failed", "missing")}
        name = f"{table.suite} [{table.profile}]"
        console().print(f"{name}: {', '.join(f'{n} {state}' for state, n in counts.items())}")
        for spec in table.runs:
            if states[spec.id] == "failed":
                failure = store.read(spec.id).failure
                console().print(f"  failed {spec.id} {spec.method.name} seed {spec.seed}: {failure}")
        shown = True
    if not shown:
        console().print(f"No results in {str(results)!r} yet.")
    return 0
