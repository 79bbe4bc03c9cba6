"""What a suite file may say: strict models, whose field names are the file's keys."""

from __future__ import annotations

import copy
import difflib
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from pflbench.errors import UsageError, unknown
from pflbench.spec import Positive, Stage

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Rate = Annotated[float, Field(gt=0)]
Source = Literal["paper", "code", "inferred", "guess", "tuned"]
Path_ = tuple[str | int, ...]


def key_path(parts: Sequence[str | int]) -> str:
    """`("column", 2, "batch")` → `column[2].batch`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts).removeprefix(".")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place a value stands at in front of what is wrong with it."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    except ValidationError as error:
        raise UsageError("\n".join(f"{place}.{explain(e)}" for e in error.errors())) from error


def fault(path: Path_, message: str) -> PydanticCustomError:
    """The error for what is at `path`, counted from the table that is validated."""
    return PydanticCustomError("suite", "{message}", {"path": path, "message": message})


def _unknown_key(path: Path_, known: Sequence[str]) -> PydanticCustomError:
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else f" (known: {', '.join(known)})"
    return fault(path, f"unknown key{hint}")


class Table(BaseModel):
    """A TOML table. Its unknown keys are found before anything else, so that they hide the errors they cause."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, table: Any) -> Any:
        if isinstance(table, dict):
            for key, value in table.items():
                if key not in cls.model_fields and not cls.admits(value):
                    raise _unknown_key((key,), list(cls.model_fields))
        return table

    @classmethod
    def admits(cls, value: Any) -> bool:
        """Whether a key that is no field may hold `value`."""
        return False


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise fault((), "a hyperparameter is a finite number, true, false or a string")
    return value


class Sourced(Table):
    """A hyperparameter's value and where it comes from."""

    value: Annotated[Any, AfterValidator(_scalar)]
    source: Source | None = None


Hyper = dict[str, Annotated[Sourced, BeforeValidator(lambda v: v if isinstance(v, dict) else {"value": v})]]


class Spread(Table):
    """What ± means. `each-step`: the spread at each reported step, averaged; `mean`: the spread of the seeds' means."""

    kind: Literal["std", "sem"]
    ddof: Literal[0, 1] = 1
    of: Literal["mean", "each-step"] = "mean"


class SuiteTable(Table):
    """`[suite]`."""

    name: Id
    title: str
    paper: str
    protocol: Literal["code"]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    spread: Spread
    notes: list[str] = []


class FederationKeys(Table):
    """The keys of `[federation]`, each optional: what a column may override."""

    clients: Positive | None = None
    training_clients: Positive | None = None
    cohort: Positive | None = None
    query: Annotated[float, Field(gt=0, lt=1)] | None = None
    weights: Literal["uniform", "examples"] | None = None
    tail: Literal["drop", "keep"] | None = None
    tiny_client: Literal["single-batch", "error"] | None = None


class Federation(FederationKeys):
    """`[federation]`: shared by every column."""

    clients: Positive
    training_clients: Positive
    cohort: Positive
    query: Annotated[float, Field(gt=0, lt=1)]


class FinetuneKeys(Table):
    """Test-time fine-tuning, each key optional; the later of suite, column and method wins."""

    steps: Positive | None = None
    lr: Rate | None = None
    decay: Rate | None = None
    every: Positive | None = None
    optimizer: Literal["sgd"] | None = None


class Finetune(FinetuneKeys):
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


class Report(Table):
    """Which fine-tuning steps a cell averages."""

    steps: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Evaluation(Table):
    """`[evaluation]`: who is scored, and how."""

    clients: Literal["held-out", "training", "all"]
    average: Literal["batches", "examples"]
    first: Positive | None = None
    finetune: Finetune | None = None
    report: Report | None = None


class NamedTable(Table):
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


class Column(FederationKeys):
    """`[[column]]`: one setting."""

    id: Id
    group: str = ""
    title: str
    dataset: NamedTable
    partition: NamedTable
    model: str
    rounds: Positive
    batch: Positive
    hyper: dict[str, Hyper] = {}
    finetune: ColumnFinetune = ColumnFinetune()


class Row(Table):
    """`[[row]]`: a method, seen at one stage. `method` is an id, or a reference relative to the suite file."""

    id: Id
    title: str
    method: str
    stage: Stage
    hyper: Hyper = {}


class Layout(Table):
    """`[layout]`."""

    decimals: Annotated[int, Field(ge=0, le=6)] = 2
    bold: Literal["best-per-column", "none"] = "best-per-column"


class Profile(Table):
    """`[profile.<name>]`: overrides; tables merge, all else is replaced. `column."*"` reaches every column first."""

    seeds: list[int] | None = None
    notes: list[str] | None = None
    federation: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    hyper: dict[str, Any] = {}
    column: dict[str, dict[str, Any]] = {}


class Document(Table):
    """A suite file with one profile applied."""

    suite: SuiteTable
    federation: Federation
    evaluation: Evaluation
    column: Annotated[list[Column], Field(min_length=1)]
    row: Annotated[list[Row], Field(min_length=1)]
    hyper: dict[str, Hyper] = {}
    reference: dict[str, dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]] = {}
    layout: Layout = Layout()
    profile: dict[str, Profile] = {}

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage some row shows: all runs of the suite are scored at each of them."""
        order: tuple[Stage, ...] = ("global", "finetuned")
        return tuple(s for s in order if any(r.stage == s for r in self.row))

    @model_validator(mode="after")
    def _consistent(self) -> Document:
        rows, columns = [r.id for r in self.row], [c.id for c in self.column]
        for table, ids in (("row", rows), ("column", columns)):
            for i, id_ in enumerate(ids):
                if id_ in ids[:i]:
                    raise fault((table, i, "id"), f"there is already a {table} {id_!r}")
        if len(set(self.suite.seeds)) < len(self.suite.seeds):
            raise fault(("suite", "seeds"), "a seed is there twice")
        for row, cells in self.reference.items():
            if row not in rows:
                raise _unknown_key(("reference", row), rows)
            for column in cells:
                if column not in columns:
                    raise _unknown_key(("reference", row, column), columns)
        finetuned, rule = "finetuned" in self.stages, self.evaluation.finetune
        if finetuned != (rule is not None):
            problem = "no row has the stage 'finetuned'" if rule else "missing, but a row has the stage 'finetuned'"
            raise fault(("evaluation", "finetune"), problem)
        if self.evaluation.report and rule is None:
            raise fault(("evaluation", "report"), "there is no fine-tuning to report steps of")
        for i, column_ in enumerate(self.column):
            if column_.finetune.model_fields_set and rule is None:
                raise fault(("column", i, "finetune"), "there is no evaluation.finetune to override")
        if "paper" in self.profile:
            raise fault(("profile", "paper"), "the profile 'paper' is the suite file itself")
        return self


@dataclass(frozen=True)
class Suite:
    """A checked suite file: one document per profile, `paper` (no override) first."""

    path: Path
    documents: Mapping[str, Document]

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.documents["paper"].suite.name

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles there are, `paper` first."""
        return tuple(self.documents)

    def document(self, profile: str = "paper") -> Document:
        """The suite under a profile."""
        if profile not in self.documents:
            raise unknown("profile", profile, self.documents)
        return self.documents[profile]


def parse(raw: Mapping[str, Any], path: Path) -> Suite:
    """The suite that a TOML file's content describes; every mistake is a `UsageError` with the file and key path."""
    paper = _document(raw, f"{path}: ")
    documents = {"paper": paper}
    for name, profile in paper.profile.items():
        prefix = f"{path}: profile.{name}: "
        ids = [c.id for c in paper.column]
        for column in profile.column:
            if column not in ("*", *ids):
                raise UsageError(f"{prefix}{unknown('column', column, ids)}")
        documents[name] = _document(_patched(raw, profile), prefix)
    return Suite(path, documents)


def _document(raw: Mapping[str, Any], prefix: str) -> Document:
    try:
        return Document.model_validate(dict(raw))
    except ValidationError as error:
        raise UsageError("\n".join(prefix + explain(e) for e in error.errors())) from error


def explain(error: Mapping[str, Any]) -> str:
    """One of a `ValidationError`'s errors in a line: the key's path and what is wrong with it."""
    context = error.get("ctx", {})
    key = key_path((*error["loc"], *context.get("path", ())))
    if error["type"] == "missing":
        return f"{key}: missing"
    if error["type"] == "suite":
        return f"{key}: {error['msg']}"
    return f"{key}: {error['msg']}, not {reprlib.repr(error['input'])}"


def _patched(raw: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    patched = copy.deepcopy({k: v for k, v in raw.items() if k != "profile"})
    patched["suite"] |= profile.model_dump(include={"seeds", "notes"}, exclude_none=True)
    for table in ("federation", "evaluation", "hyper"):
        patched[table] = _merged(patched.get(table, {}), getattr(profile, table))
    for i, column in enumerate(patched["column"]):
        for key in ("*", column["id"]):
            patched["column"][i] = _merged(patched["column"][i], profile.column.get(key, {}))
    return patched


def _merged(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        # A table that names a thing or gives a value is a new thing; mixing in the old one's options would be wrong.
        whole = not isinstance(value, dict) or "name" in value or "value" in value
        mixes = not whole and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if mixes else value
    return merged
