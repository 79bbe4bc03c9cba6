"""Stored runs that a table does not show because a user's code or data changed since they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
    return [
        f"Not shown: {count} stored run(s) made with another version of {what}."
        for what, count in _counted(asked, stored).items()
    ]


def instead(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> str:
    """The same as one clause, for an error message; empty without such runs."""
    counted = [(count, f"with another version of {what}") for what, count in _counted(asked, stored).items()]
    if not counted:
        return ""
    (count, how), *others = counted
    were = "1 stored run was" if count == 1 else f"{count} stored runs were"
    return ", ".join([f"{were} made {how}", *(f"{count} {how}" for count, how in others)])


def of_other_seeds(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> list[RunSpec]:
    """Finished runs with other seeds than those asked for, whose dataset or partition may be made from the seed."""
    return [run for run, what in _apart(asked, stored) if not what]


def _counted(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Counter[str]:
    """How many stored runs differ from those asked for in hashes alone, by what has others."""
    return Counter(" and ".join(what) for _, what in _apart(asked, stored) if what)


def _apart(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Iterator[tuple[RunSpec, list[str]]]:
    """Each stored run that differs from those asked for in hashes alone, with what has another version there.

    That is compared within a seed: what a seeded partition deals has another hash for each. Of a seed that is not asked
    for, what is read counts only if it is not made from the seed.
    """
    named: dict[str, list[RunSpec]] = {}
    for run in asked:
        if any(part.version for part in _parts(run)):
            named.setdefault(_bare(run), []).append(run)
    alike: dict[str, list[RunSpec]] = {}
    for run in stored if named else ():
        if not run.validation and (bare := _bare(run)) in named:
            alike.setdefault(bare, []).append(run)
    now = {run.setting() for several in named.values() for run in several}
    for bare, runs in alike.items():
        seedless = _seedless([*named[bare], *runs])
        yield from ((run, _others(run, named[bare], seedless)) for run in runs if run.setting() not in now)


def _others(run: RunSpec, asked: Sequence[RunSpec], seedless: set[tuple[str, str | None]]) -> list[str]:
    """What a run has another version of than those asked for; `seedless`: what reads the same with every seed."""
    same = [other for other in asked if other.seed == run.seed]
    pairs = list(zip(_parts(run), _parts((same or asked)[0]), strict=True))
    code = [old.name for old, new in pairs if old.version != new.version]
    data = [old.name for old, new in pairs if old.content != new.content and (same or old[:2] in seedless)]
    return code + [f"what is read by {name}" for name in data]


def _parts(run: RunSpec) -> tuple[_Part, _Part, _Part]:
    return (
        _Part(run.dataset.name, run.dataset.version, run.dataset.content),
        _Part(run.partition.name, run.partition.version, run.partition.content),
        _Part(run.model, run.model_version, None),
    )


def _seedless(runs: Sequence[RunSpec]) -> set[tuple[str, str | None]]:
    """Names and versions of what several seeds read alike, so that it is not made from the seed."""
    seeds: dict[_Part, set[int]] = {}
    for run in runs:
        for part in _parts(run):
            seeds.setdefault(part, set()).add(run.seed)
    return {part[:2] for part, several in seeds.items() if len(several) > 1}


def _bare(run: RunSpec) -> str:
    """The run's setting without these hashes."""
    update: dict[str, Any] = {
        "dataset": run.dataset.model_copy(update=_BARE),
        "partition": run.partition.model_copy(update=_BARE),
        "model_version": None,
    }
    return run.model_copy(update=update).setting()
