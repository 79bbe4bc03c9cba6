"""`pflbench check`: run the contract on a method."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli.common import console


def check(
    method: Annotated[str, typer.Argument(help="A method's id, path/to/file.py:Class, or module:Class.")],
) -> int:
    """Run the eight checks of the contract on a method: looped = stacked, purity, stages, and more."""
    import torch

    from pflbench import names, trust
    from pflbench.running.build import construct
    from pflbench.testing import CHECKS, contract

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    reference = names.locate("methods", method)
    trust.grant(reference)
    findings = []
    for finding in contract(construct(reference, {})):
        findings.append(finding)
        console().print(str(finding), highlight=False)
    failed, skipped = sum(finding.problem is not None for finding in findings), len(CHECKS) - len(findings)
    rest = f" The other {skipped} need it and were not run." if skipped else ""
    console().print(f"{failed} of the checks failed.{rest}" if failed else "All checks passed.", highlight=False)
    return 1 if failed else 0
