"""A run's scores and metrics by column, as they lie in its file; rows are made only when they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from pflbench.result import Metric, Score

Array = npt.NDArray[Any]
Row = TypeVar("Row", Score, Metric)


class Words(NamedTuple):
    """A column of a few different texts: row `i` has `texts[codes[i]]`."""

    texts: tuple[str, ...]
    codes: Array

    @classmethod
    def of(cls, column: Sequence[str]) -> Words:
        """The column with these texts."""
        codes = {text: code for code, text in enumerate(dict.fromkeys(column))}
        return cls(tuple(codes), np.array([codes[text] for text in column], dtype=np.int64))

    def where(self, text: str) -> Array:
        """The numbers of the rows with this text."""
        return np.flatnonzero(self.codes == self.texts.index(text)) if text in self.texts else np.zeros(0, np.int64)

    def take(self, rows: Array) -> Words:
        """The column with these rows alone."""
        return self._replace(codes=self.codes[rows])

    def tolist(self) -> list[str]:
        """The text of each row."""
        return [self.texts[code] for code in self.codes.tolist()]


class Rows(Sequence[Row]):
    """Rows of one kind by column, in the order of the kind's fields; equal to any sequence of equal rows."""

    kind: type[Row]

    def __init__(self, *columns: Words | Array) -> None:
        self.columns = dict(zip(self.kind._fields, columns, strict=True))

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """These rows, however they are stored."""
        if isinstance(rows, cls):
            return rows
        columns = zip(*rows, strict=True) if rows else [()] * len(cls.kind._fields)
        named = zip(cls.kind._fields, columns, strict=True)
        return cls(*(Words.of(values) if name in ("stage", "name") else np.array(values) for name, values in named))

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        made = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        return tuple(itertools.starmap(self.kind, made))

    def __len__(self) -> int:
        last = next(reversed(self.columns.values()))
        return len(last.codes if isinstance(last, Words) else last)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._rows)


class Metrics(Rows[Metric]):
    """Metrics that methods reported of clients."""

    kind = Metric

    def named(self, name: str, round: int) -> dict[int, float]:
        """A metric after so many rounds, by client."""
        columns: Mapping[str, Any] = self.columns
        rows = columns["name"].where(name)
        rows = rows[columns["round"][rows] == round]
        return dict(zip(columns["client"][rows].tolist(), columns["value"][rows].tolist(), strict=True))


class Moment(NamedTuple):
    """Scores at a stage after a round: `accuracies[step, client]` in [0, 1], and examples in `counts`.

    `scored`: which of these pairs were scored; None: all.
    """

    clients: tuple[int, ...]
    steps: tuple[int, ...]
    accuracies: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    scored: npt.NDArray[np.bool_] | None = None


class Scores(Rows[Score]):
    """Scores of clients, and of the global model.

    `read`: results of readers by their names, as several tables read the same run.
    """

    kind = Score

    def __init__(self, *columns: Words | Array) -> None:
        super().__init__(*columns)
        self.read: dict[Any, Any] = {}
        self._moments: dict[str, dict[int, Moment]] = {}

    def at(self, stage: str) -> Mapping[int, Moment]:
        """Return the scores at a stage by round, in ascending order. Of scores of the same pair the last one counts."""
        if stage not in self._moments:
            self._moments[stage] = dict(self._by_round(stage))
        return self._moments[stage]

    def _by_round(self, stage: str) -> Iterator[tuple[int, Moment]]:
        columns: Mapping[str, Any] = self.columns
        rows = columns["stage"].where(stage)
        rows = rows[np.argsort(columns["round"][rows], kind="stable")]
        rounds, starts = np.unique(columns["round"][rows], return_index=True)
        pairs, clients, steps = np.zeros((2, 0), np.int64), tuple[int, ...](), tuple[int, ...]()
        for round, some in zip(rounds.tolist(), np.split(rows, starts[1:]), strict=False):
            previous, pairs = pairs, np.stack([columns["step"][some], columns["client"][some]])
            if not np.array_equal(pairs, previous):  # rounds often score the same clients
                (all_steps, at_step), (all_clients, at_client) = (np.unique(one, return_inverse=True) for one in pairs)
                clients, steps = tuple(all_clients.tolist()), tuple(all_steps.tolist())
            accuracies, counts = (np.full((len(steps), len(clients)), np.nan) for _ in range(2))
            accuracies[at_step, at_client] = columns["accuracy"][some]
            counts[at_step, at_client] = columns["count"][some]
            scored = ~np.isnan(counts)
            yield round, Moment(clients, steps, accuracies, counts, None if scored.all() else scored)


scores_of, metrics_of = Scores.of, Metrics.of
"""Scores and metrics by column, however they are stored."""
