"""Layers of a suite: a cell asks its column for a value, and the nearest definition wins.

From far to near: the suite's tables, the column, the row, the column's values for this row, the selection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pflbench import names
from pflbench.catalog import UNREAD, FieldInfo, Info, coerce, complete, parse
from pflbench.errors import UsageError, unknown
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.suite.document import Document, Suite
from pflbench.suite.rows import SelectedRow, all_known, suite_rows
from pflbench.suite.schema import Candidates, Column, FederationKeys, FinetuneKeys, NamedTable, Row, Sourced
from pflbench.suite.sources import PROFILE, SETTINGS, Source
from pflbench.suite.strict import at

FINETUNE_OPTIONS = Info(
    "finetune",
    "pflbench.spec:Finetune",
    {key: FieldInfo(kind) for key, kind in (("steps", "int"), ("lr", "float"), ("decay", "float"), ("every", "int"))},
    "Test-time fine-tuning.",
)
_DIVIDED = ("dataset", "partition", "clients", "training_clients", "query")
"""The settings that a federation depends on."""
_UNTRAINED: dict[str, Any] = {
    "method": MethodSpec(name="none", version="none"),
    "model": "none",
    "cohort": 1,
    "batch": 1,
    "rounds": 1,
    "scoring": Scoring(),
}
"""Fixed values of the fields that a federation does not depend on."""
_KEYS: dict[names.Kind, str] = {"datasets": "dataset.name", "partitions": "partition.name", "models": "model"}


class Override(NamedTuple):
    """A value over all that the suite says. `target`: a method's name or class, or `finetune`."""

    target: str
    key: str
    value: Any


@dataclass(frozen=True)
class ColumnLayers:
    """A column of a suite, the `index`-th, under a profile and below a selection."""

    suite: Suite
    document: Document
    index: int
    selection: Selection = EVERYTHING
    overrides: Sequence[Override] = ()

    @property
    def entry(self) -> Column:
        """The column in the suite file, under the profile."""
        return self.document.column[self.index]

    @property
    def whole(self) -> ColumnLayers:
        """The same without the profile."""
        return replace(self, document=self.suite.document())

    @property
    def profile(self) -> str:
        """The profile's name."""
        return self.selection.profile or "paper"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The selection's seeds, else its own, else the suite's."""
        return self.selection.seeds or self.document.seeds(self.entry)

    @property
    def where(self) -> str:
        """Where it stands, for errors."""
        return f"{self.suite.path}: column[{self.index}]"

    @property
    def stand_in(self) -> str:
        """The dataset that the profile puts in the place of the paper's; empty if it is the paper's."""
        here, whole = self.entry.dataset.name, self.whole.entry.dataset.name
        return "" if here == whole else here

    def value(self, key: str) -> Any:
        """A setting: the column's, else the federation's."""
        result = getattr(self.entry, key)
        return getattr(self.document.federation, key, None) if result is None else result

    @cached_property
    def references(self) -> dict[names.Kind, str]:
        """Names of its dataset, partition and network; a file with its whole path."""
        entry, folder = self.entry, self.suite.path.parent
        called: dict[names.Kind, str] = {
            "datasets": entry.dataset.name,
            "partitions": entry.partition.name,
            "models": entry.model,
        }
        return {kind: names.anchored(name, folder) for kind, name in called.items()}

    @cached_property
    def infos(self) -> dict[names.Kind, Info]:
        """Its dataset, partition and network, described."""
        result = dict[names.Kind, Info]()
        for kind, reference in self.references.items():
            with at(f"{self.where}.{_KEYS[kind]}"):
                result[kind] = self.suite.supplied.options(kind, reference)
        return result

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The part of a `RunSpec` that all its runs have in common; a row may have other rounds."""
        federation = {key: result for key in FederationKeys.model_fields if (result := self.value(key)) is not None}
        clients = federation["clients"]
        training = federation.setdefault("training_clients", clients)
        cohort = federation.setdefault("cohort", training)
        if not cohort <= training <= clients:
            lower, higher = ("cohort", "training_clients") if cohort > training else ("training_clients", "clients")
            raise UsageError(
                f"{self.where} ({self.entry.id}): cohort {cohort} ≤ training_clients {training} ≤ clients {clients} "
                f"does not hold. Lower {lower}, or raise {higher}."
            )
        if self.document.evaluation.clients == "held-out" and training == clients:
            raise UsageError(f"{self.where}.training_clients: no client is left to be held out.")
        if self.entry.subset and self.entry.subset.smallest > clients:
            raise UsageError(f"{self.where}.subset.smallest: there are only {clients} clients.")
        infos = self.infos
        return federation | {
            "dataset": _named(infos["datasets"], self.entry.dataset, f"{self.where}.dataset"),
            "partition": _named(infos["partitions"], self.entry.partition, f"{self.where}.partition"),
            "model": infos["models"].name,
            "model_version": infos["models"].version,
            "rounds": self.selection.rounds or self.entry.rounds,
            "batch": self.entry.batch,
            "precision": self.selection.precision or "fp32",
        }

    @cached_property
    def sources(self) -> dict[str, str]:
        """The sources of its settings.

        A source in `[sources]` is that of the paper profile's value; what another profile changes comes from there.
        """
        unchanged = {key: self.value(key) == self.whole.value(key) for key in SETTINGS if "." not in key}
        result: dict[str, str] = {}
        for key, source in self._listed.items():
            kind, _, option = key.partition(".")
            present = kind not in ("dataset", "partition") or not option or option in self.settings[kind].options
            if unchanged.get(kind) and present:
                result[key] = source
        inline = self.document.federation.given
        result |= {key: source for key, source in inline.items() if getattr(self.entry, key) is None}
        result |= self.entry.given
        result |= {key: PROFILE for key, same in unchanged.items() if key not in result and not same}
        if self.settings["rounds"] != self.entry.rounds:
            result.pop("rounds", None)
        return result

    @property
    def _listed(self) -> dict[str, Source]:
        """Everything that `[sources]` tables say."""
        return self.document.sources | self.entry.sources

    def _listed_for(self, row: Row) -> dict[str, Source]:
        """Sources of a row's hyperparameters, by its method or, nearer, by its id."""
        listed = [(path.rpartition("."), source) for path, source in self._listed.items()]
        return {key: source for name in self._names(row) for (of, _, key), source in listed if of == name}

    @cached_property
    def places(self) -> names.Places:
        """Paths of user-supplied code, files and folders of its dataset, partition and network."""
        result: dict[str, str] = {kind: name for kind, name in self.references.items() if names.is_reference(name)}
        tables: tuple[tuple[names.Kind, NamedTable], ...]
        tables = ("datasets", self.entry.dataset), ("partitions", self.entry.partition)
        for kind, table in tables:
            options = table.model_extra or {}
            for key in self.infos[kind].paths:
                if key in options:
                    result[f"{kind}.{key}"] = str(self._path(options[key]))
        return result

    def _path(self, text: str) -> Path:
        """A user's file or folder with its whole path: seen from the suite file's folder, else from the data root."""
        near = self.suite.path.parent.resolve() / Path(text).expanduser()
        below = (self.suite.supplied.root or near).absolute() / text
        return below if below.exists() and not near.exists() else near

    def federations(self) -> tuple[RunSpec, ...]:
        """For each of its seeds the spec of a run that is never trained; its id identifies the federation."""
        settings = _UNTRAINED | {key: self.settings[key] for key in _DIVIDED}
        return tuple(
            RunSpec(**settings | self.contents(self.settings, self.places, seed), seed=seed) for seed in self.seeds
        )

    def contents(self, settings: Mapping[str, Any], places: names.Places, seed: int) -> dict[str, Named]:
        """A run's dataset and partition with the hash of what they read, see `UserSupplied.contents`."""
        return self.suite.supplied.contents(settings, places, seed)

    def rounds(self, row: SelectedRow) -> int | None:
        """The rounds of a row that has its own, at most the selection's; None: the column's."""
        row_rounds, most = row.entry.rounds, self.selection.rounds
        return min(row_rounds, most or row_rounds) if row_rounds else None

    def overridden(self, targets: Collection[str]) -> dict[str, Any]:
        """Values of the selection for these targets, by key."""
        return {key: value for target, key, value in self.overrides if target in targets}

    def hyperparameters(self, row: SelectedRow) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Every hyperparameter's value, and the source of those that the suite file gives one for, defaults included.

        One set of values for each point of the row's grid in the order written, the first key changing slowest; a
        single set without a grid. A column's values go by a method, or by the id of a row that is no method's name.
        """
        values: dict[str, Any] = {}
        sources: dict[str, Source | None] = {}
        for where, table in self._tables(row.entry, row.where):
            for key, entry in table.items():
                result = entry if entry.like is None else self._alike(entry, f"{where}.{key}.like")
                with at(f"{where}.{key}"):
                    values[key], sources[key] = coerce(row.info, key, result.value), result.source
        grid = candidates(row.info, row.entry.grid, f"{row.where}.grid")
        selected = self.overridden(row.aliases)
        sources |= {key: row.entry.grid[key].source for key in grid} | dict.fromkeys(selected)
        sources |= {key: source for key, source in self._listed_for(row.entry).items() if key not in sources}
        varied = {key: tried for key, tried in grid.items() if key not in selected}
        points = [dict(zip(varied, chosen, strict=True)) for chosen in product(*varied.values())]
        known: dict[str, str] = {key: source for key, source in sources.items() if source}
        return [complete(row.info, values | selected | point) for point in points], known

    def _names(self, row: Row) -> list[str]:
        """Names by which tables have values for a row: its method, and its id unless that is the name of a method."""
        return [row.method, *([] if row.id in {other.method for other in self.document.row} else [row.id])]

    def _tables(self, row: Row, where: str) -> list[tuple[str, Mapping[str, Sourced]]]:
        """Everything that the file says of a row's hyperparameters, with its place, the nearer later."""
        result = self.entry.hyper
        method, *alone = self._names(row)
        return [
            (f"{self.suite.path}: hyper.{method}", self.document.hyper.get(method, {})),
            (f"{self.where}.hyper.{method}", result.get(method, {})),
            (f"{where}.hyper", row.hyper),
            *((f"{self.where}.hyper.{id_}", result.get(id_, {})) for id_ in alone),
        ]

    def _alike(self, entry: Sourced, where: str) -> Sourced:
        """Entry of another row's hyperparameter; `entry.like`: `row.hyperparameter`."""
        id_, _, key = (entry.like or "").rpartition(".")
        with at(where):
            row = next((row for row in self.document.row if row.id == id_), None)
            if row is None:
                raise unknown("row", id_, [row.id for row in self.document.row])
            entries = [table[key] for _, table in self._tables(row, "") if key in table]
            if not entries or entries[-1].like is not None:
                raise UsageError(f"the suite file gives {id_} no {key} of its own.")
        source = entries[-1].source and entry.source  # a value that a profile sets has no source
        return entries[-1].model_copy(update={"source": source or entries[-1].source})

    def finetuning(self, row: SelectedRow) -> tuple[Finetune | None, dict[str, str]]:
        """The fine-tuning of a row, and its values' sources; None and empty if the suite has none."""
        if self.document.evaluation.finetune is None:
            return None, {}
        named = self.entry.finetune.model_extra or {}
        nearer = [named[name] for name in self._names(row.entry) if name in named]
        values: dict[str, Any] = {}
        sources: dict[str, str] = {key: s for key, s in self.document.sources.items() if key.startswith("finetune.")}
        for table in (self.document.evaluation.finetune, self.entry.finetune, *nearer):
            present = table.model_dump(include=set(FinetuneKeys.model_fields), exclude_none=True)
            values |= present
            sources |= {f"finetune.{key}": table.given.get(key, "") for key in present}
        selected = self.overridden(["finetune"])
        values |= selected
        sources |= {f"finetune.{key}": "" for key in selected}
        if "lr" not in values:
            raise UsageError(f"{self.where}.finetune.lr: missing")
        with at("finetune"):
            return Finetune(**values), {key: source for key, source in sources.items() if source}

    def reported_steps(self, finetune: Finetune) -> tuple[int, ...]:
        """The fine-tuning steps that its cells average: its own, else the suite's, else the last."""
        report = self.entry.report or self.document.evaluation.report
        steps = tuple(report.steps) if report else (finetune.steps,)
        if max(steps) > finetune.steps:
            where = self.where if self.entry.report else f"{self.suite.path}: evaluation"
            problem = f"step {max(steps)} is not there, fine-tuning ends with step {finetune.steps}."
            raise UsageError(f"{where}.report.steps: {problem}")
        return steps


def select_columns(every: Sequence[ColumnLayers], selection: Selection) -> list[ColumnLayers]:
    """Of all columns those with a selection's ids, datasets, partitions and numbers of clients."""
    filters: dict[str, tuple[Sequence[str], Callable[[ColumnLayers], str]]] = {
        "column": (selection.columns, lambda c: c.entry.id),
        "dataset": (selection.datasets, lambda c: c.entry.dataset.name),
        "partition": (selection.partitions, lambda c: c.entry.partition.name),
        "number of clients": ([str(n) for n in selection.clients], lambda c: str(c.value("clients"))),
    }
    chosen = list(every)
    for kind, (wanted, name) in filters.items():
        if wanted:
            # A column answers to what it is in the paper even where the profile puts something smaller there.
            answers = [{name(column.whole), name(column)} for column in every]
            all_known(kind, wanted, [answer for having in answers for answer in having])
            chosen = [column for column in chosen if answers[column.index] & set(wanted)]
    if not chosen:
        raise UsageError("No column has all of what --column, --dataset, --partition and --clients ask for.")
    return chosen


def every_column(
    suite: Suite, document: Document, selection: Selection = EVERYTHING, overrides: Sequence[Override] = ()
) -> list[ColumnLayers]:
    """All columns of a suite under a profile."""
    return [ColumnLayers(suite, document, i, selection, overrides) for i in range(len(document.column))]


def parse_overrides(document: Document, texts: Sequence[str], rows: Sequence[SelectedRow]) -> list[Override]:
    """Values of `method.key=value` and `finetune.key=value`.

    A target that is none of these rows or fine-tuning is refused.
    """
    targets: dict[str, Info] = {alias: row.info for row in rows for alias in row.aliases}
    if document.evaluation.finetune:
        targets["finetune"] = FINETUNE_OPTIONS
    result = []
    for text in texts:
        with at(f"--set {text}"):
            path, equals, value = text.partition("=")
            target, _, key = path.strip().rpartition(".")
            if not (equals and target):
                raise UsageError("Write method.key=value or finetune.key=value.")
            if target not in targets:
                raise unknown("selected method", target, targets)
            result.append(Override(target, key, parse(targets[target], key, value.strip())))
    return result


def candidates(info: Info, grid: Mapping[str, Candidates], where: str) -> dict[str, list[Any]]:
    """The values that a grid in a suite file tries; `where`: where in the file it stands."""
    lists = {}
    for key, entry in grid.items():
        with at(f"{where}.{key}"):
            lists[key] = [coerce(info, key, value) for value in entry.value]
            check_distinct(lists[key])
    return lists


def check_distinct(values: Sequence[Any]) -> None:
    """Raise `UsageError` if a grid tries a value twice."""
    if any(value in values[:i] for i, value in enumerate(values)):
        raise UsageError("a value is there twice.")


def _named(info: Info, table: NamedTable, where: str) -> Named:
    options = {}
    for key, value in (table.model_extra or {}).items():
        with at(f"{where}.{key}"):
            options[key] = coerce(info, key, value)
            if key in info.paths:  # where it lies is no part of what it is
                options[key] = Path(value).name or str(value)
    with at(where):
        return Named(name=info.name, options=complete(info, options), version=info.version)


def check_method_keys(suite: Suite, document: Document, rows: Sequence[SelectedRow]) -> None:
    """Reject a table of hyperparameters or fine-tuning for a method, or in a column for a row, that is not there."""
    methods = {selected.key for selected in rows}
    either = methods | {selected.row.id for selected in rows}
    tables: list[tuple[str, Iterable[str], set[str]]] = [("hyper", document.hyper, methods)]
    for i, column in enumerate(document.column):
        tables.append((f"column[{i}].hyper", column.hyper, either))
        tables.append((f"column[{i}].finetune", column.finetune.model_extra or {}, either))
    for where, keys, known in tables:
        with at(f"{suite.path}: {where}"):
            all_known("method", keys, known)


def check_sources(suite: Suite) -> None:
    """Reject sources of anything that is no setting, no option of a dataset or partition, and no hyperparameter."""
    document = suite.document()
    rows, columns = suite_rows(suite, document), every_column(suite, document)
    options = [(kind[:-1], info) for column in columns for kind, info in column.infos.items()]
    infos = [*options, *((name, row.info) for row in rows for name in (row.row.id, row.key))]
    if any(info.version == UNREAD for _, info in infos):
        return  # a command that imports it checks them
    known = [*SETTINGS, *(f"{name}.{key}" for name, info in infos for key in info.fields)]
    tables = [(f"{suite.path}: sources", document.sources)]
    tables += [(f"{column.where}.sources", column.entry.sources) for column in columns]
    for where, sources in tables:
        with at(where):
            all_known("setting", sources, known)
