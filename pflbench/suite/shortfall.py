"""Differences of a table from its suite's whole protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pflbench.suite.document import Document
from pflbench.suite.schema import Column

_PRESENTED = ("id", "group", "title", "seeds", "suspect", "sources", "report", "subset", "like")
"""Keys of a column that change no run."""
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
Pairs = Sequence[tuple[Column, Column]]
"""Columns of the paper's protocol, each with what a profile makes of it."""


@dataclass(frozen=True)
class Shortfall:
    """Differences of a table from its suite's whole protocol, in words; empty if there are none.

    `rounds`, `seeds` and `columns` read like "3 of 5 seeds"; `other` names all other differences of its runs.
    """

    rounds: str = ""
    seeds: str = ""
    columns: str = ""
    other: tuple[str, ...] = ()
    longer: bool = False
    """True if runs have more rounds than the protocol's."""

    @property
    def kind(self) -> str:
        """The relation of its runs to the protocol, in words."""
        return "other rounds than the protocol's" if self.longer else "less than the whole protocol"

    @property
    def counts(self) -> tuple[str, ...]:
        """The numbers of rounds, seeds and columns, for a title."""
        return tuple(text for text in (self.rounds, self.seeds, self.columns) if text)

    @property
    def runs(self) -> str:
        """The differences of its runs from the protocol's; empty if there are none."""
        return "; ".join(text for text in (self.rounds, *self.other) if text)


def shortfall(
    paper: Document, document: Document, columns: Mapping[int, Sequence[int]], rounds: int | None
) -> Shortfall:
    """The differences of these columns of a suite under a profile; `paper` is the suite without one.

    `columns`: the seeds of each, by its index. `rounds`: asked for instead of each column's; None: each column's own.
    """
    pairs = [(paper.column[index], document.column[index]) for index in columns]
    trained = [(column.rounds if rounds is None else rounds, whole.rounds) for whole, column in pairs if paper.row]
    seeds = [(len(chosen), len(paper.seeds(paper.column[index]))) for index, chosen in columns.items()]
    return Shortfall(
        rounds=_of(trained, "rounds"),
        seeds=_of([(few, every) for few, every in seeds if few < every], "seeds"),
        columns=f"{len(pairs)} of {len(paper.column)} columns" if len(pairs) < len(paper.column) else "",
        longer=any(number > whole for number, whole in trained),
        other=tuple(text for text in (*_trained(paper, document, pairs), *_scored(paper, document, pairs)) if text),
    )


def stand_in(whole: Column, column: Column) -> str:
    """The dataset that a profile puts in the place of the paper's; empty if it is the paper's."""
    return "" if column.dataset.name == whole.dataset.name else column.dataset.name


def _trained(paper: Document, document: Document, pairs: Pairs) -> Iterable[str]:
    """The differences of federations and training."""
    placed: dict[str, dict[str, None]] = {}
    for whole, column in pairs:
        if name := stand_in(whole, column):
            placed.setdefault(name, {})[whole.dataset.name] = None
    yield ", ".join(f"{name} for {_listed(list(replaced))}" for name, replaced in placed.items())
    everybody, fewer = paper.federation.clients, document.federation.clients
    clients = _of([(column.clients or fewer, whole.clients or everybody) for whole, column in pairs], "clients")
    yield clients
    known = ("rounds", "dataset", "clients", "finetune", *_PRESENTED, *(_COHORT if clients else ()))
    keys = [key for whole, column in pairs for key in _differing(whole, column, known)]
    if any(whole.dataset != column.dataset and not stand_in(whole, column) for whole, column in pairs):
        keys.append("dataset")
    if document.hyper != paper.hyper:
        keys.append("hyper")
    keys += _differing(paper.federation, document.federation, known)
    words = dict.fromkeys(_WORDS.get(key, key) for key in keys)
    yield f"other {_listed(list(words))}" if words else ""


def _scored(paper: Document, document: Document, pairs: Pairs) -> Iterable[str]:
    """The differences of scoring, if anything is trained."""
    if not paper.row:
        return
    before, after = paper.evaluation, document.evaluation
    yield f"only the first {_first(after.first)} scored" if after.first and after.first != before.first else ""
    theirs, ours = before.finetune, after.finetune
    every, fewer = (rule.steps if rule else None for rule in (theirs, ours))
    steps = [(column.finetune.steps or fewer, whole.finetune.steps or every) for whole, column in pairs]
    yield _of(steps, "fine-tuning steps")
    yield _of([(after.last, before.last)], "last rounds read")
    keys = _differing(before, after, ("first", "last", "finetune", "report"))
    rules = [(ours, theirs), *((column.finetune, whole.finetune) for whole, column in pairs)]
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


def _differing(a: Any, b: Any, known: Sequence[str]) -> list[str]:
    """The keys at which two tables of a suite file differ, but for those known."""
    return [key for key in type(a).model_fields if key not in known and getattr(a, key) != getattr(b, key)]


def _listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
