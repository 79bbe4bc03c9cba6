"""A user's method is held against the contract before it trains, in a process of its own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection

import torch

from pflbench import trust
from pflbench.errors import PflbenchError, UsageError
from pflbench.running import build
from pflbench.running.process import cause_of_death, serving
from pflbench.spec import MethodSpec
from pflbench.testing import CHECKS, Finding, contract

LEARNS = "it learns"
"""The one check that only warns, since a good method need not lower the loss on tiny data."""


def hold(method: MethodSpec, reference: str) -> tuple[list[str], str]:
    """Hold a user's method against the contract: remarks on it, and a warning if it did not learn.

    Raises:
        UsageError: It breaks the contract; the message says how.
    """
    findings = list(_examined(method, reference))
    problems = {finding.check: finding.problem for finding in findings if finding.problem is not None}
    warning = problems.pop(LEARNS, "")
    for check, problem in problems.items():
        raise UsageError(
            f"{reference} breaks the contract of methods, so it is not trained: {problem.rstrip('.')} "
            f"(check {check!r}). `pflbench check {reference}` shows all; "
            "--unchecked trains it nevertheless, and says so in every report."
        )
    return [finding.remark for finding in findings if finding.remark and finding.applies], warning


def _examined(method: MethodSpec, reference: str) -> Iterator[Finding]:
    """Findings of the checks, made in a subprocess: user code may end it, print, or leave threads."""
    with serving(_serve, method, reference) as (pipe, process):
        for check in CHECKS:
            try:
                finding = pipe.recv()
            except (EOFError, OSError):
                process.join()
                yield Finding(check, cause_of_death(process.exitcode or 0))
                return
            if finding is None:
                return
            if isinstance(finding, PflbenchError):
                raise finding
            yield finding


def _serve(pipe: Connection, method: MethodSpec, reference: str) -> None:
    """The worker: findings one by one, None at the end, or what kept the method from being made."""
    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    warnings.simplefilter("ignore")  # what it warns of is heard when it trains
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    trust.grant(reference)
    try:
        for finding in contract(build.construct(reference, method.hyper, method.version)):
            pipe.send(finding)
    except PflbenchError as error:
        pipe.send(error)
    else:
        pipe.send(None)
