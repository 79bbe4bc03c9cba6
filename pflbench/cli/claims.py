"""`pflbench claims`: which of the papers' claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pflbench.cli import common, options
from pflbench.cli.options import option
from pflbench.data.root import data_root

if TYPE_CHECKING:
    from pflbench.report.claims import Judged
    from pflbench.store import Store
    from pflbench.suite.user_supplied import UserSupplied


def claims(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            help="Papers (cafeme, fedec, pfedvem, pfllib), ids of claims, or .toml files (default: all papers)."
        ),
    ] = None,
    profile: Annotated[
        str, option("--profile", help="Profile of the runs; one other than paper decides nothing about the paper.")
    ] = "paper",
    full: Annotated[bool, option("--full", help="Add every comparison, and the commands for missing runs.")] = False,
    plan: Annotated[
        bool,
        option("--plan", help="Measure core-hours of missing runs that finished runs do not tell, as `plan` does."),
    ] = False,
    format_: Annotated[
        str | None,
        option("--format", help="terminal, markdown, or csv (a line per claim). Default: by the suffix of -o."),
    ] = None,
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file.")] = None,
    packaged: options.Packaged = True,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Decide the papers' claims from stored runs, under each paper's protocol and on equal terms.

    A claim compares a row with rivals, seed by seed, after three and after five seeds. It holds if every comparison
    shows the claimed sign. It does not hold if one shows the opposite sign, or without the claimed one a difference of
    less than half of the printed gap. Else it is undecided. Trains nothing; --plan trains for seconds what it measures.
    """
    from pflbench.report.claim_list import FORMATS, text
    from pflbench.report.claims import judged
    from pflbench.report.reading import readable
    from pflbench.store.shown import ShownStore

    format = common.format_of(format_, output, FORMATS)
    store = ShownStore(results, packaged=packaged)
    own = readable(store, data_dir)
    found = judged(which or [], store, own, profile)
    if plan:
        found = _measured(found, store, own, profile, data_root(data_dir))
    detailed = full or any(one not in found and not one.endswith(".toml") for one in which or [])
    common.put(text(found, format, full=detailed), output)
    return 0


def _measured(
    found: dict[str, list[Judged]], store: Store, own: UserSupplied, profile: str, root: Path
) -> dict[str, list[Judged]]:
    """The claims with core-hours of their missing runs from stored, measured and newly measured times."""
    from pflbench.report.claims import needed_runs, with_times
    from pflbench.running.planning import missing_times
    from pflbench.suite.expand import expand, labelled
    from pflbench.suite.load import read

    needed = needed_runs(found)
    tables = [labelled(suite, expand(suite, profile=profile)) for suite in (read(name, own) for name in needed)]
    wanted = {run for runs in needed.values() for run in runs}
    seconds, unknown = missing_times(tables, wanted, store, root, lambda event: common.errors().print(f"{event}"))
    for reason in unknown:
        common.errors().print(reason)
    return with_times(found, seconds)
