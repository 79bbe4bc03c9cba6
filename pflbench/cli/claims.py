"""`pflbench claims`: which of the papers' claims hold."""

from __future__ import annotations

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
    output: options.Output = None,
    results: options.Results = options.DEFAULT_RESULTS,
    data_dir: options.DataDir = None,
) -> int:
    """Decide the papers' claims from stored runs, under each paper's protocol and on equal terms.

    A claim compares a row with rivals, seed by seed, after three and after five seeds. It holds if every comparison
    shows the claimed sign. It does not hold if one shows the opposite sign, or without the claimed one a difference of
    less than half of the printed gap. Else it is undecided.
    """
    from pflbench import api
    from pflbench.report.claim_list import FORMATS, text

    format = common.format_of(output, FORMATS, format_)
    papers = api.claims(*(which or ()), results=results, profile=profile, data_dir=data_dir).content
    detailed = full or any(one not in papers and not one.endswith(".toml") for one in which or [])
    common.put(text(papers, format, full=detailed), output)
    return 0
