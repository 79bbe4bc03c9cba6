"""`[figure]` and `[statistics]`: what a suite draws or counts where it is no table. One strict model for each kind.

A figure has a panel for every column (and stage that `layout.stages` lists), and a curve in it for every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pflbench.errors import unknown
from pflbench.spec import Positive
from pflbench.suite.schema import Column, Rate, Row
from pflbench.suite.strict import TomlTable, check_keys, fault


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

    @model_validator(mode="after")
    def _consistent(self) -> Histogram:
        if self.types % self.classes:
            raise fault(("types",), f"{self.types} types cannot be divided among {self.classes} classes")
        return self


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

    @model_validator(mode="after")
    def _consistent(self) -> Across:
        if self.at is not None and any(a >= b for a, b in pairwise(self.at)):
            raise fault(("at",), "numbers that rise from column to column")
        if self.y is not None and not self.y[0] < self.y[1]:
            raise fault(("y",), "the least accuracy shown, then the most")
        return self


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

    @model_validator(mode="after")
    def _enough(self) -> Tsne:
        for i, number in enumerate(self.rounds):
            if number <= self.perplexity:
                raise fault(("rounds", i), f"{number} points are too few for a perplexity of {self.perplexity:g}")
        return self


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
KINDS = ("scatter", "histogram", "classes", "kde", "curve", "steps", "columns", "tsne")
_NEEDED = {"steps": "finetuned", "tsne": "personalized"}
"""The stage that a kind of figure shows, whatever stages its rows have."""


_OF = {"histogram": "sizes", "classes": "classes"}


def _of_a_kind(value: Any) -> Any:
    if isinstance(value, dict):
        if "kind" not in value:
            raise fault(("kind",), f"missing (known: {', '.join(KINDS)})")
        if value["kind"] not in KINDS:
            raise fault(("kind",), str(unknown("kind of figure", str(value["kind"]), KINDS)))
    return value


Figure = Annotated[FromRuns | Untrained, Field(discriminator="kind"), BeforeValidator(_of_a_kind)]


def check(figure: FromRuns | Untrained | None, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Raise the error for rows or columns that the figure (None: a table) cannot be made from."""
    if isinstance(figure, Untrained):
        _check_untrained(figure, rows, columns)
    elif not rows:
        raise fault(("row",), "[] has no row, and only a histogram of sizes or of classes needs none. Write a [[row]]")
    if isinstance(figure, Kde | Curve | Steps | Tsne):
        for i, row in enumerate(rows):
            _check_row(figure, i, row)
    if isinstance(figure, Across) and figure.at is not None and len(figure.at) != len(columns):
        raise fault(("figure", "at"), f"{len(figure.at)} numbers for {len(columns)} columns")
    if isinstance(figure, Tsne) and len(columns) > 1:
        raise fault(("column", 1), f"a tsne shows one column, not {len(columns)}")
    if isinstance(figure, Scatter | Kde | Tsne):
        for i, column in enumerate(columns):
            if column.subset:
                raise fault(("column", i, "subset"), f"a {figure.kind} shows all clients")


def _check_untrained(figure: Untrained, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Reject rows, and for a histogram of sizes a partition whose sizes have no exact law."""
    if rows:
        raise fault(("row",), f"a histogram of {_OF[figure.kind]} trains nothing: write row = []")
    for i, column in enumerate(columns if isinstance(figure, Histogram) else ()):
        if column.partition.name != "random-slicing":
            raise fault(("column", i, "partition", "name"), "sizes are drawn of random-slicing only")


def _check_row(figure: Kde | Curve | Steps | Tsne, i: int, row: Row) -> None:
    """Reject a row with a choice per client, or without the stage that the figure shows."""
    if row.grid:
        raise fault(("row", i, "grid"), f"a {figure.kind} cannot show what clients choose after the last round")
    needed = _NEEDED.get(figure.kind)
    if needed and needed != row.stage and needed not in row.named:
        raise fault(("row", i, row.stage_key), f"a {figure.kind} shows the stage {needed!r}")


def check_statistics(statistics: Statistics, figure: bool, rows: Sequence[Row], columns: Sequence[Column]) -> None:
    """Raise the error for what does not go with statistics; `figure`: the suite has one, too."""
    if figure:
        raise fault(("figure",), "a suite is either statistics or a figure")
    if rows:
        raise fault(("row",), "statistics train nothing: write row = []")
    for i, column in enumerate(columns):
        if column.seeds:
            raise fault(("column", i, "seeds"), "its images are counted with the suite's seeds")
    check_keys(("statistics", "reference"), statistics.reference, [column.id for column in columns])
