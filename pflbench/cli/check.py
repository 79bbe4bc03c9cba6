"""`pflbench check`: does a method keep the contract?"""

from __future__ import annotations

from typing import Annotated

import typer

from pflbench.cli.common import console


def check(
    method: Annotated[str, typer.Argument(help="A method's id, path/to/file.py:Class, or module:Class.")],
) -> int:
    """Run the public contract on a method: purity, masks, loop = vectorized, seeds alone = together, and more."""
    import torch

    from pflbench import names, trust
    from pflbench.catalog import describe
    from pflbench.methods.fedbn import FedBN
    from pflbench.running.build import construct
    from pflbench.spec import BATCH_NORM
    from pflbench.testing import CHECKS, examine

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    said: dict[str, str] = {}
    findings = []
    reference = names.locate("methods", method)
    trust.grant(reference)
    describe(method)  # refuses what no run could take
    made = construct(reference, {})
    for finding in examine(made):
        findings.append(finding)
        texts = [*finding.remarks, *([finding.problem] if finding.problem else [])]
        for i, text in enumerate(texts):
            if (same := said.setdefault(text, finding.check)) != finding.check:
                texts[i] = f"as above, at {same!r}"
        console().print(str(finding._replace(remarks=tuple(texts), problem=finding.problem and "")))
    if isinstance(made, FedBN):
        console().print(BATCH_NORM, highlight=False)
    failed, left = sum(finding.problem is not None for finding in findings), len(CHECKS) - len(findings)
    rest = f" The other {left} rest on it and were not run." if left else ""
    console().print(f"{failed} of the checks failed.{rest}" if failed else "All checks passed.", highlight=False)
    return 1 if failed else 0
