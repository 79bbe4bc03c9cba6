"""Strict models of a suite file's tables; their field names are the file's keys."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from pflbench.spec import Positive
from pflbench.stages import SHOWN, Shown
from pflbench.suite.scoped import Note
from pflbench.suite.sources import Settled, Source, Sources
from pflbench.suite.strict import TomlTable, check_keys, fault

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


def _unique(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise fault((), "a seed is there twice")
    return seeds


Seeds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1), AfterValidator(_unique)]


class Sourced(TomlTable):
    """Value of a hyperparameter with its source, or another row's hyperparameter that it is always like.

    With `like`, a missing source is the other one's.
    """

    value: Annotated[Any, AfterValidator(_scalar)] = None
    """Value; `"none"` unsets an inherited one."""
    source: Source | None = None
    """Source of the value."""
    like: str | None = None
    """Other row and hyperparameter, `row.key`, whose value and source it always has."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Sourced:
        given = self.model_fields_set
        if {"like", "value"} <= given:
            raise fault(("like",), "it has the other one's value, not its own")
        if "like" not in given and "value" not in given:
            raise fault(("value",), "missing")
        return self


class Candidates(TomlTable):
    """Values of a hyperparameter that a grid tries."""

    value: Annotated[list[Annotated[Any, AfterValidator(_scalar)]], Field(min_length=1)]
    """Values that are tried."""
    source: Source | None = None
    """Source of the values."""


Hyper = dict[str, Annotated[Sourced, _short_for("value")]]
Grid = dict[str, Annotated[Candidates, _short_for("value")]]


class Runs(TomlTable):
    """Number of runs behind a paper's numbers."""

    value: Annotated[int, Field(ge=2)]
    """Number of runs."""
    source: Source
    """Source of the number."""


class Spread(TomlTable):
    """Meaning of ±."""

    kind: Literal["std", "sem"]
    """Standard deviation or standard error of the mean."""
    ddof: Literal[0, 1] = 1
    """Delta degrees of freedom: 1 divides by n − 1, 0 by n."""
    of: Literal["mean", "each-step"] = "mean"
    """`mean`: the spread of the seeds' means. `each-step`: the spreads at the reported steps, averaged."""
    paper: str = ""
    """Meaning of the ± that the paper printed, in words."""
    n: Runs | None = None
    """Number of runs behind the paper's ±."""


class SuiteTable(TomlTable):
    """Name, paper, protocol and seeds of the suite. `extends` and `like` are resolved before, see `inherit`."""

    name: Id
    """Id of the suite; by default the file's name."""
    title: str
    """Title of the table; by default the name."""
    paper: str
    """Paper of the printed numbers; `"none"`: the table is compared with no paper."""
    protocol: Annotated[str, Field(min_length=1)]
    """Protocol of the runs in words, for the line under the table."""
    seeds: Seeds
    """Seeds of every column."""
    spread: Spread
    """Meaning of ±."""
    paper_round: Literal["last", "best"] = "last"
    """Scored round of the paper's numbers. `best`: a best and a lead stand behind each number, and the best, not the
    last, is compared with the paper's.
    """
    notes: list[Annotated[Note, _short_for("text")]] = Field(default_factory=list)
    """Sentences below the table."""
    extends: str | None = None
    """Other suite, by name or file, from which this one inherits."""


def _query(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value not in ("test-split", "partition") and not (number and 0 < value < 1):
        raise fault((), f'a share between 0 and 1, "test-split" or "partition", not {reprlib.repr(value)}')
    return value


Query = Annotated[float | Literal["test-split", "partition"], BeforeValidator(_query)]
Mean = Literal["clients", "examples"]
"""Average of a table over clients: each counts the same, or is weighted by its number of test examples."""


class FederationKeys(Settled):
    """Clients and their data, each key optional: a column's overrides."""

    clients: Positive | None = None
    """Number of clients."""
    training_clients: Positive | None = None
    """Number of clients that take part in training; by default all."""
    cohort: Positive | None = None
    """Number of clients sampled for a round; by default all training clients."""
    query: Query | None = None
    """Share of a client's examples that it is scored on; `"test-split"`: test images of the types it holds;
    `"partition"`: as the partition deals.
    """
    arrival: Annotated[float, Field(gt=0, le=1)] | None = None
    """Chance that an upload reaches the server, at least two in a round."""
    weights: Literal["uniform", "examples"] | None = None
    """Weights of the server's mean."""
    batches: Literal["static", "reshuffled", "reshuffled-full"] | None = None
    """`static`: minibatches are cut once. `reshuffled`: they are cut anew in every epoch. `reshuffled-full`: a pass
    leaves out its last, short minibatch."""
    augment: Literal["none", "crop-flip"] | None = None
    """Change of training images; `crop-flip`: a random crop with 4 pixels of padding and a flip."""
    tail: Literal["drop", "keep"] | None = None
    """A client's last short minibatch of static ones."""
    tiny_client: Literal["single-batch", "error"] | None = None
    """A client with fewer examples than one minibatch."""


class FederationTable(FederationKeys):
    """Clients and their data, shared by every column."""

    clients: Positive
    query: Query


class FinetuneKeys(Settled):
    """Test-time fine-tuning, each key optional. The nearest of suite, column, method and row wins."""

    steps: Positive | None = None
    """Number of steps."""
    lr: Rate | None = None
    """Learning rate of the first step."""
    decay: Rate | None = None
    """Factor of the learning rate after every `every` steps."""
    every: Positive | None = None
    """Number of steps between two decays."""
    optimizer: Literal["sgd"] | None = None
    """Optimizer."""


class FinetuneTable(FinetuneKeys):
    """Fine-tuning of a client before it is scored."""

    steps: Positive


class ColumnFinetune(FinetuneKeys):
    """Overrides for everyone, and under the name of a method or row (`cafeme.lr = 0.01`) for that one."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FinetuneKeys] = Field(init=False)

    @classmethod
    def admits(cls, value: Any) -> bool:
        """A table is a method's overrides."""
        return isinstance(value, dict)


class Report(TomlTable):
    """Fine-tuning steps that a cell averages."""

    steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Fine-tuning steps; 0 is the model before the first."""


ScoredMoment = Literal["after-aggregation", "before-aggregation"]


class Evaluation(TomlTable):
    """Clients that are scored, and the rule."""

    clients: Literal["held-out", "training", "all"]
    """Clients that are scored."""
    average: Literal["batches", "examples"]
    """`examples`: a client's accuracy is correct / count. `batches`: the mean accuracy of its minibatches."""
    first: Positive | None = None
    """Number of clients that are scored, in the order of their numbers; by default all."""
    global_on: Literal["clients", "test-set"] = "clients"
    """`clients`: the global model is scored on each client's query. `test-set`: once on the whole test split."""
    moment: ScoredMoment = "after-aggregation"
    """Moment at which personal models are scored: put together after aggregation, or as training leaves them before
    it.
    """
    last: Positive = 1
    """Number of last rounds that are scored; a cell is the mean over them."""
    every: Positive | None = None
    """Interval of rounds after which runs are scored, too, unless `--evaluate-every` says another. It changes no run.
    """
    features: bool = False
    """True stores the mean features of each personal model."""
    mean: Mean = "clients"
    """`clients`: each client counts the same. `examples`: weighted by its test examples. It changes no run."""
    finetune: FinetuneTable | None = None
    """Fine-tuning before a client is scored."""
    report: Report | None = None
    """Fine-tuning steps that a cell averages; by default the last."""


class NamedTable(TomlTable):
    """A dataset or partition: its name and its options."""

    model_config = ConfigDict(extra="allow")

    name: str
    """Built-in name, or `file.py:Class`; the other keys are its options."""

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
    """Clients with the fewest examples, whose scores alone a column reads."""

    smallest: Positive
    """Number of clients."""


class Column(FederationKeys):
    """Setting: dataset, partition, network and lengths. `report` and `subset` change no run."""

    id: Id
    """Id of the column."""
    group: str = ""
    """Title above columns that stand together."""
    title: str
    """Title; by default the id."""
    seeds: Seeds | None = None
    """Seeds instead of the suite's; a profile's seeds replace both."""
    dataset: NamedTable
    """Dataset and its options."""
    partition: NamedTable
    """Partition and its options."""
    model: str
    """Network: a built-in name or `file.py:function`."""
    rounds: Positive
    """Number of rounds."""
    batch: Positive
    """Size of a minibatch."""
    hyper: dict[str, Hyper] = Field(default_factory=dict)
    """Hyperparameters by method or row id."""
    finetune: ColumnFinetune = Field(default_factory=ColumnFinetune)
    """Fine-tuning in this column, for all or by method or row id."""
    suspect: str | None = None
    """Reason why the paper's numbers here cannot be compared."""
    sources: Sources = Field(default_factory=dict)
    """Sources of values that the file does not write out, for this column."""
    report: Report | None = None
    """Fine-tuning steps that its cells average, instead of the suite's."""
    subset: Subset | None = None
    """Clients whose scores it reads; by default all that are scored."""
    like: str | None = None
    """Other column, of this file or the extended one, whose keys it inherits."""


def _interval(value: Any) -> Any:
    if value != "last" and (type(value) is not int or value < 1):
        raise fault((), f'a number of rounds or "last", not {reprlib.repr(value)}')
    return value


class Row(Settled):
    """Method, shown at one stage or several.

    With `stage` and `stages`, its runs are scored at all `stages`, and the table shows `stage`. A row that is like one
    of an extended suite is scored at that suite's stages, so that the two have the same runs.
    """

    id: Id
    """Id of the row; by default the method's name."""
    title: str
    """Title; by default the id."""
    name: str = ""
    """Title that reports show in place of a paper's "Ours"."""
    method: str
    """Method: a built-in id, `module:Class`, or `file.py:Class` relative to the suite file."""
    variant: str = ""
    """Name of the variant of this method that its runs train; from `method`."""
    stage: Shown | None = None
    """Stage that the table shows."""
    stages: Annotated[list[Shown], Field(min_length=1)] | None = None
    """All stages at which its runs are scored, and which `layout.stages` may show."""
    scored: list[Shown] = Field(default_factory=list)
    """Further stages at which its runs are scored, if the method has them; shown or not."""
    rounds: Positive | None = None
    """Number of rounds, instead of the columns'."""
    every: Annotated[Positive | Literal["last"] | None, BeforeValidator(_interval)] = None
    """Interval of scored rounds, instead of the suite's; `last`: only the last rounds."""
    moment: ScoredMoment | None = None
    """Moment at which its personal models are scored, instead of the suite's."""
    hyper: Hyper = Field(default_factory=dict)
    """Hyperparameters of this row."""
    grid: Grid = Field(default_factory=dict)
    """Values among which each client chooses."""
    select: Literal["hold-out"] | None = None
    """Rule by which a client chooses its point of the grid."""
    validation: Share | None = None
    """Share of a client's support on which it chooses."""
    suspect: str | None = None
    """Reason why the paper's numbers here cannot be compared; it replaces every `[[suspect]]` on the row."""
    like: str | None = None
    """Other row, of this file or the extended one, whose keys it inherits."""

    @property
    def named(self) -> list[Shown]:
        """The stages that it names."""
        return self.stages or [stage for stage in (self.stage,) if stage]

    def scored_at(self, suite: Evaluation) -> ScoredMoment:
        """Moment at which its personal models are scored."""
        return self.moment or suite.moment

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
    """Layout of the table."""

    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    """Number of decimals."""
    bold: Literal["best-per-column", "none"] = "best-per-column"
    """Number that is printed bold."""
    stages: Annotated[dict[Shown, str], BeforeValidator(_by_stage)] = Field(default_factory=dict)
    """Stages that each column shows side by side, with their titles."""
    blocks: Literal["group", "none"] = "none"
    """`group`: the rows stand once for each group of columns."""
    costs: bool = False
    """True: the footer has the costs of a round for each row."""
    spread: bool = True
    """False: no ± stands behind numbers."""
    beside: str | None = None
    """Other suite, by name or file, whose numbers stand beside these in the same rows and columns."""


class DerivedTable(TomlTable):
    """Row that is the difference of two rows, or column that is the difference of two columns."""

    id: Id
    """Id of the new row or column."""
    title: str
    """Title."""
    spread: bool = True
    """False: no ± stands behind the differences."""
    rows: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Two row ids: the first minus the second."""
    columns: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    """Two column ids: the first minus the second."""

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


TunedGrid = Annotated[Grid, Field(min_length=1), BeforeValidator(_with_finetuning)]
Point = Annotated[
    dict[str, Annotated[Any, AfterValidator(_scalar)]], Field(min_length=1), BeforeValidator(_with_finetuning)
]


class Tune(TomlTable):
    """Trials of `pflbench tune`."""

    seed: Annotated[int, Field(ge=0)] = 41
    """Seed of the trials; the suite's own are refused."""
    seeds: Seeds | None = None
    """Seeds of the trials, instead of one."""
    validation: Share = 0.1
    """Share of the support on which trials are scored."""
    columns: list[str] = Field(default_factory=list)
    """Columns that are tuned unless the command names others."""
    grid: dict[str, TunedGrid] = Field(default_factory=dict)
    """Values of each hyperparameter by method or row id; `finetune.lr` is a key like the others."""
    points: dict[str, Annotated[list[Point], Field(min_length=2)]] = Field(default_factory=dict)
    """Trials one by one, in place of a grid."""
    read: dict[str, Literal["last", "last-10"]] = Field(default_factory=dict)
    """Scored rounds that chose the suite's values, by method or row id; by default the last."""

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds of its trials."""
        return tuple(dict.fromkeys(self.seeds)) if self.seeds else (self.seed,)

    @model_validator(mode="after")
    def _consistent(self) -> Tune:
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
    """Overrides of the file. Tables merge; all else is replaced."""

    seeds: list[int] | None = None
    """Seeds, instead of the suite's and the columns'."""
    notes: list[Any] | None = None
    """Notes, instead of the suite's."""
    federation: dict[str, Any] = Field(default_factory=dict)
    """Overrides of `[federation]`."""
    evaluation: dict[str, Any] = Field(default_factory=dict)
    """Overrides of `[evaluation]`."""
    hyper: dict[str, Any] = Field(default_factory=dict)
    """Overrides of `[hyper]`."""
    column: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Overrides of columns by id; `"*"` reaches every column first."""
