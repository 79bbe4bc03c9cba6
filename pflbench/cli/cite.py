"""`pflbench cite`: what to cite for a table."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli import common, options


def cite(
    suite: Annotated[str, typer.Argument(help="A suite's name, or a .toml file.")],
    output: options.Output = None,
) -> int:
    """Print the references of a suite's paper, of its methods and datasets, and of pflbench itself, as BibTeX.

    A comment names what has no reference that we know of.
    """
    from pflbench import api

    common.put(api.cite(suite), output)
    return 0
