"""Stored runs that a table would show, were the user's own code and data what they were then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pflbench.spec import RunSpec

_BARE = {"version": None, "content": None}


def outdated(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> list[str]:
    """A sentence for each network, dataset and partition that stored runs have in another version than those asked for.

    Versions of methods stand in rows of their own, so they do not count.
    """
    return [
        f"Not shown: {count} stored run(s) made with another version of {what}."
        for what, count in _counted(asked, stored).items()
    ]


def instead(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> str:
    """The same in one clause, for when there is nothing but such runs; empty without any."""
    counted = [(count, f"with another version of {what}") for what, count in _counted(asked, stored).items()]
    if not counted:
        return ""
    (count, how), *others = counted
    were = "1 stored run was" if count == 1 else f"{count} stored runs were"
    return ", ".join([f"{were} made {how}", *(f"{count} {how}" for count, how in others)])


def _counted(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Counter[str]:
    """How many stored runs differ from those asked for by what, and by nothing but versions."""
    asked = [run for run in asked if _parts(run)]
    now = {run.setting() for run in asked}
    named = {_bare(run): run for run in asked}
    found: Counter[str] = Counter()
    for run in stored:
        if named and not run.validation and _parts(run) and run.setting() not in now:
            other = named.get(_bare(run))
            parts = _parts(other) if other else {}
            found.update(
                f"{what}{name}"
                for name, part in _parts(run).items()
                for what in _differing(part, parts.get(name, part))
            )
    return found


def _parts(run: RunSpec) -> dict[str, tuple[str | None, str | None]]:
    """What is the user's own, by name: the hashes of its code and of what it reads."""
    parts = [
        (run.dataset.name, run.dataset.version, run.dataset.content),
        (run.partition.name, run.partition.version, run.partition.content),
        (run.model, run.model_version, None),
    ]
    return {name: (version, content) for name, version, content in parts if version is not None}


def _bare(run: RunSpec) -> str:
    """The run's setting without these hashes."""
    update: dict[str, Any] = {
        "dataset": run.dataset.model_copy(update=_BARE),
        "partition": run.partition.model_copy(update=_BARE),
        "model_version": None,
    }
    return run.model_copy(update=update).setting()


def _differing(old: tuple[str | None, str | None], new: tuple[str | None, str | None]) -> list[str]:
    return [what for what, a, b in zip(("", "what is read by "), old, new, strict=True) if a != b]
