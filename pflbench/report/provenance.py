"""The stored runs behind a table: where each stands, and what the footer says of how they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pflbench.package import __version__
from pflbench.report.extra_rows import short_name
from pflbench.report.text import grouped, ranges
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store import Stored
from pflbench.store.shipped import SHORTENED
from pflbench.suite.cells import Cell, Expansion
from pflbench.units import seed_text

_LONGEST = 120
"""Characters that are told of an error."""
GRADIENTS, SECONDS, UP, DOWN = "gradients", "client seconds", "floats uploaded", "floats received"
COSTS = {GRADIENTS: "gradients", SECONDS: "s", UP: "floats up", DOWN: "floats down"}
"""The costs of a round, by name, with their units."""
STORED = {GRADIENTS: "client_gradients", UP: "floats_up", DOWN: "floats_down"}
"""Keys of the costs in a run's provenance, by name."""
COUNTED = (
    "Beside each row what a round costs: gradients that a client which takes part in it is asked for, on average (of "
    "minibatches of the suite's size; a forward pass counts 1/3, a Hessian-vector product 3), seconds of all clients' "
    "training and scoring over the number of rounds, as the runs measured them. Floats up: what the server reads of a "
    "client's upload. Floats down: all of the server's state, even a part that only new clients start from (a head of "
    "which the others have their own)."
)
Costs = Sequence[tuple[str, Mapping[str, float]]]
"""Rows by their titles, once for each column, with what a round costs there by the names of `COSTS`."""


class ShownRun(NamedTuple):
    """A stored run and the place where the table shows it: row by title, the suite's column by id and by title."""

    row: str
    column: str
    setting: str
    stored: Stored

    @property
    def data_hash(self) -> str:
        """Content hash of the data that it was computed on."""
        return str(self.stored.provenance.get("data_hash") or "unknown")

    @property
    def done(self) -> bool:
        """True if it is finished."""
        return self.stored.failure is None


def shown_runs(
    cells: Mapping[tuple[str, str], Cell], titles: Mapping[str, str], stored: Mapping[str, Stored]
) -> list[ShownRun]:
    """Every stored run once for each row and column of the suite that it stands in.

    `cells` by the ids of row and head; `titles` of the rows, by id; `stored` by id.
    """
    found = {
        (row, cell.column.id, run.id): ShownRun(titles[row], cell.column.id, cell.column.setting, stored[run.id])
        for (row, _), cell in cells.items()
        for run in cell.needed
        if run.id in stored
    }
    return list(found.values())


def progress(cells: Iterable[Cell], used: Iterable[ShownRun]) -> str:
    """Number of the suite's runs that are done, and that failed."""
    asked = {run.id for cell in cells for run in cell.needed}
    done = {u.stored.spec.id: u.done for u in used if u.stored.spec.id in asked}
    failed = list(done.values()).count(False)
    return f"Runs of the suite: {len(done) - failed} of {len(asked)} done, {failed} failed." if asked else ""


def failures(used: Iterable[ShownRun]) -> list[str]:
    """One line per distinct error, after the rows, settings and seeds that it ended."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in used:
        if one.stored.failure is not None:
            error = (one.stored.failure.strip().splitlines() or ["no message"])[0]
            shown = error if len(error) <= _LONGEST else f"{error[: _LONGEST - 1]}…"
            found.setdefault(shown, {}).setdefault(f"{one.row} × {one.setting}", []).append(one.stored.spec.seed)
    return [f"Failed: {'; '.join(_with_seeds(*place) for place in places.items())}: {e}" for e, places in found.items()]


def _with_seeds(place: str, seeds: Sequence[int]) -> str:
    return f"{place}, seed{'s' if len(seeds) > 1 else ''} {seed_text(seeds)}"


def environments(done: Sequence[Stored]) -> str:
    """The commits, devices and versions of torch."""

    def told(key: str) -> list[str]:
        return [str(one.provenance.get(key) or "unknown") for one in done]

    dirty = [" (dirty)" if one.provenance.get("dirty") else "" for one in done]
    commits = {commit[:12] + changed for commit, changed in zip(told("commit"), dirty, strict=True)}
    commit, device, torch = (", ".join(sorted(one)) for one in (commits, set(told("device")), set(told("torch"))))
    return f"Commit: {commit}. Device: {device}. torch: {torch}." if done else ""


def shipped(used: Sequence[ShownRun]) -> str:
    """Sentence on the runs that came with pflbench, which were not made here."""
    came = {u.stored.spec.id for u in used if u.stored.shipped}
    if not came:
        return ""
    rows = dict.fromkeys(u.row for u in used if u.stored.spec.id in came)
    of = f" (of {', '.join(rows)})" if any(u.stored.spec.id not in came for u in used) else ""
    shown = len({u.stored.spec.id for u in used})
    thin = {u.stored.spec.id for u in used if u.stored.provenance.get(SHORTENED)}
    late = (
        f" For {len(thin)} of them the package holds the last ten scored rounds alone, so curves and best rounds begin "
        "there; the repository's results/packs holds all rounds."
        if thin
        else ""
    )
    return f"Reference runs that came with pflbench {__version__}: {len(came)} of {shown}{of}.{late}"


def doubtful_runs(table: Expansion, used: Sequence[ShownRun], done: Iterable[Stored]) -> list[str]:
    """Whose method was not held against the contract, and whose numbers were not finite, and went on without them."""
    rows = ", ".join(dict.fromkeys(u.row for u in used if u.stored.provenance.get("unchecked")))
    fell = {(s.spec.method.name, s.spec.seed): s.provenance["guards"] for s in done if s.provenance.get("guards")}
    where = ", ".join(f"{name} seed {seed} ({count}×)" for (name, seed), count in fell.items())
    return [
        f"Trained with --unchecked, not held against the contract of methods: {rows}." if rows else "",
        values_outside_suite(table, used),
        f"Clients fell back on their last finite numbers in {where}." if where else "",
    ]


def values_outside_suite(table: Expansion, used: Iterable[ShownRun]) -> str:
    """Sentence on the hyperparameters of rows that the suite does not list."""
    suites = {row.title for row in table.rows}
    values = grouped(
        ((one.row, key), f"{value}")
        for one in used
        if one.row not in suites
        for key, value in sorted(one.stored.spec.method.hyper.items())
    )
    rows = grouped((row, f"{key}={' or '.join(texts)}") for (row, key), texts in values.items())
    alike = grouped((", ".join(texts), row) for row, texts in rows.items())
    told = "; ".join(f"{', '.join(titles)} with {texts}" for texts, titles in alike.items())
    return f"Hyperparameters of rows outside the suite: {told}." if told else ""


def shared_images(done: Iterable[Stored]) -> str:
    """Sentence on federations with images that several clients hold."""
    counts = grouped((s.spec.dataset.name, int(rows)) for s in done if (rows := s.provenance.get("shared_rows")))
    where = ", ".join(f"{ranges(numbers)} images of {name}" for name, numbers in counts.items())
    return f"Several clients hold the same {where} (by seed)." if where else ""


def data_hashes(table: Expansion, used: Iterable[ShownRun]) -> str:
    """Content hashes of the data of each column."""
    hashes = grouped((u.column, (u.stored.spec.dataset.content or u.data_hash)[:12]) for u in used if u.done)
    line = per_column(table, {column: " / ".join(several) for column, several in hashes.items()})
    return f"Data: {line}." if line else ""


def per_column(table: Expansion, texts: Mapping[str, str]) -> str:
    """`1000` where all of the suite's columns agree, else `1000 (A, B), 2000 (C)`."""
    columns = grouped((texts[column.id], column.setting) for column in table.columns if column.id in texts)
    if len(columns) == 1:
        return next(iter(columns))
    return ", ".join(f"{text} ({', '.join(names)})" for text, names in columns.items())


def spare(cells: Iterable[Cell], used: Iterable[ShownRun], runs: Iterable[RunSpec]) -> list[str]:
    """Number of stored runs that no column shows, and why."""
    asked, shown = {run.seed for cell in cells for run in cell.needed}, {one.stored.spec.id for one in used}
    left = {run.id: run for run in runs if run.id not in shown}.values()
    further = [run for run in left if run.seed not in asked]
    lines = []
    if further:
        methods = ", ".join(sorted({short_name(run.method.name) for run in further}))
        other = f"other seeds than the table's ({ranges(run.seed for run in further)})"
        lines.append(f"Not shown: {len(further)} stored run(s) of {methods} with {other}.")
    if others := len(left) - len(further):
        lines.append(f"Not shown: {others} stored run(s) of these rows scored at other stages.")
    return lines


def cost_lines(used: Iterable[ShownRun]) -> list[str]:
    """Costs of a round of each row: from least to most where its columns differ."""
    done: dict[tuple[str, str], list[Stored]] = {}
    for one in used:
        if one.done:
            done.setdefault((one.row, one.column), []).append(one.stored)
    found = [(row, round_costs(runs)) for (row, _), runs in done.items()]
    lines = [f"A round of {row}: {words}." for row, words in costs_in_words(found).items()]
    return [*lines, unknown_costs(found), COUNTED] if found else []


def round_costs(runs: Sequence[RunResult | Stored]) -> dict[str, float]:
    """Costs of a round, as far as they are known, by the names of `COSTS`: means over the runs that tell."""
    told: dict[str, list[float]] = {name: [] for name in COSTS}
    for run in runs:
        provenance: Mapping[str, Any] = run.provenance
        if (seconds := provenance.get("client_seconds")) is not None:
            told[SECONDS].append(seconds / run.spec.rounds)
        for name, key in STORED.items():
            if (number := provenance.get(key)) is not None:
                told[name].append(number)
    return {name: float(np.mean(numbers)) for name, numbers in told.items() if numbers}


def costs_in_words(found: Costs) -> dict[str, str]:
    """The costs of each row in words: from least to most where its columns differ."""
    told = grouped(((label, name), value) for label, numbers in found for name, value in numbers.items())
    return {
        label: ", ".join(f"{_span(told[label, name])} {unit}" for name, unit in COSTS.items() if (label, name) in told)
        for label, _ in told
    }


def unknown_costs(found: Costs) -> str:
    """A sentence on the costs that are not known of some row; empty if all are."""
    lacking = grouped((name, label) for name in COSTS for label, numbers in found if name not in numbers)
    told = "; ".join(f"{name} of {', '.join(labels)}" for name, labels in lacking.items())
    return f"Not known: {told}." if told else ""


def _span(values: Sequence[float]) -> str:
    """The least and the most, with three digits or all those before the point; once if they read the same."""
    ends = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (min(values), max(values)))
    return "–".join(dict.fromkeys(ends))


_BARE = {"version": None, "content": None}
_Shares = Mapping[str, Sequence[tuple[str, int]]]
"""Rows and seeds that have a version, by version."""


def mixtures(table: Expansion, used: Sequence[ShownRun]) -> dict[str, str]:
    """For each column whose runs mix data, or versions of a method, dataset, partition or network: sentences on it.

    What a user's dataset or partition reads may depend on the seed, so its content may differ between seeds. Several
    contents within one seed are a mixture.
    """
    suite_ids = {run.id for cell in table.cells for run in cell.needed}
    lines: dict[str, str] = {}
    for column in table.columns:
        done = [u for u in used if u.column == column.id and u.done]
        methods = grouped(
            (u.stored.spec.method.name, u.stored.spec.method.version)
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
        parts += [f"MIXED VERSIONS of {what} in {column.setting}: {_listed(shares)}" for what, shares in _own(done)]
        if parts:
            lines[column.id] = f"{'. '.join(parts)}."
    return lines


def not_compared(mixed: Mapping[str, str]) -> list[str]:
    """Warnings on the columns that `mixtures` names."""
    return [f"† {line} These cells cannot be compared." for line in mixed.values()]


def _own(done: Sequence[ShownRun]) -> list[tuple[str, _Shares]]:
    """The user-supplied datasets, partitions and networks of which these runs have several, and who has which."""
    parts = [(part, one) for one in done for part in _parts(one.stored.spec)]
    code = _shares((part.name, part.version or "none", one) for part, one in parts)
    read = _shares((f"what is read by {part.name}", part.content or "nothing", one) for part, one in parts)
    mixed = [(what, shares) for what, shares in code.items() if len(shares) > 1]
    return mixed + [(what, shares) for what, shares in read.items() if _mixed(shares)]


def _shares(told: Iterable[tuple[str, str, ShownRun]]) -> dict[str, _Shares]:
    """Rows and seeds by thing and version; `told`: the thing, its version, and a run that has it."""
    found = grouped((what, (version, (one.row, one.stored.spec.seed))) for what, version, one in told)
    return {what: grouped(versions) for what, versions in found.items()}


def _mixed(shares: _Shares) -> bool:
    """True if some seed has several contents, or seeds share some contents but not all."""
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
    """Stored runs that differ from those asked for in hashes alone: how they were made, and their number."""
    return Counter(f"with another version of {what}" for _, what in differing_versions(asked, stored) if what).items()


def differing_versions(asked: Iterable[RunSpec], stored: Iterable[RunSpec]) -> Iterator[tuple[RunSpec, str]]:
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
    """Things of which a run has another version than those asked for; `seedless`: those read alike with every seed."""
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
