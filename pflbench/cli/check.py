"""`pflbench check`: run the contract on a method."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench import api
from pflbench.cli.common import console
from pflbench.cli.options import option


def check(
    method: Annotated[str, typer.Argument(help="A method's id, path/to/file.py:Class, or module:Class.")],
    model: Annotated[str | None, option("--model", help="Network to train, called with ((1, 8, 8), 3).")] = None,
) -> int:
    """Run the eight checks of the contract on a method: looped = stacked, purity, stages, and more."""
    from pflbench.testing import CHECKS

    findings = api.check(method, model)
    for finding in findings:
        console().print(str(finding))
    failed, skipped = sum(finding.problem is not None for finding in findings), len(CHECKS) - len(findings)
    rest = f" The other {skipped} need it and were not run." if skipped else ""
    console().print(f"{failed} of the checks failed.{rest}" if failed else "All checks passed.")
    return 1 if failed else 0
