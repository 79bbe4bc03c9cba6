"""`pflbench check`: run the contract on a method."""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli.common import console
from pflbench.cli.options import option


def check(
    method: Annotated[str, typer.Argument(help="A method's id, path/to/file.py:Class, or module:Class.")],
    model: Annotated[str | None, option("--model", help="Network to train, called with ((1, 8, 8), 3).")] = None,
) -> int:
    """Run the eight checks of the contract on a method: looped = stacked, purity, stages, and more."""
    import torch

    from pflbench import names, trust
    from pflbench.running.build import construct, named_network
    from pflbench.testing import CHECKS, CLASSES, SHAPE, contract

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    reference = names.locate("methods", method)
    trust.grant(reference)
    network = None
    if model is not None:
        trust.grant(located := names.locate("models", model))
        network = named_network(located, SHAPE, CLASSES)
    findings = []
    for finding in contract(construct(reference, {}), network):
        findings.append(finding)
        console().print(str(finding), highlight=False)
    failed, skipped = sum(finding.problem is not None for finding in findings), len(CHECKS) - len(findings)
    rest = f" The other {skipped} need it and were not run." if skipped else ""
    console().print(f"{failed} of the checks failed.{rest}" if failed else "All checks passed.", highlight=False)
    return 1 if failed else 0
