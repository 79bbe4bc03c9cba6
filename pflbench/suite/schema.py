"""Strict models of a suite file's tables; their field names are the file's keys."""

from __future__ import annotations

import math
import reprlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from pflbench.spec import Positive
from pflbench.stages import Shown
from pflbench.suite.scoped import Note
from pflbench.suite.sources import Sources, flat
from pflbench.suite.strict import TomlTable, fault

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]


def _hyperparameter(value: Any) -> Any:
    is_like = isinstance(value, dict) and value.keys() == {"like"}
    if is_like and not (isinstance(value["like"], str) and "." in value["like"]):
        raise fault((), f'write {{ like = "row.key" }}, not {reprlib.repr(value)}')
    plain = value["like"] if is_like else value
    if not isinstance(plain, bool | int | float | str) or (isinstance(plain, float) and not math.isfinite(plain)):
        raise fault((), f"a hyperparameter is a finite number, true, false or a string, not {reprlib.repr(value)}")
    return value


Seed = Annotated[int, Field(ge=0, lt=2**32)]
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(lambda seeds: list(dict.fromkeys(seeds)))]
NoteOrText = Annotated[Note, BeforeValidator(lambda value: value if isinstance(value, dict) else {"text": value})]
"""A text is a note without more."""
Value = Annotated[Any, AfterValidator(_hyperparameter)]
"""Value of a hyperparameter; `"none"` unsets an inherited one. `{ like = "row.key" }`: that of another row."""
Hyper = dict[str, Value]
Grid = dict[str, Annotated[list[Value], Field(min_length=1)]]


class Spread(TomlTable):
    """Meaning of ±."""

    kind: Literal["std", "sem"] = "std"
    """Standard deviation or standard error of the mean."""
    ddof: Literal[0, 1] = 1
    """Delta degrees of freedom: 1 divides by n − 1, 0 by n."""
    of: Literal["mean", "each-step"] = "mean"
    """`mean`: the spread of the seeds' means. `each-step`: the spreads at the reported steps, averaged."""
    paper: str = ""
    """Meaning of the ± that the paper printed, in words."""
    n: Annotated[int, Field(ge=2)] | None = None
    """Number of runs behind the paper's ±."""


class SuiteTable(TomlTable):
    """Name, paper, protocol and seeds of the suite. `extends` and `like` are resolved before, see `inherit`."""

    name: Id
    """Id of the suite; by default the file's name."""
    title: str
    """Title of the table; by default the name."""
    paper: str = "none"
    """Paper of the printed numbers; `"none"`: the table is compared with no paper."""
    protocol: Annotated[str, Field(min_length=1)] = "the suite's own"
    """Protocol of the runs in words, for the line under the table."""
    seeds: Seeds
    """Seeds of every column."""
    spread: Spread = Field(default_factory=Spread)
    """Meaning of ±."""
    paper_round: Literal["last", "best"] = "last"
    """Scored round of the paper's numbers. `best`: a best and a lead stand behind each number, and the best, not the
    last, is compared with the paper's.
    """
    notes: list[NoteOrText] = Field(default_factory=list)
    """Sentences below the table."""
    extends: str | None = None
    """Other suite, by name or file, from which this one inherits."""
    rows: list[Id] | None = None
    """Ids of the rows in their order; one without a `[[row]]` is that of the extended suite."""
    columns: list[Id] | None = None
    """Ids of the columns in their order; one without a `[[column]]` is that of the extended suite."""


Query = Share | Literal["test-split", "partition"]
Mean = Literal["clients", "examples"]
"""Average of a table over clients: each counts the same, or is weighted by its number of test examples."""


class FederationKeys(TomlTable):
    """Clients and their data, each key optional: a column's overrides, and once loaded all its values."""

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


class FinetuneKeys(TomlTable):
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


SETTINGS = (
    *("model", "batch", "rounds", *FederationKeys.model_fields, "dataset", "partition"),
    *(f"finetune.{key}" for key in FinetuneKeys.model_fields),
)
"""Settings that have a source, beside the methods' hyperparameters. `dataset`, `partition` and `model` mean all that is
not an option with a source of its own, such as `dataset.normalize`."""


class FinetuneTable(FinetuneKeys):
    """Fine-tuning of a client before it is scored."""

    steps: Positive


class ColumnFinetune(FinetuneKeys):
    """Overrides for everyone, and under the name of a method or row (`cafeme.lr = 0.01`) for that one."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FinetuneKeys] = Field(init=False)


class Report(TomlTable):
    """Fine-tuning steps that a cell averages."""

    steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Fine-tuning steps; 0 is the model before the first."""


ScoredMoment = Literal["after-aggregation", "before-aggregation"]


class Evaluation(TomlTable):
    """Clients that are scored, and the rule."""

    clients: Literal["held-out", "training", "all"] = "all"
    """Clients that are scored."""
    average: Literal["batches", "examples"] = "examples"
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
    sources: Sources = Field(default_factory=dict)
    """Sources of values that the file does not write out, for this column."""
    report: Report | None = None
    """Fine-tuning steps that its cells average, instead of the suite's."""
    subset: Subset | None = None
    """Clients whose scores it reads; by default all that are scored."""
    like: str | None = None
    """Other column, of this file or the extended one, whose keys it inherits."""


class Row(TomlTable):
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
    every: Positive | Literal["last"] | None = None
    """Interval of scored rounds, instead of the suite's; `last`: only the last rounds."""
    moment: ScoredMoment | None = None
    """Moment at which its personal models are scored, instead of the suite's."""
    hyper: Hyper = Field(default_factory=dict)
    """Hyperparameters of this row."""
    grid: Grid = Field(default_factory=dict)
    """Values among which each client chooses."""
    validation: Share | None = None
    """Share of a client's support on which it chooses its point of the grid."""
    like: str | None = None
    """Other row, of this file or the extended one, whose keys it inherits."""

    @property
    def named(self) -> list[Shown]:
        """The stages that it names."""
        return self.stages or [stage for stage in (self.stage,) if stage]

    @model_validator(mode="after")
    def _consistent(self) -> Row:
        if not self.named:
            raise fault(("stage",), "missing")
        if self.stage and self.stage not in self.named:
            raise fault(("stage",), f"none of the row's stages, {', '.join(self.named)}")
        if bool(self.grid) != (self.validation is not None):
            raise fault(("validation",), "a row has both a grid and a validation share, or neither")
        return self


class LayoutTable(TomlTable):
    """Layout of the table."""

    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    """Number of decimals."""
    bold: Literal["best-per-column", "none"] = "best-per-column"
    """Number that is printed bold."""
    stages: dict[Shown, str] = Field(default_factory=dict)
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
        return self


Numbers = Annotated[
    list[float | Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$")]], Field(min_length=1, max_length=2)
]
"""Mean and spread as printed: a text is shown as it stands, a number with the table's decimals."""
Printed = Numbers | dict[str, Numbers]
"""Numbers as printed, alone or by stage."""
TunedGrid = Annotated[Grid, Field(min_length=1), BeforeValidator(flat)]
Point = Annotated[Hyper, Field(min_length=1), BeforeValidator(flat)]


class Tune(TomlTable):
    """Trials of `pflbench tune`."""

    seed: Seed = 41
    """Seed of the trials; the suite's own are refused."""
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

    @model_validator(mode="after")
    def _consistent(self) -> Tune:
        for name, points in self.points.items():
            for i, point in enumerate(points):
                if point.keys() != points[0].keys():
                    raise fault(("points", name, i), f"other keys than the first point's, {', '.join(points[0])}")
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
