"""Differences of a table from its suite's whole protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pflbench.suite.cells import Shortfall
from pflbench.suite.layers import ColumnLayers
from pflbench.suite.schema import Evaluation, FederationKeys

_COHORT = ("training_clients", "cohort")
_WORDS = {
    "partition": "partitions",
    "batch": "batch sizes",
    "hyper": "hyperparameters",
    "dataset": "options of the datasets",
    "model": "networks",
    **dict.fromkeys(_COHORT, "cohorts"),
}
"""Words for keys; any other key is called by its name."""
_TRAINED = (*(key for key in FederationKeys.model_fields if key != "clients"), "partition", "model", "batch", "hyper")
_SCORED = tuple(key for key in Evaluation.model_fields if key not in ("first", "last", "finetune", "report"))
"""Keys of a column and of `[evaluation]` that change runs or numbers, but for those with words of their own."""


def shortfall(columns: Sequence[ColumnLayers]) -> Shortfall:
    """The differences of these columns, under their profile and selection, from the whole suite."""
    paper = columns[0].whole.document
    trained = [(one.settings["rounds"], one.whole.entry.rounds) for one in columns if paper.row]
    seeds = [(len(one.seeds), len(paper.seeds(one.whole.entry))) for one in columns]
    return Shortfall(
        rounds=_of(trained, "rounds"),
        seeds=_of([(few, every) for few, every in seeds if few < every], "seeds"),
        columns=f"{len(columns)} of {len(paper.column)} columns" if len(columns) < len(paper.column) else "",
        longer=any(number > whole for number, whole in trained),
        other=tuple(filter(None, (*_trained(columns), *(_scored(columns) if paper.row else ())))),
    )


def _trained(columns: Sequence[ColumnLayers]) -> Iterable[str]:
    """The differences of federations and training."""
    placed: dict[str, dict[str, None]] = {}
    for one in columns:
        if name := one.stand_in:
            placed.setdefault(name, {})[one.whole.entry.dataset.name] = None
    yield ", ".join(f"{name} for {_listed(list(replaced))}" for name, replaced in placed.items())
    clients = _of([(one.value("clients"), one.whole.value("clients")) for one in columns], "clients")
    yield clients
    counted = _COHORT if clients else ()
    keys = [key for one in columns for key in _TRAINED if key not in counted and one.value(key) != one.whole.value(key)]
    if any(one.entry.dataset != one.whole.entry.dataset and not one.stand_in for one in columns):
        keys.append("dataset")
    if columns[0].document.hyper != columns[0].whole.document.hyper:
        keys.append("hyper")
    words = dict.fromkeys(_WORDS.get(key, key) for key in keys)
    yield f"other {_listed(list(words))}" if words else ""


def _scored(columns: Sequence[ColumnLayers]) -> Iterable[str]:
    """The differences of scoring."""
    before, after = columns[0].whole.document.evaluation, columns[0].document.evaluation
    yield f"only the first {_first(after.first)} scored" if after.first and after.first != before.first else ""
    theirs, ours = before.finetune, after.finetune
    every, fewer = (rule.steps if rule else None for rule in (theirs, ours))
    pairs = [(one.entry.finetune, one.whole.entry.finetune) for one in columns]
    yield _of([(rule.steps or fewer, whole.steps or every) for rule, whole in pairs], "fine-tuning steps")
    yield _of([(after.last, before.last)], "last rounds read")
    keys = [key for key in _SCORED if getattr(before, key) != getattr(after, key)]
    rules = [(ours, theirs), *pairs]
    if any((a and a.model_dump(exclude={"steps"})) != (b and b.model_dump(exclude={"steps"})) for a, b in rules):
        keys.append("fine-tuning")
    yield f"other {_listed(keys)}" if keys else ""


def _of(pairs: Iterable[tuple[int | None, int | None]], what: str) -> str:
    """`10 of 1000, 50 of 200 rounds` for those pairs that differ; `4 instead of 2 rounds` where they are more."""
    found = dict.fromkeys(
        f"{number} {'instead of' if number and whole and number > whole else 'of'} {whole}"
        for number, whole in pairs
        if number != whole
    )
    return f"{', '.join(found)} {what}" if found else ""


def _first(clients: int) -> str:
    return "client" if clients == 1 else f"{clients} clients"


def _listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
