"""`pflbench cite`: what to cite for a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pflbench.cli import common
from pflbench.cli.options import option


def cite(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    output: Annotated[Path | None, option("--output", "-o", help="Write to this file instead.")] = None,
) -> int:
    """Print the references of a suite's paper, of its methods and datasets, and of pflbench itself, as BibTeX.

    A comment names what has no reference that we know of.
    """
    from pflbench.report.citing import cited

    common.put(cited(suite), output)
    return 0
