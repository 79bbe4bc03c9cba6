"""A run's scores and metrics kept by column, as they lie in its file; rows are made only when they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

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

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        made = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        return tuple(itertools.starmap(self.kind, made))

    def __len__(self) -> int:
        last = next(reversed(self.columns.values()))
        return len(last.codes if isinstance(last, Words) else last)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == tuple(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

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

    `there`: which of these pairs were scored; None: all.
    """

    clients: tuple[int, ...]
    steps: tuple[int, ...]
    accuracies: npt.NDArray[np.float64]
    counts: npt.NDArray[np.float64]
    there: npt.NDArray[np.bool_] | None = None


class Scores(Rows[Score]):
    """Scores of clients, and of the global model.

    `read`: what readers made of them, by what they call it, as several tables read the same run.
    """

    kind = Score

    def __init__(self, *columns: Words | Array) -> None:
        super().__init__(*columns)
        self.read: dict[Any, Any] = {}

    @cached_property
    def _moments(self) -> dict[str, dict[int, Moment]]:
        return {}

    def at(self, stage: str) -> Mapping[int, Moment]:
        """Return the scores at a stage by round, in ascending order."""
        if stage not in self._moments:
            self._moments[stage] = self._grouped(stage)
        return self._moments[stage]

    def _grouped(self, stage: str) -> dict[int, Moment]:
        columns: Mapping[str, Any] = self.columns
        rows = columns["stage"].where(stage)
        of_rows = [columns[name][rows] for name in ("round", "step", "client", "accuracy", "count")]
        if np.any(np.diff(of_rows[0]) < 0):  # rounds are written one after the other, unless the file is another's
            order = np.argsort(of_rows[0], kind="stable")
            of_rows = [column[order] for column in of_rows]
        rounds, starts, numbers = np.unique(of_rows[0], return_index=True, return_counts=True)
        found: dict[int, Moment] = {}
        before: tuple[Array, Array] | None = None
        for round, start, number in zip(rounds.tolist(), starts.tolist(), numbers.tolist(), strict=True):
            _, step, client, accuracy, count = (column[start : start + number] for column in of_rows)
            alike = before is not None and np.array_equal(before[0], step) and np.array_equal(before[1], client)
            if not alike:
                places, before = _Places(step, client), (step, client)
            found[round] = places.filled(accuracy, count)
        return found


class _Places:
    """Positions of rows with these steps and clients in a matrix of all steps and clients."""

    def __init__(self, step: Array, client: Array) -> None:
        steps, self._step = np.unique(step, return_inverse=True)
        clients, self._client = np.unique(client, return_inverse=True)
        self.steps, self.clients = tuple(steps.tolist()), tuple(clients.tolist())
        there = np.zeros((len(steps), len(clients)), dtype=np.bool_)
        there[self._step, self._client] = True
        self._there = None if there.all() else there

    def filled(self, accuracy: Array, count: Array) -> Moment:
        """Rows with these accuracies and counts. Of several with one step and client the last one counts."""
        values, counts = (np.full((len(self.steps), len(self.clients)), np.nan) for _ in range(2))
        values[self._step, self._client] = accuracy
        counts[self._step, self._client] = count
        return Moment(self.clients, self.steps, values, counts, self._there)


def scores_of(scores: Sequence[Score]) -> Scores:
    """Scores by column, whichever way they are kept."""
    if isinstance(scores, Scores):
        return scores
    stages, *others = zip(*scores, strict=True) if scores else [()] * len(Score._fields)
    return Scores(Words.of(stages), *map(np.array, others))


def metrics_of(metrics: Sequence[Metric]) -> Metrics:
    """Metrics by column, whichever way they are kept."""
    if isinstance(metrics, Metrics):
        return metrics
    rounds, clients, names, values = zip(*metrics, strict=True) if metrics else [()] * len(Metric._fields)
    return Metrics(np.array(rounds), np.array(clients), Words.of(names), np.array(values))
