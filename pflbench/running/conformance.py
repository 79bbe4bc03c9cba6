"""A user's method is held against the contract before it trains, in a process of its own; what passed is remembered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pflbench import names, trust
from pflbench.data.root import cache_folder, read_json, write_json
from pflbench.errors import PflbenchError, UsageError
from pflbench.package import __version__
from pflbench.running import build
from pflbench.running.process import cause_of_death, serving
from pflbench.spec import MethodSpec
from pflbench.testing import CHECKS, Finding, contract

LEARNS = "it learns"
"""The one check that only warns, since a good method need not lower the loss on tiny data."""


@dataclass(frozen=True)
class Conformance:
    """Remarks on a method that keeps the contract, and a warning if it did not learn."""

    remarks: tuple[str, ...] = ()
    warning: str = ""


class _Subject(NamedTuple):
    """A user's method as runs have it: `version` is what its code comes to."""

    reference: str
    version: str
    hyper: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """File of the verdict on it, for this pflbench and torch."""
        known = [self.reference.rpartition(":")[2], self.version, dict(self.hyper), __version__]
        text = json.dumps([*known, version("torch")], sort_keys=True)
        return cache_folder() / "checks" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def hold(
    methods: Iterable[tuple[MethodSpec, str]], on_start: Callable[[str], None] | None = None
) -> Iterator[tuple[str, Conformance]]:
    """Hold every user's method among these, each with its reference, against the contract, once.

    Yields each one's name with the verdict. `on_start` hears the name of one that is not remembered, since its checks
    take seconds. Built-in methods are left out: pflbench's own tests check them.

    Raises:
        UsageError: One of them breaks the contract; the message says how.
    """
    done: set[Path] = set()
    for method, reference in methods:
        if not names.is_users(reference):
            continue
        subject = _Subject(reference, names.code(reference).version, method.hyper)
        if subject.file in done:
            continue
        done.add(subject.file)
        if (verdict := _remembered(subject)) is None:
            if on_start:
                on_start(method.name)
            verdict = _judged(subject, list(_examined(subject)))
            with contextlib.suppress(OSError):  # a cache that cannot be written costs time only
                write_json(subject.file, asdict(verdict))
        yield method.name, verdict


def _judged(subject: _Subject, findings: list[Finding]) -> Conformance:
    problems = {finding.check: finding.problem for finding in findings if finding.problem is not None}
    warning = problems.pop(LEARNS, "") or ""
    if problems:
        check, problem = next(iter(problems.items()))
        more = f" And {len(problems) - 1} more of its checks." if len(problems) > 1 else ""
        raise UsageError(
            f"{subject.reference} breaks the contract of methods, so it is not trained: {problem.rstrip('.')} "
            f"(check {check!r}).{more} `pflbench check {subject.reference}` shows all; "
            "--unchecked trains it nevertheless, and says so in every report."
        )
    return Conformance(tuple(finding.remark for finding in findings if finding.remark and finding.applies), warning)


def _examined(subject: _Subject) -> Iterator[Finding]:
    """Findings of the checks, made in a subprocess: user code may end it, print, or leave threads."""
    with serving(_serve, subject) as (pipe, process):
        for check in CHECKS:
            try:
                found = pipe.recv()
            except (EOFError, OSError):
                process.join()
                yield Finding(check, cause_of_death(process.exitcode or 0))
                return
            if found is None:
                return
            if isinstance(found, PflbenchError):
                raise found
            yield found


def _serve(pipe: Connection, subject: _Subject) -> None:
    """The worker: findings one by one, None at the end, or what kept the method from being made."""
    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    warnings.simplefilter("ignore")  # what it warns of is heard when it trains
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
    trust.grant(subject.reference)
    try:
        for finding in contract(build.construct(subject.reference, subject.hyper, subject.version)):
            pipe.send(finding)
    except PflbenchError as error:
        pipe.send(error)
    else:
        pipe.send(None)


def _remembered(subject: _Subject) -> Conformance | None:
    """The verdict of an earlier time; None if there is none that can be read."""
    try:
        known = read_json(subject.file)
        return Conformance(tuple(known["remarks"]), known["warning"])
    except (KeyError, TypeError):
        return None
