"""Partition that a JSON file gives: the rows of the pool that each client adapts on and is scored on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pflbench.data.partition import Hand, Rows
from pflbench.errors import DataMissing, PflbenchError, UsageError

FORM = 'Write a JSON list with one object for each client: [{"train": [0, 5], "test": [7]}, …].'


@dataclass(frozen=True)
class Given:
    """Support and query of each client from a JSON list of `{"train": [rows], "test": [rows]}`, equal for all seeds.

    A row's number is its place in the pool: training rows first, then the dataset's test split, from 0 on. A suite sets
    `query = "partition"`.

    Attributes:
        file: The JSON file.
        overlap: Whether several clients may train on a row, or one train and another be tested on it. Several clients
            may always be tested on a row that nobody trains on.
    """

    file: Path
    overlap: bool | None = None

    shares: ClassVar[bool] = True

    def files(self, root: Path) -> Iterable[Path]:
        """The one file."""
        return [self.file]

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises `DataMissing` or `PflbenchError` where the file is missing or damaged."""
        listed = read_clients(self.file)
        if len(listed) != clients:
            raise UsageError(
                f"{self.file.name} has {len(listed)} clients and the suite {clients}: write clients = {len(listed)}."
            )
        ends = {"train": len(labels) - test, "test": len(labels)}
        for client, parts in enumerate(listed):
            for part, end in ends.items():
                if wrong := [row for row in parts[part] if not 0 <= row < end]:
                    raise UsageError(
                        f'{self.file.name}: "{part}" of client {client} has row {wrong[0]}; it may have rows from 0 to '
                        f"{end - 1}."
                    )
        hands = [(np.array(parts["train"], np.int64), np.array(parts["test"], np.int64)) for parts in listed]
        if not self.overlap:
            self._check_overlap(hands)
        return hands

    def _check_overlap(self, hands: Sequence[Hand]) -> None:
        """Raise `UsageError` where a client trains on a row that another trains or is tested on."""
        trainer: dict[int, int] = {}
        for part in (0, 1):
            for client, hand in enumerate(hands):
                for row in hand[part].tolist():
                    other = trainer.get(row, client) if part else trainer.setdefault(row, client)
                    if other != client:
                        raise UsageError(
                            f"{self.file.name}: client {other} trains on row {row}, and client {client} "
                            f"{'is tested' if part else 'trains'} on it. Remove one, or set overlap = true."
                        )


def read_clients(path: Path) -> list[dict[str, list[int]]]:
    """Rows of each client, "train" and "test". Raises `DataMissing` or `PflbenchError`."""
    if not path.is_file():
        raise DataMissing(f"There is no file {path}, which has the rows of each client.")
    try:
        listed = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_unique)
    except (OSError, ValueError, RecursionError) as error:
        raise PflbenchError(f"{path} is not readable JSON ({type(error).__name__}: {error}). {FORM}") from error
    if not isinstance(listed, list) or not listed:
        raise PflbenchError(f"{path} is not a list of clients. {FORM}")
    for client, parts in enumerate(listed):
        if not isinstance(parts, dict) or parts.keys() != {"train", "test"}:
            raise PflbenchError(f'{path}: client {client} is not an object with "train" and "test" alone. {FORM}')
        for part, rows in parts.items():
            if not isinstance(rows, list) or not rows or any(type(row) is not int for row in rows):
                raise PflbenchError(f'{path}: "{part}" of client {client} is not a list of row numbers. {FORM}')
    return listed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON object without equal keys, of which json takes the last. Raises `ValueError`."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("an object has a key twice")
    return dict(pairs)
