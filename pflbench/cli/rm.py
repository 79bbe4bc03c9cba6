"""`pflbench rm`: remove stored runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.asking import WANTED, asking
from pflbench.cli.common import console
from pflbench.errors import UsageError
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.selection import Wanted


@asking(wanted=WANTED)
def rm(
    wanted: Wanted,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings.")] = None,
    yes: Annotated[bool, common.option("--yes", "-y", help="Do not ask.")] = False,
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Remove stored runs, by their ids or by what they are, wherever they lie; those in packs too. Asks before.

    With --suite: the runs of its tables, also those of your own methods. `pflbench ls runs` with the same options lists
    what would be removed.
    """
    from pflbench.reading.runs import lines
    from pflbench.reading.stored import to_remove
    from pflbench.store import Store
    from pflbench.store.removal import remove

    store = Store(results)
    found = to_remove(store, runs or (), wanted)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{count(len(found), 'run')} would be removed: say so with --yes.")
        common.show_runs(lines(found, store))
        if not typer.confirm(f"Remove {count(len(found), 'run')} from {str(results)!r}?"):
            console().print("Nothing was removed.")
            return 1
    for path, ids, rest in remove(store, {run.spec.id for run in found}):
        kept = f"; its other runs are in {str(rest)!r} now" if rest else ""
        console().print(f"Removed: {', '.join(ids)} from {str(path)!r}{kept}.")
    return 0
