"""`[statistics]`: a table of how many examples a suite's columns have. It trains nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from pflbench.spec import Positive
from pflbench.suite.schema import Column, Row
from pflbench.suite.strict import TomlTable, check_keys, fault


class Sizes(TomlTable):
    """A dataset's numbers of examples and of classes, as the paper printed them."""

    total: Positive
    train: Positive
    test: Positive
    classes: Positive


COLUMNS = tuple(Sizes.model_fields)
"""What the table says of each dataset, in its order."""


class Statistics(TomlTable):
    """`[statistics]`: every column of the suite becomes a line. `reference`: what the paper printed, by column."""

    reference: dict[str, Sizes] = Field(default_factory=dict)


def check(statistics: Statistics, figure: bool, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Raise the error for what does not go with statistics; `figure`: the suite has one, too."""
    if figure:
        raise fault(("figure",), "a suite is either statistics or a figure")
    if rows:
        raise fault(("row",), "statistics train nothing: write row = []")
    check_keys(("statistics", "reference"), statistics.reference, [column.id for column in columns])
