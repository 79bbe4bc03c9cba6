"""Stored runs that a table does not show because a user's code or data changed since they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pflbench.report.text import grouped
from pflbench.spec import RunSpec

_BARE = {"version": None, "content": None}


class _Part(NamedTuple):
    """A dataset, partition or network: its name, and, of a user's, the hashes of its code and of what it reads."""

    name: str
    version: str | None
    content: str | None


def outdated(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> list[str]:
    """A sentence for each set of networks, datasets and partitions of which stored runs have another version.

    Versions of methods stand in rows of their own, so they do not count. Each run counts once.

    Args:
        asked: The runs of a table.
        stored: Finished runs.
    """
    return [f"Not shown: {count} stored run(s) made {how}." for how, count in _counted(asked, stored)]


def instead(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> str:
    """The same as one clause, for an error message; empty without such runs."""
    told: list[str] = []
    for how, count in _counted(asked, stored):
        were = "" if told else " stored run was made" if count == 1 else " stored runs were made"
        told.append(f"{count}{were} {how}")
    return ", ".join(told)


def _counted(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Iterable[tuple[str, int]]:
    """How stored runs that differ from those asked for in hashes alone were made, and how many of them."""
    return Counter(f"with another version of {what}" for _, what in apart(asked, stored) if what).items()


def apart(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Iterator[tuple[RunSpec, str]]:
    """Each stored run that differs from those asked for in hashes alone, with what has another version there.

    That is compared within a seed: what a seeded partition deals has another hash for each. Of a seed that is not asked
    for, what is read counts only if it is not made from the seed; where nothing counts, the text is empty.
    """
    named = grouped((_bare(run), run) for run in asked if any(part.version for part in _parts(run)))
    settings = {run.setting() for several in named.values() for run in several}
    candidates = ((_bare(run), run) for run in stored if not run.validation) if named else ()
    for bare, runs in grouped((bare, run) for bare, run in candidates if bare in named).items():
        seeds = grouped((part, run.seed) for run in (*named[bare], *runs) for part in _parts(run))
        seedless = {part[:2] for part, several in seeds.items() if len(several) > 1}
        yield from ((run, _others(run, named[bare], seedless)) for run in runs if run.setting() not in settings)


def _others(run: RunSpec, asked: Sequence[RunSpec], seedless: set[tuple[str, str | None]]) -> str:
    """What a run has another version of than those asked for; `seedless`: what reads the same with every seed."""
    same = [other for other in asked if other.seed == run.seed]
    pairs = list(zip(_parts(run), _parts((same or asked)[0]), strict=True))
    code = [old.name for old, new in pairs if old.version != new.version]
    data = [old.name for old, new in pairs if old.content != new.content and (same or old[:2] in seedless)]
    return " and ".join([*code, *(f"what is read by {name}" for name in data)])


def _parts(run: RunSpec) -> tuple[_Part, _Part, _Part]:
    return (
        _Part(run.dataset.name, run.dataset.version, run.dataset.content),
        _Part(run.partition.name, run.partition.version, run.partition.content),
        _Part(run.model, run.model_version, None),
    )


def _bare(run: RunSpec) -> str:
    """The run's setting without these hashes."""
    update: dict[str, Any] = {
        "dataset": run.dataset.model_copy(update=_BARE),
        "partition": run.partition.model_copy(update=_BARE),
        "model_version": None,
    }
    return run.model_copy(update=update).setting()
