"""`pflbench pack`: many runs into few files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common
from pflbench.cli.common import console
from pflbench.errors import UsageError

if TYPE_CHECKING:
    from pflbench.store import Store


def pack(
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings (default: all).")] = None,
    suite: common.Suites = None,
    column: common.Columns = None,
    profile: Annotated[str | None, common.option("--profile", help="With --suite: only this one's.")] = None,
    results: common.Results = common.DEFAULT_RESULTS,
) -> int:
    """Put stored runs into one Parquet file per setting, which every verb reads like single runs.

    Runs of one setting differ by method, seed, and fine-tuning rate only. Packing again merges into what is packed.
    With --suite: the runs of its columns, also those of your own methods.
    """
    from pflbench.reading.stored import named
    from pflbench.store import Store
    from pflbench.store.packing import pack

    if runs and (suite or column or profile):
        raise UsageError("Name the runs to pack, or a --suite and its columns, not both.")
    store = Store(results)
    ids = None
    if runs:
        ids = {run.spec.id for run in named(store, runs)}
    elif suite or column or profile:
        ids = _of_suites(common.required(suite), column, profile, store)
    packed = pack(store, ids)
    common.say_packed(packed)
    if not packed:
        console().print(f"Nothing to pack in {str(results)!r}.")
    return 0


def _of_suites(suites: Sequence[str], columns: list[str] | None, profile: str | None, store: Store) -> set[str]:
    from pflbench.report.reading import readable
    from pflbench.suite.expand import expand
    from pflbench.suite.load import load

    settings: set[str] = set()
    own = readable(store)
    for suite in (load(name, own) for name in suites):
        for one in [profile] if profile else suite.profiles:
            settings |= {run.setting() for run in expand(suite, profile=one, columns=columns).runs}
    return {run.spec.id for run in store.list() if run.spec.setting() in settings}
