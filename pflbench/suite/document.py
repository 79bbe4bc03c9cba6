"""A suite file as a whole, under each of its profiles: checks that its tables fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

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
from pflbench.suite.sources import Sources
from pflbench.suite.strict import KeyPath, TomlTable, check_keys, check_names, fault, validated
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
    evaluation: Evaluation
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

    @property
    def remarks(self) -> Remarks:
        """Scoped tables of this file, then those of the files that it extends."""
        return (
            (*self.suite.notes, *self.departure, *self.suspect, *self.inferred, *self.follows),
            *self._inherited,
        )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Every stage that a row names; runs are scored at each of them unless their row lists `stages` of its own.

        In either case only at those that their method has.
        """
        return canonical(stage for row in self.row for stage in row.named)

    def seeds(self, column: Column) -> tuple[int, ...]:
        """Seeds of a column: its own, else the suite's."""
        return tuple(column.seeds or self.suite.seeds)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """Seeds of the suite and of any column."""
        return tuple(dict.fromkeys([*self.suite.seeds, *(seed for one in self.column for seed in one.seeds or ())]))

    @property
    def held_out(self) -> bool:
        """True if clients that never train are scored in some column."""
        who, shared = self.evaluation.clients, self.federation
        sizes = [(column.clients or shared.clients, column.training_clients) for column in self.column]
        return any(scores_held_out(who, training or shared.training_clients or n, n) for n, training in sizes)

    def column_keys(self, rounds: int | None = None) -> set[ColumnKey]:
        """Keys of the columns' runs, without expanding it; `rounds`: selected instead of its own."""
        of_rows, plain = {row.rounds for row in self.row if row.rounds}, without_folder
        return {
            (plain(c.dataset.name), plain(c.partition.name), plain(c.model), clients, count)
            for c in self.column
            for clients in [c.clients or self.federation.clients]
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

    @model_validator(mode="after")
    def _consistent(self) -> Document:
        _check_ids(self)
        if self.statistics is None:
            figures.check(self.figure, self.row, self.column)
        else:
            figures.check_statistics(self.statistics, self.figure is not None, self.row, self.column)
        _check_stages(self)
        _check_derived(self)
        _check_references(self)
        _check_scopes(self)
        _check_finetuning(self)
        check_names(("tune", "columns"), "column", self.tune.columns, [column.id for column in self.column])
        if "paper" in self.profile:
            raise fault(("profile", "paper"), "the profile 'paper' is the suite file itself")
        return self


def _check_ids(document: Document) -> None:
    taken: set[str] = set()
    for table, items in (("row", document.row), ("column", document.column)):
        ids = [item.id for item in items]
        taken.update(ids)
        for i, id_ in enumerate(ids):
            if id_ in ids[:i]:
                raise fault((table, i, "id"), f"there is already a {table} {id_!r}")
    for i, derived in enumerate(document.derived):
        if derived.id in taken:
            raise fault(("derived", i, "id"), f"there is already a row or column {derived.id!r}")
        taken.add(derived.id)


def _check_stages(document: Document) -> None:
    for stage in document.layout.stages if document.row else ():
        if not any(stage in row.named for row in document.row):
            raise fault(("layout", "stages", stage), "no row has this stage")
    for i, row in enumerate(document.row):
        where = ("row", i, row.stage_key)
        if not document.shown(row):
            raise fault(where, f"the table shows none of it: layout.stages has {', '.join(document.layout.stages)}")
        if len(document.shown(row)) > 1 and not document.layout.stages:
            raise fault(where, "layout.stages is missing, which says how several stages stand beside each other")
        for unmade in {"stored", "sampled"} & {*row.named}:
            if document.evaluation.clients == "held-out":
                raise fault(where, f"held-out clients, who are scored, never train, so nothing is {unmade!r}")


def _check_derived(document: Document) -> None:
    known = {"rows": [row.id for row in document.row], "columns": [column.id for column in document.column]}
    shown = {row.id: document.shown(row) for row in document.row}
    for i, derived in enumerate(document.derived):
        check_names(("derived", i, derived.axis), derived.axis[:-1], derived.of, known[derived.axis])
        if derived.axis == "rows" and shown[derived.of[0]] != shown[derived.of[1]]:
            raise fault(("derived", i, "rows"), "the two are shown at different stages")


def _check_references(document: Document) -> None:
    shown = {row.id: document.shown(row) for row in document.row}
    rows = shown | {d.id: shown[d.of[0]] for d in document.derived if d.axis == "rows"}
    ids = [column.id for column in document.column]
    check_keys(("reference",), document.reference, rows)
    for row, cells in document.reference.items():
        # Where a derived row meets a derived column, there is nothing.
        derived = [d.id for d in document.derived if d.axis == "columns" and row in shown]
        check_keys(("reference", row), cells, [*ids, *derived])
        for column, printed in cells.items():
            if isinstance(printed, list) and len(rows[row]) > 1:
                which = f"of which stage? The row is shown at {', '.join(rows[row])}"
                raise fault(("reference", row, column), which)
            for stage in printed if isinstance(printed, dict) else ():
                if stage not in rows[row]:
                    raise fault(("reference", row, column, stage), "the row is not shown at this stage")


def _check_scopes(document: Document) -> None:
    known = {
        "rows": [row.id for row in document.row],
        "methods": list(dict.fromkeys(row.method for row in document.row)),
        "columns": [column.id for column in document.column],
    }
    lists: dict[KeyPath, Sequence[Scoped]] = {
        ("suspect",): document.suspect,
        ("inferred",): document.inferred,
        ("follows",): document.follows,
        ("departure",): document.departure,
        ("suite", "notes"): document.suite.notes,
    }
    for path, scopes in lists.items():
        for i, scope in enumerate(scopes):
            for key, names in known.items():
                check_names((*path, i, key), key[:-1], getattr(scope, key) or (), names)


def _check_finetuning(document: Document) -> None:
    if not document.row:  # what an extended suite says of it is of no use
        return
    finetuned, rule = "finetuned" in document.scored_anywhere, document.evaluation.finetune
    if finetuned != (rule is not None):
        problem = "no row has the stage 'finetuned'" if rule else "missing, but a row has the stage 'finetuned'"
        raise fault(("evaluation", "finetune"), problem)
    if rule is not None:
        return
    if document.evaluation.report:
        raise fault(("evaluation", "report"), "there is no fine-tuning to report steps of")
    for i, column in enumerate(document.column):
        if column.report:
            raise fault(("column", i, "report"), "there is no fine-tuning to report steps of")
        if column.finetune.model_fields_set:
            raise fault(("column", i, "finetune"), "there is no evaluation.finetune to override")


@dataclass(frozen=True)
class Suite:
    """A checked suite file: one document per profile, `paper` (no override) first."""

    path: Path
    documents: Mapping[str, Document]
    called: str
    """The name or path by which it was loaded."""
    supplied: UserSupplied = field(default_factory=UserSupplied)
    """Folders of user-supplied code and data."""
    defaults: tuple[str, ...] = ()
    """Defaults in force that runs or numbers depend on, in words."""

    @cached_property
    def file(self) -> str:
        """Resolved path of its file."""
        return str(self.path.resolve())

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
            others = self.documents.keys()
            whole = f"Without --profile, {self.name} runs whole, as its file says."
            if not others:
                raise UsageError(f"Unknown profile {profile!r}: {self.name} has none. {whole}")
            raise UsageError(f"{unknown('profile', profile, others)} {whole}")
        return self.documents[profile]


def parse(raw: Mapping[str, Any], path: Path, remarks: Remarks = ()) -> Suite:
    """Check the content of a TOML file; every mistake is a `UsageError` with the file and key path.

    Values that the content takes over from elsewhere (`extends`, `like`) are in it already, see `inherit`. `remarks`:
    the scoped tables of the files that it extends.
    """
    paper = validated(Document, raw, f"{path}: ")
    documents = {"paper": paper}
    for name, profile in paper.profile.items():
        prefix = f"{path}: profile.{name}: "
        ids = [c.id for c in paper.column]
        for column in profile.column:
            if column not in ("*", *ids):
                raise UsageError(f"{prefix}{unknown('column', column, ids)}")
        documents[name] = validated(Document, _patched(raw, paper, profile), prefix)
    for name, document in documents.items():
        is_replaced = name != "paper" and paper.profile[name].notes is not None
        document._inherited = [[one for one in file if not (is_replaced and isinstance(one, Note))] for file in remarks]
    return Suite(path, documents, str(path))


def _patched(raw: Mapping[str, Any], paper: Document, profile: Profile) -> dict[str, Any]:
    """A profile's tables; those that none can override as `paper` has them, checked already."""
    patched = {key: getattr(paper, key) for key in paper.model_fields_set - {"profile"}}
    patched["suite"] = raw["suite"] | profile.model_dump(include={"seeds", "notes"}, exclude_none=True)
    for table in ("federation", "evaluation", "hyper"):
        patched[table] = merged(raw.get(table, {}), getattr(profile, table))
    over = profile.column
    dropped = () if profile.seeds is None else ("seeds",)  # of what is in place of theirs
    columns = [{key: value for key, value in column.items() if key not in dropped} for column in raw["column"]]
    patched["column"] = [merged(merged(column, over.get("*", {})), over.get(column["id"], {})) for column in columns]
    return patched
