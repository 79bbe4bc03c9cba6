"""Strict models of a suite file's tables; their field names are the file's keys."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from pflbench.errors import UsageError
from pflbench.spec import Positive
from pflbench.stages import SHOWN, Shown
from pflbench.suite.halving import parse_halving
from pflbench.suite.scoped import Note
from pflbench.suite.sources import Settled, Source, Sources
from pflbench.suite.strict import TomlTable, check_keys, check_names, fault

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise fault((), "a hyperparameter is a finite number, true, false or a string")
    return value


def _short_for(key: str) -> BeforeValidator:
    """Validator that reads a value which is no table as a table with this key alone."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {key: value})


class Sourced(TomlTable):
    """A hyperparameter's value and where it comes from, or the row and hyperparameter that it is always like.

    With `like` the source is the other one's, unless it is given.
    """

    value: Annotated[Any, AfterValidator(_scalar)] = None
    source: Source | None = None
    like: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Sourced:
        given = self.model_fields_set
        if {"like", "value"} <= given:
            raise fault(("like",), "it has the other one's value, not its own")
        if "like" not in given and "value" not in given:
            raise fault(("value",), "missing")
        return self


class Candidates(TomlTable):
    """The values of a hyperparameter that a grid tries, and where they come from."""

    value: Annotated[list[Annotated[Any, AfterValidator(_scalar)]], Field(min_length=1)]
    source: Source | None = None


Hyper = dict[str, Annotated[Sourced, _short_for("value")]]
Grid = dict[str, Annotated[Candidates, _short_for("value")]]


class Runs(TomlTable):
    """Number of runs behind a paper's numbers."""

    value: Annotated[int, Field(ge=2)]
    source: Source


class Spread(TomlTable):
    """Meaning of ±. `each-step`: the spread at each reported step, averaged; `mean`: the spread of the seeds' means.

    `paper`: what the ± that the paper printed is, in words; `n`: over how many runs that is, with its source.
    """

    kind: Literal["std", "sem"]
    ddof: Literal[0, 1] = 1
    of: Literal["mean", "each-step"] = "mean"
    paper: str = ""
    n: Runs | None = None


class SuiteTable(TomlTable):
    """`[suite]`. `extends` is resolved before the file is checked, see `inherit`.

    `protocol`: what its runs follow, in words, as the line under the table has it.
    """

    name: Id
    title: str
    paper: str
    protocol: Annotated[str, Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    spread: Spread
    notes: list[Annotated[Note, _short_for("text")]] = Field(default_factory=list)
    extends: str | None = None


def _query(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value not in ("test-split", "partition") and not (number and 0 < value < 1):
        raise fault((), f'a share between 0 and 1, "test-split" or "partition", not {reprlib.repr(value)}')
    return value


Query = Annotated[float | Literal["test-split", "partition"], BeforeValidator(_query)]
Mean = Literal["clients", "examples"]
"""Average of a table over clients: each counts the same, or is weighted by its number of test examples."""


class FederationKeys(Settled):
    """The keys of `[federation]`, each optional: what a column may override."""

    clients: Positive | None = None
    training_clients: Positive | None = None
    cohort: Positive | None = None
    query: Query | None = None
    arrival: Annotated[float, Field(gt=0, le=1)] | None = None
    weights: Literal["uniform", "examples"] | None = None
    batches: Literal["static", "reshuffled"] | None = None
    augment: Literal["none", "crop-flip"] | None = None
    tail: Literal["drop", "keep"] | None = None
    tiny_client: Literal["single-batch", "error"] | None = None
    draws: Literal["shared", "per-method"] | None = None


class FederationTable(FederationKeys):
    """`[federation]`: shared by every column. Without a number of them, all clients train; they are the cohort."""

    clients: Positive
    query: Query


class FinetuneKeys(Settled):
    """Test-time fine-tuning, each key optional; the later of suite, column and method wins."""

    steps: Positive | None = None
    lr: Rate | None = None
    decay: Rate | None = None
    every: Positive | None = None
    optimizer: Literal["sgd"] | None = None


class FinetuneTable(FinetuneKeys):
    """`evaluation.finetune`."""

    steps: Positive


class ColumnFinetune(FinetuneKeys):
    """`column.finetune`: overrides for everyone, and under a method's name (`cafeme.lr = 0.01`) for that method."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FinetuneKeys] = Field(init=False)

    @classmethod
    def admits(cls, value: Any) -> bool:
        """A table is a method's overrides."""
        return isinstance(value, dict)


class Report(TomlTable):
    """Fine-tuning steps that a cell averages."""

    steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Evaluation(TomlTable):
    """`[evaluation]`: who is scored, and how. `mean` is how a table reads the scores, and trains nothing again."""

    clients: Literal["held-out", "training", "all"]
    average: Literal["batches", "examples"]
    first: Positive | None = None
    global_on: Literal["clients", "test-set"] = "clients"
    moment: Literal["after-aggregation", "before-aggregation"] = "after-aggregation"
    last: Positive = 1
    features: bool = False
    mean: Mean = "clients"
    finetune: FinetuneTable | None = None
    report: Report | None = None


class NamedTable(TomlTable):
    """A dataset or partition: its name and its options."""

    model_config = ConfigDict(extra="allow")

    name: str

    @model_validator(mode="before")
    @classmethod
    def _has_name(cls, table: Any) -> Any:
        # Any other key is an option, so a misspelled name would only show as missing.
        if isinstance(table, dict) and "name" not in table:
            raise fault(("name",), f"missing (keys there: {', '.join(table) or 'none'})")
        return table

    @classmethod
    def admits(cls, value: Any) -> bool:
        """Options are checked against the named class when the suite is expanded."""
        return True


class Subset(TomlTable):
    """Whose scores a column reads: those of the clients with the fewest examples."""

    smallest: Positive


class Column(FederationKeys):
    """`[[column]]`: one setting. `report` and `subset` are how it is read; `like` is resolved before, see `inherit`.

    `seeds`: instead of the suite's; a profile's seeds stand in place of both.
    `suspect`: why the paper's numbers in it cannot be compared with. `sources`: as the suite's, for this column alone.
    """

    id: Id
    group: str = ""
    title: str
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    dataset: NamedTable
    partition: NamedTable
    model: str
    rounds: Positive
    batch: Positive
    hyper: dict[str, Hyper] = Field(default_factory=dict)
    finetune: ColumnFinetune = Field(default_factory=ColumnFinetune)
    suspect: str | None = None
    sources: Sources = Field(default_factory=dict)
    report: Report | None = None
    subset: Subset | None = None
    like: str | None = None


class Row(Settled):
    """`[[row]]`: a method, seen at one stage or several. `method` is an id, or a reference relative to the suite file.

    With both, its runs are scored at all `stages`, of which the table shows `stage`. `scored`: stages that its runs are
    scored at as far as the method has them, shown or not; a row that is like one of an extended suite has that suite's,
    so that the two have the same runs.
    `after`: the row from whose last model its runs start, in place of the seed's initial one; that row may be after
    another one. `suspect`: as a column's, in place of every `[[suspect]]` on the row.
    With a grid, `select` says how each client's point of it is chosen, on the `validation` share of its support.
    `name`: the title that reports show in place of a paper's "Ours".
    """

    id: Id
    title: str
    name: str = ""
    method: str
    stage: Shown | None = None
    stages: Annotated[list[Shown], Field(min_length=1)] | None = None
    scored: list[Shown] = Field(default_factory=list)
    rounds: Positive | None = None
    after: str | None = None
    hyper: Hyper = Field(default_factory=dict)
    grid: Grid = Field(default_factory=dict)
    select: Literal["hold-out"] | None = None
    validation: Share | None = None
    suspect: str | None = None
    like: str | None = None

    @property
    def named(self) -> list[Shown]:
        """The stages that it names."""
        return self.stages or [stage for stage in (self.stage,) if stage]

    @property
    def stage_key(self) -> Literal["stage", "stages"]:
        """The key by which it names them all."""
        return "stage" if self.stages is None else "stages"

    @model_validator(mode="after")
    def _consistent(self) -> Row:
        if self.stage is None and self.stages is None:
            raise fault(("stage",), "missing")
        if self.stage is not None and self.stages is not None and self.stage not in self.stages:
            raise fault(("stage",), f"none of the row's stages, {', '.join(self.stages)}")
        if self.stages and len(set(self.stages)) < len(self.stages):
            raise fault(("stages",), "a stage is there twice")
        for key in ("select", "validation"):
            if bool(self.grid) != (getattr(self, key) is not None):
                raise fault((key,), "missing, but there is a grid" if self.grid else "there is no grid to choose from")
        for key in self.grid:
            if key in self.hyper:
                raise fault(("grid", key), "the row's hyper gives it a value already")
        return self


def _by_stage(value: Any) -> Any:
    check_keys((), value if isinstance(value, dict) else (), SHOWN)
    return value


class LayoutTable(TomlTable):
    """`[layout]`. `stages`: each column shows these, under these titles. `blocks`: rows once per group of columns.

    `costs`: the footer tells what a round costs each row. `spread`: a spread stands behind each number. `beside`: a
    suite's name or the path of its file, whose numbers stand beside these, in the same rows and columns by id.
    """

    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    bold: Literal["best-per-column", "none"] = "best-per-column"
    stages: Annotated[dict[Shown, str], BeforeValidator(_by_stage)] = Field(default_factory=dict)
    blocks: Literal["group", "none"] = "none"
    costs: bool = False
    spread: bool = True
    beside: str | None = None


class DerivedTable(TomlTable):
    """`[[derived]]`: a row that is the difference of two rows, or a column that is that of two columns.

    `spread`: a spread stands behind each difference, if the table has one behind its numbers.
    """

    id: Id
    title: str
    spread: bool = True
    rows: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    columns: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None

    @property
    def axis(self) -> Literal["rows", "columns"]:
        """Axis to which it adds one."""
        return "columns" if self.rows is None else "rows"

    @property
    def of(self) -> tuple[str, str]:
        """The first minus the second."""
        first, second = self.columns if self.rows is None else self.rows  # type: ignore[misc]
        return first, second

    @model_validator(mode="after")
    def _consistent(self) -> DerivedTable:
        if (self.rows is None) == (self.columns is None):
            raise fault((), "the difference of what? Give either rows or columns, two of them")
        if len(set(self.of)) < 2:
            raise fault((self.axis,), f"{self.of[0]!r} minus itself")
        return self


def _printed(value: Any) -> Any:
    """Numbers as printed, alone or by stage."""
    if not isinstance(value, dict):
        return _numbers(value, ())
    return {stage: _numbers(numbers, (stage,)) for stage, numbers in _by_stage(value).items()}


def _numbers(value: Any, path: tuple[str, ...]) -> list[float | str]:
    listed = value if isinstance(value, list) else []
    if not 0 < len(listed) < 3 or not all(map(_is_number, listed)) or (len(listed) == 2 and float(listed[1]) < 0):
        raise fault(path, f"[mean, spread] or [mean], as printed, not {reprlib.repr(value)}")
    return [v if isinstance(v, str) else float(v) for v in listed]


def _is_number(value: Any) -> bool:
    """True for a finite number, or one written as text for its own number of decimals."""
    if isinstance(value, str):
        return re.fullmatch(r"-?\d+(\.\d+)?", value, re.ASCII) is not None
    return type(value) in (int, float) and math.isfinite(value)


Numbers = list[float | str]
"""Mean and spread as printed: a text is shown as it stands, a number with the table's decimals."""
Printed = Annotated[Numbers | dict[Shown, Numbers], BeforeValidator(_printed)]


def _with_finetuning(value: Any) -> Any:
    """A grid in which `finetune.lr = […]`, a table in TOML, is a key like the others."""
    if not isinstance(value, dict) or not isinstance(value.get("finetune"), dict):
        return value
    rest = {key: one for key, one in value.items() if key != "finetune"}
    return rest | {f"finetune.{key}": one for key, one in value["finetune"].items()}


def _halving(text: str) -> str:
    try:
        parse_halving(text)
    except UsageError as error:
        raise fault((), str(error)) from None
    return text


TunedGrid = Annotated[Grid, Field(min_length=1), BeforeValidator(_with_finetuning)]
Point = Annotated[
    dict[str, Annotated[Any, AfterValidator(_scalar)]], Field(min_length=1), BeforeValidator(_with_finetuning)
]


class Tune(TomlTable):
    """`[tune]`: what `pflbench tune` tries. `reduced` names the keys of a method's grid that its cheap search varies.

    `columns` are tuned if none is asked for, with `seed` or with all `seeds`; trials are scored on a `validation` share
    of the support. `points` are in place of a grid: the trials one by one. `finetune.lr` is a key like the others.
    With `halving` (`"12@3,4@10"`, see `halving`), grids are taken whole, and each row is tuned for itself. `read`, by
    method or row id: the scored rounds that chose the suite's values, where it was not the last one alone.
    """

    seed: Annotated[int, Field(ge=0)] = 41
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    validation: Share = 0.1
    columns: list[str] = Field(default_factory=list)
    grid: dict[str, TunedGrid] = Field(default_factory=dict)
    points: dict[str, Annotated[list[Point], Field(min_length=2)]] = Field(default_factory=dict)
    reduced: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(default_factory=dict)
    halving: Annotated[str, AfterValidator(_halving)] | None = None
    read: dict[str, Literal["last", "last-10"]] = Field(default_factory=dict)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds of its trials."""
        return tuple(dict.fromkeys(self.seeds)) if self.seeds else (self.seed,)

    @model_validator(mode="after")
    def _consistent(self) -> Tune:
        check_keys(("reduced",), self.reduced, self.grid)
        for method, keys in self.reduced.items():
            check_names(("reduced", method), "hyperparameter", keys, self.grid[method])
        if {"seed", "seeds"} <= self.model_fields_set:
            raise fault(("seeds",), "there is a seed already")
        for name, points in self.points.items():
            if name in self.grid:
                raise fault(("points", name), "there is a grid of it already")
            for i, point in enumerate(points):
                if point.keys() != points[0].keys():
                    raise fault(("points", name, i), f"other keys than the first point's, {', '.join(points[0])}")
                if point in points[:i]:
                    raise fault(("points", name, i), "a point is there twice")
        return self


class Profile(TomlTable):
    """`[profile.<name>]`: overrides; tables merge, all else is replaced. `column."*"` reaches every column first."""

    seeds: list[int] | None = None
    notes: list[Any] | None = None
    federation: dict[str, Any] = Field(default_factory=dict)
    evaluation: dict[str, Any] = Field(default_factory=dict)
    hyper: dict[str, Any] = Field(default_factory=dict)
    column: dict[str, dict[str, Any]] = Field(default_factory=dict)
