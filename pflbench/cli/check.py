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

    from pflbench import names
    from pflbench.executor.build import construct
    from pflbench.testing import contract

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    failed = 0
    for name, problem in contract(construct(names.locate("methods", method), {})):
        console().print(f"{'ok  ' if problem is None else 'FAIL'} {name}")
        if problem is not None:
            failed += 1
            console().print(f"     {problem}")
    console().print(f"{failed} of the checks failed." if failed else "All checks passed.")
    return 1 if failed else 0
