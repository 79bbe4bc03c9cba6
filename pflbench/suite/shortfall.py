"""Differences of a table from its suite's whole protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pflbench.suite.cells import Shortfall
from pflbench.suite.layers import ColumnLayers
from pflbench.suite.schema import FederationKeys

_TRAINED = (*(key for key in FederationKeys.model_fields if key != "clients"), "partition", "model", "batch", "hyper")
"""Keys of a column that change its runs, but for those that are counted."""


def shortfall(columns: Sequence[ColumnLayers]) -> Shortfall:
    """The differences of these columns, under their profile and selection, from the whole suite."""
    paper, pairs = columns[0].whole.document, [(one, one.whole) for one in columns]
    rounds = [(one.settings["rounds"], whole.entry.rounds) for one, whole in pairs if paper.row]
    seeds = [(len(one.seeds), len(paper.seeds(whole.entry))) for one, whole in pairs]
    clients = [(one.value("clients"), whole.value("clients")) for one, whole in pairs]
    datasets = {f"{one.stand_in} for {whole.entry.dataset.name}": None for one, whole in pairs if one.stand_in}
    changed = dict.fromkeys([key for pair in pairs for key in _changed(*pair)])
    other = ", ".join(datasets), _of(clients, "clients"), f"other {', '.join(changed)}" if changed else ""
    return Shortfall(
        rounds=_of(rounds, "rounds"),
        seeds=_of([(few, every) for few, every in seeds if few < every], "seeds"),
        columns=f"{len(columns)} of {len(paper.column)} columns" if len(columns) < len(paper.column) else "",
        longer=any(number > whole for number, whole in rounds),
        other=tuple(filter(None, other)),
    )


def _changed(one: ColumnLayers, whole: ColumnLayers) -> Iterable[str]:
    """Keys of a column and of the suite's tables in which the two differ."""
    yield from (key for key in _TRAINED if one.value(key) != whole.value(key))
    if one.entry.dataset != whole.entry.dataset and not one.stand_in:
        yield "dataset"
    if one.document.hyper != whole.document.hyper:
        yield "hyper"
    if whole.document.row:
        here, paper = dict(one.document.evaluation), dict(whole.document.evaluation)
        yield from (f"evaluation.{key}" for key in paper if key != "report" and here[key] != paper[key])
        if one.entry.finetune != whole.entry.finetune:
            yield "finetune"


def _of(pairs: Iterable[tuple[int, int]], what: str) -> str:
    """`10 of 1000, 50 of 200 rounds` for those pairs that differ; `4 instead of 2 rounds` where they are more."""
    different = dict.fromkeys(
        f"{number} {'instead of' if number > whole else 'of'} {whole}" for number, whole in pairs if number != whole
    )
    return f"{', '.join(different)} {what}" if different else ""
