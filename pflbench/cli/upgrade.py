"""`pflbench upgrade`: what older versions stored, as this one would have."""

from __future__ import annotations

from typing import Annotated

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.units import count


def upgrade(
    results: common.Results = common.DEFAULT_RESULTS,
    data_dir: common.DataDir = None,
    dry_run: Annotated[bool, common.option("--dry-run", help="Say what there is to do, and stop.")] = False,
) -> int:
    """Bring a results folder up to date: runs under their methods' names of today, with costs, and with every column.

    The costs of a run's local updates are counted from its federation, where its dataset is here, in seconds to a
    minute for each run; nothing is trained.

    Scores stay as they are, and so do runs that are up to date. The id that a renamed run had stays in its provenance.
    """
    from pflbench.data.root import data_root
    from pflbench.executor.recount import TITLE, lacking, recounting
    from pflbench.store import Store
    from pflbench.store.upgrade import upgrade

    store = Store(results)
    changed = upgrade(store, dry_run=dry_run)
    uncounted = len(lacking(store))
    if uncounted and dry_run:
        changed[f"{TITLE}, as far as they can be counted here"] = uncounted
    elif uncounted:
        console().print(
            f"Counting what clients of {count(uncounted, 'run')} were asked for. Interrupted, the same command "
            "goes on with the next file."
        )
        changed |= upgrade(store, (recounting(data_root(data_dir)),))
    for title, number in changed.items():
        were = "to be" if dry_run else "were" if number > 1 else "was"
        console().print(f"{count(number, 'run')} {were} {title}.")
    if not changed:
        console().print(f"Nothing to upgrade in {str(results)!r}.")
    return 0
