"""Stored runs whose method has another name today: no table takes them until `pflbench upgrade` renamed them."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pflbench import renames
from pflbench.spec import RunSpec


class OutdatedRuns(UserWarning):
    """Some stored runs bear names that their methods have no more; the message says which and what to do."""


def renamed(spec: RunSpec) -> RunSpec | None:
    """The run under its method's name of today; None if that is the name it has."""
    name = renames.method_now(spec.method.name, spec.method.hyper)
    if name is None:
        return None
    return spec.model_copy(update={"method": spec.method.model_copy(update={"name": name})})


def warn(runs: Iterable[RunSpec], root: Path) -> None:
    """Say how many of these runs of `root` are left out, by the names that their methods had and have."""
    found: Counter[tuple[str, str]] = Counter()
    for spec in runs:
        if (now := renamed(spec)) is not None:
            found[spec.method.name, now.method.name] += 1
    told = [
        f"{number} {'run' if number == 1 else 'runs'} of the method that was named {old!r} and is {new!r} now"
        for (old, new), number in sorted(found.items())
    ]
    if told:
        say = f"In {str(root)!r} there are {' and '.join(told)}, which are left out: run `{upgrade_command(root)}`."
        warnings.warn(say, OutdatedRuns, stacklevel=3)


def upgrade_command(root: Path) -> str:
    """What to type to bring a results folder up to date."""
    return f"pflbench upgrade --results {shlex.quote(str(root))}"
