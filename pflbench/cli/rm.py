"""`pflbench rm`: remove stored runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.errors import UsageError


def rm(
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings.")] = None,
    suite: common.Suites = None,
    method: common.Methods = None,
    dataset: common.Datasets = None,
    clients: common.Clients = None,
    partition: common.Partitions = None,
    column: common.Columns = None,
    seeds: common.Seeds = None,
    profile: common.AnyProfile = None,
    rounds: common.Rounds = None,
    precision: common.AnyPrecision = None,
    failed: common.Failed = None,
    trials: common.Trials = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", envvar="PFLBENCH_YES", help="Do not ask.")] = False,
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Remove stored runs, by their ids or by what they are, wherever they lie; those in packs too. Asks before.

    With --suite: the runs of its tables, also those of your own methods. `pflbench ls runs` with the same options lists
    what would be removed.
    """
    from pflbench.reading.runs import listed
    from pflbench.reading.selection import named, select
    from pflbench.store import Store
    from pflbench.store.removal import remove

    wanted = common.wanted(
        suites=suite,
        methods=method,
        datasets=dataset,
        columns=column,
        partitions=partition,
        clients=clients,
        seeds=seeds,
        profile=profile,
        rounds=rounds,
        precision=precision,
        trials=trials,
        failed=failed,
    )
    if runs and not wanted.everything:
        raise UsageError("Name runs by their ids or by options, not both.")
    if not runs and wanted.everything:
        raise UsageError("Which runs? Name them by their ids or by options; for all of them, remove the folder.")
    store = Store(results)
    found = named(store, runs) if runs else [one.run for one in select(store, wanted)]
    if not found:
        raise UsageError(f"No run in {str(results)!r} is what is asked for.")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{common.count(len(found), 'run')} would be removed: say so with --yes.")
        common.show_runs([listed(run, store) for run in found])
        if not typer.confirm(f"Remove {common.count(len(found), 'run')} from {str(results)!r}?"):
            console().print("Nothing was removed.")
            return 1
    for path, ids, rest in remove(store, {run.spec.id for run in found}):
        kept = f"; its other runs are in {str(rest)!r} now" if rest else ""
        console().print(f"Removed: {', '.join(ids)} from {str(path)!r}{kept}.")
    return 0
