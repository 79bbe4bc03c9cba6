"""A split that a file gives: which rows of the pool each client holds and, where it says so, is tested on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pflbench.data.partition import Hand, Rows
from pflbench.data.splits import Split, read_split
from pflbench.errors import UsageError


@dataclass(frozen=True)
class Given:
    """The rows of each client as a file lists them, whatever the seed.

    `pflbench data show --export` writes such a file.

    Where the file has test rows for each client, a suite says `query = "partition"`, and clients adapt on the train
    rows and are scored on the test rows. Where it has none, a suite gives a share of each client's rows as query, or
    "test-split".

    Attributes:
        file: JSON or .npz, in one of the forms of `pflbench.data.splits`.
        overlap: Whether several clients may train on a row, or one train and another be tested on it. That several are
            tested on a row that nobody trains on is always fine.
    """

    file: Path
    overlap: bool | None = None

    shares: ClassVar[bool] = True

    def files(self, root: Path) -> Iterable[Path]:
        """The one file."""
        return [self.file]

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Raises `DataMissing` or `PflbenchError` where the file is not there or damaged."""
        split = self._read(clients)
        training = len(labels)
        if split.test is not None or (split.rows is not None and any(np.any(rows >= training) for rows in split.train)):
            raise UsageError(f'{self.file.name} says which rows each client is tested on: write query = "partition".')
        if split.rows is not None and split.rows < training:
            raise self._other_rows(split.rows, f"{training} training rows")
        if self.overlap:
            raise UsageError(f'{self.file.name} has no test rows: overlap = true goes with query = "partition" only.')
        self._check("rows", split.train, training, "training rows")
        self._check_shared(split.train, ())
        return list(split.train)

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises as a call."""
        split = self._read(clients)
        training = len(labels) - test
        train, scored = split.train, split.test
        if split.rows is not None:
            if split.rows not in (training, len(labels)):
                raise self._other_rows(
                    split.rows, f"{training} training rows" + (f" and {test} test rows" if test else "")
                )
            train = tuple(rows[rows < training] for rows in split.train)
            scored = tuple(rows[rows >= training] for rows in split.train)
        if scored is None or not any(map(len, scored)):
            raise UsageError(
                f"{self.file.name} does not say which rows each client is tested on: give a share of each client's "
                'rows in the suite, such as query = 0.2, or "test-split", or test rows in the file.'
            )
        self._check("train rows", train, training, "training rows")
        self._check("test rows", scored, len(labels), "rows")
        for client, hand in enumerate(zip(train, scored, strict=True)):
            if len(both := np.intersect1d(*hand)):
                raise UsageError(f"{self.file.name}: client {client} trains and is tested on row {both[0]}.")
        if not self.overlap:
            self._check_shared(train, scored)
        return list(zip(train, scored, strict=True))

    def _read(self, clients: int) -> Split:
        split = read_split(self.file)
        if len(split.train) != clients:
            raise UsageError(
                f"{self.file.name} has {len(split.train)} clients and the suite {clients}: write clients = "
                f"{len(split.train)}."
            )
        return split

    def _other_rows(self, listed: int, there: str) -> UsageError:
        return UsageError(f"{self.file.name} gives a client for {listed} rows, and the dataset has {there}.")

    def _check(self, what: str, held: Sequence[Rows], most: int, of: str) -> None:
        for client, rows in enumerate(held):
            if not len(rows):
                raise UsageError(f"{self.file.name}: client {client} has no {what}.")
            if (last := int(rows.max())) >= most:
                raise UsageError(
                    f"{self.file.name}: the {what} of client {client} have row {last}; the dataset has {most} {of}, "
                    f"0 to {most - 1}."
                )
            names, counts = np.unique(rows, return_counts=True)
            if len(names) < len(rows):
                raise UsageError(
                    f"{self.file.name}: the {what} of client {client} have row {names[counts > 1][0]} twice."
                )

    def _check_shared(self, train: Sequence[Rows], scored: Sequence[Rows]) -> None:
        """Raise `UsageError` where several clients train on a row, or one does and another is tested on it."""
        holders = np.repeat(np.arange(len(train)), list(map(len, train)))
        trained = np.concatenate(train)
        names, first, counts = np.unique(trained, return_index=True, return_counts=True)
        allowed = " (overlap = true allows that)" if scored else ""
        if len(names) < len(trained):
            row = names[counts > 1][0]
            a, b = holders[trained == row][:2].tolist()
            raise UsageError(f"{self.file.name} gives row {row} to client {a} and to client {b}{allowed}.")
        for client, rows in enumerate(scored):
            if len(both := np.intersect1d(rows, names)):
                other = int(holders[first[np.searchsorted(names, both[0])]])
                raise UsageError(
                    f"{self.file.name}: client {client} is tested on row {both[0]}, on which client {other} trains"
                    f"{allowed}."
                )
