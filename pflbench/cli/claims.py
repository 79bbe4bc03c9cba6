"""`pflbench claims`: which of the papers' claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pflbench.cli import common, options
from pflbench.cli.options import option


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
    format_: Annotated[
        str | None,
        option("--format", help="terminal, markdown, or csv (a line per claim). Default: by the suffix of -o."),
    ] = None,
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Decide the papers' claims from stored runs, under each paper's protocol and on equal terms.

    A claim compares a row with rivals, seed by seed, after three and after five seeds. It holds if every comparison
    shows the claimed sign. It does not hold if one shows the opposite sign, or without the claimed one a difference of
    less than half of the printed gap. Else it is undecided.
    """
    from pflbench.report.claim_list import FORMATS, text
    from pflbench.report.claims import judged
    from pflbench.report.reading import readable
    from pflbench.store.shown import ShownStore

    format = common.format_of(format_, output, FORMATS)
    store = ShownStore(results)
    own = readable(store, data_dir)
    found = judged(which or [], store, own, profile)
    detailed = full or any(one not in found and not one.endswith(".toml") for one in which or [])
    common.put(text(found, format, full=detailed), output)
    return 0
