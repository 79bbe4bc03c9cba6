"""Partition from a JSON file: the rows of the pool that each client adapts on and is scored on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from pflbench.data.partition import Hand, Rows
from pflbench.data.published import file_errors
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.hyper import hyper

Numbers = Annotated[list[int], Field(min_length=1)]


class ClientRows(BaseModel, extra="forbid", strict=True):
    """Rows of a client."""

    train: Numbers
    test: Numbers


_FILE = TypeAdapter(Annotated[list[ClientRows], Field(min_length=1)])


@dataclass(frozen=True)
class Given:
    """Support and query of each client from a JSON list of `{"train": [rows], "test": [rows]}`, equal for all seeds.

    A row's number is its position in the pool: training rows first, then the dataset's test split, from 0 on. A suite
    sets `query = "partition"`. Several clients may be tested on a row that no client trains on.
    """

    file: Path = field(metadata={"help": "The JSON file."})
    overlap: bool | None = hyper(None, "Allow rows that one client trains on and another trains or is tested on.")

    shares: ClassVar[bool] = True

    def files(self, root: Path) -> Iterable[Path]:
        """The one file."""
        return [self.file]

    def deal(self, labels: Rows, kind: Rows | None, test: int, clients: int, seed: int) -> list[Hand]:
        """See `Dealer`. Raises `DataMissing` or `PflbenchError` where the file is missing or damaged."""
        hands = read_clients(self.file)
        if len(hands) != clients:
            raise UsageError(
                f"{self.file.name} has {len(hands)} clients and the suite {clients}: write clients = {len(hands)}."
            )
        train, tested = (np.concatenate(parts) for parts in zip(*hands, strict=True))
        rows, counts = np.unique(train, return_counts=True)
        twice = np.union1d(rows[counts > 1], np.intersect1d(train, tested))
        if len(twice) and not self.overlap:
            raise UsageError(
                f"{self.file.name}: a client trains on row {twice[0]}, and it occurs a second time, in a train or test "
                "list. Remove one, or set overlap = true."
            )
        return hands


def read_clients(path: Path) -> list[Hand]:
    """Train and test rows of each client. Raises `DataMissing` or `PflbenchError`."""
    if not path.is_file():
        raise DataMissing(f"{path} is missing. Write the rows of each client into it, or correct the path.")
    form = 'Write a JSON list with one object for each client: [{"train": [0, 5], "test": [7]}, …].'
    with file_errors(f"{path} is no split. {form}"):
        text = path.read_text(encoding="utf-8-sig")
        try:
            listed = _FILE.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = " ".join(map(str, first["loc"])) or "the file"
            raise PflbenchError(f"{path} is no split: {where}: {first['msg']}. {form}") from error
        return [(np.array(one.train, np.int64), np.array(one.test, np.int64)) for one in listed]
