"""`[figure]` and `[statistics]`: what a suite draws or counts where it is no table. One strict model for each kind.

A figure has a panel for every column (and stage that `layout.stages` lists), and a curve in it for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from pflbench.errors import UsageError
from pflbench.spec import Positive
from pflbench.suite.schema import Column, Rate, Row
from pflbench.suite.strict import TomlTable


class Scatter(TomlTable):
    """A client's accuracy against its number of support rows, over the clients of all seeds."""

    kind: Literal["scatter"]
    """Kind of figure."""
    bins: Positive
    """Number of bins, of about equal numbers of clients."""


class Histogram(TomlTable):
    """Histogram of clients' numbers of examples, beside the exact law.

    Nothing is trained and no data are read: the other keys describe the published dataset.
    """

    kind: Literal["histogram"]
    """Kind of figure."""
    partitions: Positive
    """Number of partitions that are drawn."""
    classes: Positive
    """Number of labels of the published dataset."""
    types: Positive
    """Number of types: the labels, or all their subclasses."""
    per_type: Positive
    """Number of training rows of each type."""
    bins: Positive
    """About the number of bins."""


class Classes(TomlTable):
    """Stacked bars of the examples of each class, by client. Nothing is trained."""

    kind: Literal["classes"]
    """Kind of figure."""
    clients: Positive = 10
    """Number of clients that are shown, from the first."""


class Kde(TomlTable):
    """Density of a metric over the clients of all seeds."""

    kind: Literal["kde"]
    """Kind of figure."""
    metric: str
    """Metric of a client."""
    scale: Literal["none", "share", "dimension"] = "none"
    """Divisor of the metric; `share`: its sum over a run's clients; `dimension`: the number of the head's
    parameters.
    """
    rounds: Annotated[list[Positive], Field(min_length=1)]
    """Rounds, one curve for each."""
    every: Positive
    """Value of `--evaluate-every` for its runs."""


class Curve(TomlTable):
    """Accuracy against the round: the mean over seeds, and its spread."""

    kind: Literal["curve"]
    """Kind of figure."""
    every: Positive
    """Value of `--evaluate-every` for its runs."""


class Steps(TomlTable):
    """Accuracy against the number of fine-tuning steps: the mean over seeds, its spread, and what a round costs."""

    kind: Literal["steps"]
    """Kind of figure."""


class Across(TomlTable):
    """Accuracy against the columns, in one panel: the mean over seeds, its spread, and the paper's numbers."""

    kind: Literal["columns"]
    """Kind of figure."""
    x: Annotated[str, Field(min_length=1)]
    """Title of the axis."""
    mark: Literal["dots", "line"] = "dots"
    """Mark of a value."""
    separators: list[Positive] = Field(default=[])
    """Numbers of columns behind which a dashed line stands."""
    at: Annotated[list[float], Field(min_length=1)] | None = None
    """Position of each column, rising; by default they stand beside each other under their titles."""
    y: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """Least and most accuracy shown; by default all."""


class Tsne(TomlTable):
    """Each client's mean features after each of the first rounds, a point a round, laid out by t-SNE.

    A line of panels for each client: for each number of rounds one for every row, and one of all rows together. Needs
    `evaluation.features`.
    """

    kind: Literal["tsne"]
    """Kind of figure."""
    rounds: Annotated[list[Positive], Field(min_length=1)]
    """Numbers of first rounds, one panel for each."""
    perplexity: Rate
    """Perplexity of t-SNE."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of t-SNE; runs are those of one of the suite's seeds."""


class Sizes(TomlTable):
    """A dataset's numbers of examples and of classes, as the paper printed them."""

    total: Positive
    """Number of examples."""
    train: Positive
    """Number of training examples."""
    test: Positive
    """Number of test examples."""
    classes: Positive
    """Number of classes."""


COLUMNS = tuple(Sizes.model_fields)
"""Numbers that the table has of each dataset, in its order."""


class Statistics(TomlTable):
    """Count of images: every column of the suite becomes a line."""

    reference: dict[str, Sizes] = Field(default_factory=dict)
    """Numbers that the paper printed, by column."""


FromRuns = Scatter | Kde | Curve | Steps | Across | Tsne
Untrained = Histogram | Classes
"""Figures of partitions, which have no rows."""
_NEEDED = {"steps": "finetuned", "tsne": "personalized"}
"""The stage that a kind of figure shows, whatever stages its rows have."""
Figure = Annotated[FromRuns | Untrained, Field(discriminator="kind")]


def check(
    figure: FromRuns | Untrained | None, statistics: Statistics | None, rows: Sequence[Row], columns: Sequence[Column]
) -> None:
    """Raise `UsageError` for rows or columns that a figure, statistics or (both None) a table cannot be made from."""
    if bool(rows) == (statistics is not None or isinstance(figure, Untrained)):
        raise UsageError("row: statistics, histograms and classes train nothing: row = []. All else needs a row.")
    if isinstance(figure, Across) and len(figure.at or columns) != len(columns):
        raise UsageError(f"figure.at: {len(figure.at or ())} numbers for {len(columns)} columns.")
    if isinstance(figure, Histogram) and any(column.partition.name != "random-slicing" for column in columns):
        raise UsageError("column: a histogram has the partition random-slicing alone.")
    for i, row in enumerate(rows):
        if row.grid and isinstance(figure, Kde | Curve | Steps | Tsne):
            raise UsageError(f"row[{i}].grid: a {figure.kind} cannot show what clients choose after the last round.")
        if figure and _NEEDED.get(figure.kind, row.named[0]) not in row.named:
            raise UsageError(f"row[{i}].stage: a {figure.kind} shows the stage {_NEEDED[figure.kind]!r}.")
