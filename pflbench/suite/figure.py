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
    """A client's accuracy against its number of support rows: all seeds' clients in `bins` of about equal numbers."""

    kind: Literal["scatter"]
    bins: Positive


class Histogram(TomlTable):
    """Histogram of clients' numbers of examples over `partitions`, in about `bins` bins, beside the exact law.

    Nothing is trained and no data are read: `classes` (labels), `types` (those, or all their subclasses) and `per_type`
    (training rows of each) say what the published dataset has.
    """

    kind: Literal["histogram"]
    partitions: Positive
    classes: Positive
    types: Positive
    per_type: Positive
    bins: Positive

    @model_validator(mode="after")
    def _consistent(self) -> Histogram:
        if self.types % self.classes:
            raise fault(("types",), f"{self.types} types cannot be divided among {self.classes} classes")
        return self


class Classes(TomlTable):
    """Stacked bars of the examples of each class, for the first `clients` clients. Nothing is trained."""

    kind: Literal["classes"]
    clients: Positive = 10


class Kde(TomlTable):
    """The density of a metric over the clients of all seeds, a curve for each of `rounds`.

    `scale`: divided by the sum over a run's clients ("share"), or by the number of the head's parameters ("dimension").
    """

    kind: Literal["kde"]
    metric: str
    scale: Literal["none", "share", "dimension"] = "none"
    rounds: Annotated[list[Positive], Field(min_length=1)]
    every: Positive
    """Value of `--evaluate-every` for its runs."""


class Curve(TomlTable):
    """Accuracy against the round: the mean over seeds, and its spread."""

    kind: Literal["curve"]
    every: Positive
    """Value of `--evaluate-every` for its runs."""


class Steps(TomlTable):
    """Accuracy against the number of fine-tuning steps: the mean over seeds, its spread, and what a round costs."""

    kind: Literal["steps"]


class Across(TomlTable):
    """Accuracy against the columns, in one panel: the mean over seeds, its spread, and what the paper printed.

    `x`: what the axis is called; `at`: the number that each column stands at, in their order; without it they stand
    beside each other under their titles. `y`: the least and the most accuracy shown, where that is not all.
    """

    kind: Literal["columns"]
    x: Annotated[str, Field(min_length=1)]
    mark: Literal["bars", "line"] = "bars"
    at: Annotated[list[float], Field(min_length=1)] | None = None
    y: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Across:
        if self.at is not None and any(a >= b for a, b in pairwise(self.at)):
            raise fault(("at",), "numbers that rise from column to column")
        if self.y is not None and not self.y[0] < self.y[1]:
            raise fault(("y",), "the least accuracy shown, then the most")
        return self


class Tsne(TomlTable):
    """Each client's mean features after each of the first `rounds` rounds, a point a round, laid out by t-SNE.

    A line of panels for each client: for each number of rounds one for every row, and one of all rows together. Needs
    `evaluation.features`. `seed`: t-SNE's own; runs are those of one of the suite's seeds.
    """

    kind: Literal["tsne"]
    rounds: Annotated[list[Positive], Field(min_length=1)]
    perplexity: Rate
    seed: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _enough(self) -> Tsne:
        for i, number in enumerate(self.rounds):
            if number <= self.perplexity:
                raise fault(("rounds", i), f"{number} points are too few for a perplexity of {self.perplexity:g}")
        return self


class Sizes(TomlTable):
    """A dataset's numbers of examples and of classes, as the paper printed them."""

    total: Positive
    train: Positive
    test: Positive
    classes: Positive


COLUMNS = tuple(Sizes.model_fields)
"""Numbers that the table has of each dataset, in its order."""


class Statistics(TomlTable):
    """`[statistics]`: every column of the suite becomes a line. `reference`: what the paper printed, by column."""

    reference: dict[str, Sizes] = Field(default_factory=dict)


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
        raise fault(("row",), "List should have at least 1 item, except for a histogram of sizes or of classes")
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
    check_keys(("statistics", "reference"), statistics.reference, [column.id for column in columns])
