"""A suite file as a whole, under each of its profiles: checks that its tables fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from pflbench.errors import UsageError, unknown
from pflbench.names import without_folder
from pflbench.spec import RunSpec, Stage
from pflbench.stages import Shown, canonical, scores_held_out
from pflbench.suite import figure as figures
from pflbench.suite.inherit import merged
from pflbench.suite.schema import (
    Column,
    DerivedTable,
    Evaluation,
    FederationTable,
    Hyper,
    LayoutTable,
    Printed,
    Profile,
    Row,
    SuiteTable,
    Tune,
)
from pflbench.suite.scoped import Departure, Follows, Inference, Note, Remarks, Scoped, Suspicion
from pflbench.suite.sources import Sources, split
from pflbench.suite.strict import TomlTable, all_known, at, validated
from pflbench.suite.user_supplied import UserSupplied

ColumnKey = tuple[str, str, str, int, int]
"""Dataset, partition, network, and numbers of clients and rounds of a column, as its table has them. Runs with others
stand in no cell of it."""


def column_key(run: RunSpec) -> ColumnKey:
    """Key of a run's column."""
    return run.dataset.name, run.partition.name, run.model, run.clients, run.rounds


class Document(TomlTable):
    """A suite file with one profile applied."""

    suite: SuiteTable
    """Name, paper, seeds and notes."""
    federation: FederationTable
    """Clients and their data, shared by every column."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """Clients that are scored, and the rule."""
    column: Annotated[list[Column], Field(min_length=1)]
    """Columns, in their order."""
    row: list[Row]
    """Rows, in their order; `[]` for a figure or a count of datasets without runs."""
    derived: list[DerivedTable] = Field(default_factory=list)
    """Further rows or columns that are differences."""
    hyper: dict[str, Hyper] = Field(default_factory=dict)
    """Hyperparameters by method, for every column."""
    sources: Sources = Field(default_factory=dict)
    """Sources of values that the file does not write out: by setting, or by method or row id and hyperparameter."""
    suspect: list[Suspicion] = Field(default_factory=list)
    """Suspicions about the paper's numbers."""
    inferred: list[Inference] = Field(default_factory=list)
    """Settings that were inferred from the paper's numbers."""
    follows: list[Follows] = Field(default_factory=list)
    """Protocols of single rows and columns."""
    departure: list[Departure] = Field(default_factory=list)
    """Differences from the paper's text."""
    reference: dict[str, dict[str, Printed]] = Field(default_factory=dict)
    """Numbers as the paper printed them, by row and column: `[mean, spread]` or `[mean]`; by stage where a row shows
    several.
    """
    layout: LayoutTable = Field(default_factory=LayoutTable)
    """Layout of the table."""
    figure: figures.Figure | None = None
    """Figure that the suite draws, in place of a table."""
    statistics: figures.Statistics | None = None
    """Count of the datasets' images, in place of a table of runs."""
    tune: Tune = Field(default_factory=Tune)
    """Trials of `pflbench tune`."""
    profile: dict[str, Profile] = Field(default_factory=dict)
    """Named overrides of this file."""
    _inherited: Remarks = PrivateAttr(default=())
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[str, str]:
        """Sources that are written beside values, by the path of the key: `column[0].dataset.normalize`."""
        return self._origins

    @property
    def remarks_by_key(self) -> dict[str, Sequence[Scoped]]:
        """Scoped tables of this file, by their key."""
        return {
            "suite.notes": self.suite.notes,
            "departure": self.departure,
            "suspect": self.suspect,
            "inferred": self.inferred,
            "follows": self.follows,
        }

    @property
    def remarks(self) -> Remarks:
        """Scoped tables of this file, then those of the files that it extends."""
        return (tuple(chain.from_iterable(self.remarks_by_key.values())), *self._inherited)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage that a row names; runs are scored at each of them unless their row lists `stages` of its own.

        In either case only at those that their method has.
        """
        return canonical(stage for row in self.row for stage in row.named)

    @property
    def all_seeds(self) -> set[int]:
        """Seeds of the suite and of any column."""
        return {*self.suite.seeds, *chain.from_iterable(column.seeds or () for column in self.column)}

    @property
    def held_out(self) -> bool:
        """True if clients that never train are scored in some column."""
        sizes = [(column.clients or 0, column.training_clients) for column in self.column]
        return any(scores_held_out(self.evaluation.clients, training or n, n) for n, training in sizes)

    def column_keys(self, rounds: int | None = None) -> set[ColumnKey]:
        """Keys of the columns' runs, without expanding it; `rounds`: selected instead of its own."""
        of_rows, plain = {row.rounds for row in self.row if row.rounds}, without_folder
        return {
            (plain(c.dataset.name), plain(c.partition.name), plain(c.model), c.clients or 0, count)
            for c in self.column
            for count in {rounds or c.rounds, *(min(one, rounds or one) for one in of_rows)}
        }

    @property
    def scored_anywhere(self) -> set[str]:
        """The stages that any row's runs are scored at."""
        return {stage for row in self.row for stage in self.scored(row)}

    def scored(self, row: Row) -> tuple[Stage, ...]:
        """The stages that a row's runs are scored at."""
        return canonical([*row.stages, *row.scored]) if row.stages else canonical([*self.stages, *row.scored])

    def shown(self, row: Row) -> tuple[Shown, ...]:
        """The stages of a row that the table shows, in the table's order."""
        if self.layout.stages:
            return tuple(stage for stage in self.layout.stages if stage in row.named)
        return (row.stage,) if row.stage else tuple(row.stages or ())


Named = tuple[str, str, Iterable[str], Iterable[str]]
"""Key, kind of thing, names at that key, and all names of that kind."""


def check(document: Document) -> None:
    """Check that the tables of a file fit together. Raises `UsageError` that begins with the key."""
    for axis, tables in (("row", document.row), ("column", document.column)):
        ids = [one.id for one in (*tables, *document.derived)]
        if repeated := [id_ for i, id_ in enumerate(ids) if id_ in ids[:i]]:
            raise UsageError(f"{axis}: there is already a {axis} {repeated[0]!r}. Write another id.")
    for key, kind, names, every in _named(document):
        with at(key):
            all_known(kind, names, every)
    _check_stages(document)
    figures.check(document.figure, document.statistics, document.row, document.column)
    if "paper" in document.profile:
        raise UsageError("profile.paper: the profile 'paper' is the suite file itself.")


def _named(document: Document) -> Iterator[Named]:
    """Names in the file's tables; a later one relies on those before.

    Raises as `_named_by_references`.
    """
    rows, columns = {row.id: document.shown(row) for row in document.row}, [column.id for column in document.column]
    known = {"rows": rows, "columns": columns, "methods": [row.method for row in document.row]}
    yield "tune.columns", "column", document.tune.columns, columns
    if document.statistics:
        yield "statistics.reference", "column", document.statistics.reference, columns
    for key, remarks in document.remarks_by_key.items():
        for i, remark in enumerate(remarks):
            for axis, every in known.items():
                yield f"{key}[{i}].{axis}", axis[:-1], getattr(remark, axis) or (), every
    for i, one in enumerate(document.derived):
        yield f"derived[{i}].{one.axis}", one.axis[:-1], one.of, known[one.axis]
    shown = rows | {one.id: rows[one.of[0]] for one in document.derived if one.axis == "rows"}
    columns = [*columns, *(one.id for one in document.derived if one.axis == "columns")]
    yield "reference", "row", document.reference, shown
    yield from _named_by_references(document, shown, columns)


def _named_by_references(
    document: Document, shown: Mapping[str, Sequence[str]], columns: Sequence[str]
) -> Iterator[Named]:
    """Names in the paper's numbers. `shown`: stages of each row. Raises `UsageError` where several need a number."""
    for row, cells in document.reference.items():
        yield f"reference.{row}", "column", cells, columns
        for column, printed in cells.items():
            if isinstance(printed, dict):
                yield f"reference.{row}.{column}", "stage", printed, shown[row]
            elif len(shown[row]) > 1:
                raise UsageError(f"reference.{row}.{column}: write one for each of {', '.join(shown[row])}.")


def _check_stages(document: Document) -> None:
    for i, row in enumerate(document.row):
        shown = document.shown(row)
        if not shown or (len(shown) > 1 and not document.layout.stages):
            raise UsageError(f"row[{i}].stages: list those that the table shows in layout.stages.")
        if document.evaluation.clients == "held-out" and not {"stored", "sampled"}.isdisjoint(row.named):
            raise UsageError(f"row[{i}].stages: held-out clients never train, so nothing is 'stored' or 'sampled'.")
    if "finetuned" in document.scored_anywhere and document.evaluation.finetune is None:
        raise UsageError("evaluation.finetune: missing, but a row has the stage 'finetuned'.")


@dataclass(frozen=True)
class Suite:
    """A suite file, its tables checked; each profile's when it is first asked for."""

    path: Path
    raw: Mapping[str, Any]
    """Content of the file with all that it takes over and with defaults."""
    called: str
    """The name or path by which it was loaded."""
    inherited: Remarks = ()
    """Remarks of the files that it extends."""
    supplied: UserSupplied = field(default_factory=UserSupplied)
    """Folders of user-supplied code and data."""
    _documents: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def file(self) -> str:
        """Resolved path of its file."""
        return str(self.path.resolve())

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.document().suite.name

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles there are, `paper` (the file as it is) first."""
        return ("paper", *self.document().profile)

    def document(self, profile: str = "paper") -> Document:
        """The suite under a profile. Raises `UsageError` with the file and key path of all that is wrong."""
        if profile not in self._documents:
            self._documents[profile] = self._validated(profile)
        return self._documents[profile]

    def _validated(self, name: str) -> Document:
        if name == "paper":
            return self._checked(self.raw, str(self.path), self.inherited)
        paper = self.document()
        if name not in paper.profile:
            whole = f"Without --profile, {self.name} runs whole, as its file says."
            raise UsageError(f"{unknown('profile', name, self.profiles)} {whole}")
        profile, where = paper.profile[name], f"{self.path}: profile.{name}"
        with at(where):
            all_known("column", profile.column, ["*", *(column.id for column in paper.column)])
        inherited = self.inherited
        if profile.notes is not None:
            inherited = [[one for one in file if not isinstance(one, Note)] for file in inherited]
        return self._checked(_patched(self.raw, profile), where, inherited)

    def _checked(self, raw: Mapping[str, Any], where: str, inherited: Remarks) -> Document:
        """The checked document of a file's content; its columns have the values that all of them share."""
        origins: dict[str, str] = {}
        with at(where):
            plain = split(raw, "", origins)
        document = validated(Document, plain, f"{where}: ")
        shared = document.federation.model_dump(exclude_none=True) | {"seeds": document.suite.seeds}
        of_all = {key.removeprefix("federation."): source for key, source in origins.items()}
        columns = []
        for i, column in enumerate(document.column):
            added = {key: value for key, value in shared.items() if getattr(column, key) is None}
            columns.append(column.model_copy(update=added))
            origins = {f"column[{i}].{key}": source for key, source in of_all.items() if key in added} | origins
        document = document.model_copy(update={"column": columns})
        with at(where):
            check(document)
        document._inherited, document._origins = inherited, origins
        return document


def parse(raw: Mapping[str, Any], path: Path, remarks: Remarks = ()) -> Suite:
    """The suite of a TOML file's content; every mistake is a `UsageError` with the file and key path.

    Values that the content takes over from elsewhere (`extends`, `like`) are in it already, see `inherit`. `remarks`:
    the scoped tables of the files that it extends.
    """
    suite = Suite(path, raw, str(path), remarks)
    suite.document()
    return suite


def _patched(raw: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """The file's content with a profile's tables over it."""
    patched = {key: value for key, value in raw.items() if key != "profile"}
    patched["suite"] = raw["suite"] | profile.model_dump(include={"seeds", "notes"}, exclude_none=True)
    for table in ("federation", "evaluation", "hyper"):
        patched[table] = merged(raw.get(table, {}), getattr(profile, table))
    over = profile.column
    dropped = () if profile.seeds is None else ("seeds",)  # of what is in place of theirs
    columns = [{key: value for key, value in column.items() if key not in dropped} for column in raw["column"]]
    patched["column"] = [merged(merged(column, over.get("*", {})), over.get(column["id"], {})) for column in columns]
    return patched
