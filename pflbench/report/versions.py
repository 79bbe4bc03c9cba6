"""What another version of code or data does to a table: columns that mix versions, and stored runs not shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pflbench.report.provenance import ShownRun
from pflbench.report.text import grouped, ranges
from pflbench.spec import RunSpec
from pflbench.suite.cells import Expansion

_KINDS = ("dataset", "partition", "model")
_BARE = {"version": None, "content": None}
_Shares = Mapping[str, Sequence[tuple[str, int]]]
"""Who has which version of something: by version, rows and seeds."""


def mixtures(table: Expansion, used: Sequence[ShownRun]) -> dict[str, str]:
    """For each column whose runs mix data, or versions of a method, dataset, partition or network: a line saying so.

    What a user's dataset or partition reads may depend on the seed, so its content may differ between seeds. Several
    contents within one seed are a mixture.
    """
    suite_ids = {run.id for cell in table.cells for run in cell.needed}
    lines: dict[str, str] = {}
    for column in table.columns:
        done = [u for u in used if u.column == column.id and u.done]
        alike = _alike(done)
        methods = grouped(
            (u.stored.spec.method.name, alike["method", u.stored.spec.method.version])
            for u in done
            if u.stored.spec.id in suite_ids  # extra rows carry their version in the title
        )
        data = _shares(("DATA", u.data_hash, u) for u in done)
        parts = [f"MIXED DATA in {column.setting}: {_listed(them)}" for them in data.values() if len(them) > 1]
        parts += [
            f"MIXED VERSIONS of {name} in {column.setting}: {', '.join(versions)}"
            for name, versions in methods.items()
            if len(versions) > 1
        ]
        parts += [
            f"MIXED VERSIONS of {what} in {column.setting}: {_listed(shares)}" for what, shares in _own(done, alike)
        ]
        if parts:
            lines[column.id] = f"† {'. '.join(parts)}. These cells cannot be compared."
    return lines


def _alike(done: Sequence[ShownRun]) -> dict[tuple[str, str], str]:
    """By kind and version of code, the first of the versions here that compute the same, see `usercode.Code.digest`."""
    found, first = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for one in done:
        spec, code = one.stored.spec, one.stored.code
        versions = {kind: part.version or "none" for kind, part in zip(_KINDS, _parts(spec), strict=True)}
        for kind, version in {"method": spec.method.version, **versions}.items():
            same = first.setdefault((kind, code[kind]), version) if kind in code else version
            if kind in code or (kind, version) not in found:
                found[kind, version] = same
    return found


def _own(done: Sequence[ShownRun], alike: Mapping[tuple[str, str], str]) -> list[tuple[str, _Shares]]:
    """The datasets, partitions and networks of a user's of which these runs have several, and who has which.

    `alike`: versions of equal code, see `_alike`.
    """
    kinds = [(kind, part, one) for one in done for kind, part in zip(_KINDS, _parts(one.stored.spec), strict=True)]
    parts = [(part, one) for _, part, one in kinds]
    code = _shares((part.name, alike[kind, part.version or "none"], one) for kind, part, one in kinds)
    read = _shares((f"what is read by {part.name}", part.content or "nothing", one) for part, one in parts)
    mixed = [(what, shares) for what, shares in code.items() if len(shares) > 1]
    return mixed + [(what, shares) for what, shares in read.items() if _mixed(shares)]


def _shares(told: Iterable[tuple[str, str, ShownRun]]) -> dict[str, _Shares]:
    """Who has which version of what; `told`: what, the version, and a run that has it."""
    found = grouped((what, (version, (one.row, one.stored.spec.seed))) for what, version, one in told)
    return {what: grouped(versions) for what, versions in found.items()}


def _mixed(shares: _Shares) -> bool:
    """Whether some seed has several contents, or seeds share some contents but not all."""
    seeds = [{seed for _, seed in places} for places in shares.values()]
    return len(shares) > 1 and (any(len(several) > 1 for several in seeds) or len(set().union(*seeds)) < len(seeds))


def _listed(shares: _Shares) -> str:
    return "; ".join(
        f"{version[:12]} in {', '.join(f'{row} (seeds {ranges(seeds)})' for row, seeds in grouped(places).items())}"
        for version, places in shares.items()
    )


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
    known: dict[str, str] = {}
    named = grouped(
        (_bare(run, known), run) for run in asked if any(part.version or part.content for part in _parts(run))
    )
    settings = {run.setting() for several in named.values() for run in several}
    candidates = ((_bare(run, known), run) for run in stored if not run.validation) if named else ()
    for bare, runs in grouped((bare, run) for bare, run in candidates if bare in named).items():
        seedless = _seedless([*named[bare], *runs])
        yield from ((run, _others(run, named[bare], seedless)) for run in runs if run.setting() not in settings)


def _seedless(runs: Iterable[RunSpec]) -> set[tuple[str, str | None]]:
    """Names and versions of what several seeds read alike, so that it is not made from the seed."""
    seeds = grouped((part, run.seed) for run in runs for part in _parts(run))
    return {part[:2] for part, several in seeds.items() if len(several) > 1}


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


def _bare(run: RunSpec, known: dict[str, str]) -> str:
    """The run's setting without these hashes. `known`: those of other runs, by their setting."""
    setting = run.setting()
    if setting not in known:
        known[setting] = _without_hashes(run).setting()
    return known[setting]


def _without_hashes(run: RunSpec) -> RunSpec:
    update: dict[str, Any] = {
        "dataset": run.dataset.model_copy(update=_BARE),
        "partition": run.partition.model_copy(update=_BARE),
        "model_version": None,
    }
    return run.model_copy(update=update)
