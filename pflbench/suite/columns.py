"""Columns of a suite below a selection, and the values that their rows have there: the nearest definition wins.

From far to near: the suite's tables, the column, the row, the column's values for this row, the selection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pflbench import names
from pflbench.catalog import UNREAD, FieldInfo, Info, coerce, complete, parse
from pflbench.errors import UsageError, unknown
from pflbench.selection import EVERYTHING, Selection
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.stages import PREFERRED, SHOWN, Shown, canonical
from pflbench.suite.document import Document, Suite
from pflbench.suite.rows import SelectedRow, suite_rows
from pflbench.suite.schema import SETTINGS, Column, FederationKeys, FinetuneKeys, NamedTable, Row
from pflbench.suite.sources import PROFILE, Source
from pflbench.suite.strict import all_known, at

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


class Override(NamedTuple):
    """A value over all that the suite says. `target`: a method's name or class, or `finetune`."""

    target: str
    key: str
    value: Any


@dataclass(frozen=True)
class SuiteColumn:
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
    def whole(self) -> SuiteColumn:
        """The same without the profile."""
        return replace(self, document=self.suite.document())

    @property
    def seeds(self) -> tuple[int, ...]:
        """The selection's seeds, else its own, else the suite's."""
        return self.selection.seeds or tuple(self.entry.seeds or ())

    @property
    def where(self) -> str:
        """Where it stands, for errors."""
        return f"{self.suite.path}: column[{self.index}]"

    @property
    def stand_in(self) -> str:
        """The dataset that the profile puts in the place of the paper's; empty if it is the paper's."""
        here, whole = self.entry.dataset.name, self.whole.entry.dataset.name
        return "" if here == whole else here

    @cached_property
    def infos(self) -> dict[names.Kind, Info]:
        """Its dataset, partition and network, described."""
        parts: tuple[tuple[names.Kind, str, str], ...] = (
            ("datasets", "dataset.name", self.entry.dataset.name),
            ("partitions", "partition.name", self.entry.partition.name),
            ("models", "model", self.entry.model),
        )
        result = dict[names.Kind, Info]()
        for kind, key, name in parts:
            with at(f"{self.where}.{key}"):
                result[kind] = self.suite.supplied.options(kind, names.anchored(name, self.suite.path.parent))
        return result

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The part of a `RunSpec` that all its runs have in common; a row may have other rounds."""
        federation = self.entry.model_dump(include={*FederationKeys.model_fields}, exclude_none=True)
        clients = federation["clients"]
        training = federation.setdefault("training_clients", clients)
        cohort = federation.setdefault("cohort", training)
        if not cohort <= training <= clients:
            chain = f"cohort {cohort} ≤ training_clients {training} ≤ clients {clients}"
            raise UsageError(f"{self.where} ({self.entry.id}): {chain} does not hold. Lower the one that is too large.")
        if self.document.evaluation.clients == "held-out" and training == clients:
            raise UsageError(f"{self.where}.training_clients: no client is left to be held out.")
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
        here, whole = self.entry, self.whole.entry
        unchanged = {key: getattr(here, key) == getattr(whole, key) for key in SETTINGS if "." not in key}
        result: dict[str, str] = {}
        for key, source in self._listed.items():
            kind, _, option = key.partition(".")
            if unchanged.get(kind) and (not option or option in self.settings[kind].options):
                result[key] = source
        written = {key.removeprefix(f"column[{self.index}]."): one for key, one in self.document.origins.items()}
        result |= {key: one for key, one in written.items() if key.partition(".")[0] in unchanged}
        result |= {key: PROFILE for key, same in unchanged.items() if key not in result and not same}
        if self.settings["rounds"] != self.entry.rounds:
            result.pop("rounds", None)
        return result

    @property
    def _listed(self) -> dict[str, Source]:
        """Everything that `[sources]` tables say."""
        return self.document.sources | self.entry.sources

    @cached_property
    def places(self) -> names.Places:
        """Paths of user-supplied code, files and folders of its dataset, partition and network.

        A relative path is one from the suite file's folder or, if there is nothing, from the data root.
        """
        infos, folder = self.infos, self.suite.path.parent.resolve()
        result: dict[str, str] = {kind: one.reference for kind, one in infos.items() if names.is_reference(one.name)}
        tables: tuple[tuple[names.Kind, NamedTable], ...]
        tables = ("datasets", self.entry.dataset), ("partitions", self.entry.partition)
        for kind, table in tables:
            options = table.model_extra or {}
            for key in options.keys() & {*infos[kind].paths}:
                near = folder / Path(options[key]).expanduser()
                below = (self.suite.supplied.root or near).absolute() / options[key]
                result[f"{kind}.{key}"] = str(below if below.exists() and not near.exists() else near)
        return result

    def federations(self) -> tuple[RunSpec, ...]:
        """For each of its seeds the spec of a run that is never trained; its id identifies the federation."""
        settings = _UNTRAINED | {key: self.settings[key] for key in _DIVIDED}
        read = partial(self.suite.supplied.contents, self.settings, self.places)
        return tuple(RunSpec(**settings | read(seed), seed=seed) for seed in self.seeds)

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
        sources: dict[str, str | None] = {}
        if row.like:
            values, taken = self._taken(row.like, row.info)
            sources |= taken
        for key, (where, value) in self._nearest(row.entry).items():
            with at(f"{self.suite.path}: {where}"):
                plain, sources[key] = self._sourced(where, value)
                values[key] = coerce(row.info, key, plain)
        grid = {}
        for key, tried in row.entry.grid.items():
            where = f"row[{self.document.row.index(row.entry)}].grid.{key}"
            sources[key] = self.document.origins.get(where)
            with at(f"{self.suite.path}: {where}"):
                grid[key] = [coerce(row.info, key, value) for value in tried]
        selected = self.overridden(row.aliases)
        sources |= dict.fromkeys(selected)
        sources |= {key: source for key, source in self._listed_for(row.entry).items() if key not in sources}
        varied = {key: tried for key, tried in grid.items() if key not in selected}
        points = [values | selected | dict(zip(varied, chosen, strict=True)) for chosen in product(*varied.values())]
        return [complete(row.info, point) for point in points], {key: one for key, one in sources.items() if one}

    def _taken(self, row: SelectedRow, info: Info) -> tuple[dict[str, Any], dict[str, str]]:
        """Values of a row for the fields of another method, `info`, and their sources; of a grid, the first point."""
        (point, *_), sources = self.hyperparameters(row)
        whole = {key: point.get(key, field.default) for key, field in row.info.fields.items()}
        with at(f"--like {row.row.id}"):
            values = {key: coerce(info, key, value) for key, value in whole.items() if key in info.fields}
        return values, {key: source for key, source in sources.items() if key in values}

    def _listed_for(self, row: Row) -> dict[str, Source]:
        """Sources of a row's hyperparameters, by its method or, nearer, by its id."""
        listed = [(*path.rpartition("."), source) for path, source in self._listed.items()]
        return {key: source for name in self._names(row) for of, _, key, source in listed if of == name}

    def _names(self, row: Row) -> list[str]:
        """Names by which tables have values for a row: its method, and its id unless that is the name of a method."""
        return [row.method, *([] if row.id in {other.method for other in self.document.row} else [row.id])]

    def _nearest(self, row: Row) -> dict[str, tuple[str, Any]]:
        """The values that the file has for a row's hyperparameters, by key, each with its path; the nearest wins."""
        near, hyper = f"column[{self.index}].hyper", self.entry.hyper
        method, *ids = self._names(row)
        tables = [(f"hyper.{method}", self.document.hyper.get(method, {})), (f"{near}.{method}", hyper.get(method, {}))]
        if row.hyper:
            tables.append((f"row[{self.document.row.index(row)}].hyper", row.hyper))
        tables += [(f"{near}.{id_}", hyper.get(id_, {})) for id_ in ids]
        return _by_key(tables)

    def _sourced(self, where: str, value: Any) -> tuple[Any, str | None]:
        """A value and its source. `{like = "row.key"}` has those of another row's hyperparameter."""
        source = self.document.origins.get(where)
        if not isinstance(value, dict):
            return value, source
        id_, _, key = str(value["like"]).rpartition(".")
        rows = {row.id: row for row in self.document.row}
        all_known("row", [id_], rows)
        path, other = self._nearest(rows[id_]).get(key, ("", value))
        if isinstance(other, dict):
            raise UsageError(f"the suite file gives {id_} no {key} of its own.")
        theirs = self.document.origins.get(path)  # a value that a profile sets has no source
        return other, theirs and (source or theirs)

    def finetuning(self, row: SelectedRow) -> tuple[Finetune | None, dict[str, str]]:
        """The fine-tuning of a row, and its values' sources; None and empty if the suite has none."""
        if self.document.evaluation.finetune is None:
            return None, {}
        near, named = f"column[{self.index}].finetune", self.entry.finetune.model_extra or {}
        tables = [("evaluation.finetune", self.document.evaluation.finetune), (near, self.entry.finetune)]
        tables += [(f"{near}.{name}", named[name]) for name in self._names((row.like or row).entry) if name in named]
        keys = {*FinetuneKeys.model_fields}
        values = _by_key((path, table.model_dump(include=keys, exclude_none=True)) for path, table in tables)
        sources: dict[str, str] = {key: one for key, one in self._listed.items() if key.startswith("finetune.")}
        sources |= {f"finetune.{key}": self.document.origins.get(where, "") for key, (where, _) in values.items()}
        selected = self.overridden(["finetune"])
        sources |= {f"finetune.{key}": "" for key in selected}
        plain = {key: value for key, (_, value) in values.items()} | selected
        if "lr" not in plain:
            raise UsageError(f"{self.where}.finetune.lr: missing")
        with at("finetune"):
            return Finetune(**plain), {key: source for key, source in sources.items() if source}

    def reported_steps(self, finetune: Finetune) -> tuple[int, ...]:
        """The fine-tuning steps that its cells average: its own, else the suite's, else the last."""
        report = self.entry.report or self.document.evaluation.report
        steps = tuple(report.steps) if report else (finetune.steps,)
        if max(steps) > finetune.steps:
            where = self.where if self.entry.report else f"{self.suite.path}: evaluation"
            problem = f"step {max(steps)} is not there, fine-tuning ends with step {finetune.steps}."
            raise UsageError(f"{where}.report.steps: {problem}")
        return steps


def _by_key(tables: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, tuple[str, Any]]:
    """Path and value of each key in the last table that has it."""
    return {key: (f"{path}.{key}", value) for path, table in tables for key, value in table.items()}


def select_columns(every: Sequence[SuiteColumn], selection: Selection) -> list[SuiteColumn]:
    """Of all columns those with a selection's ids, datasets, partitions and numbers of clients."""
    filters: dict[str, tuple[Sequence[str], Callable[[SuiteColumn], str]]] = {
        "column": (selection.columns, lambda c: c.entry.id),
        "dataset": (selection.datasets, lambda c: c.entry.dataset.name),
        "partition": (selection.partitions, lambda c: c.entry.partition.name),
        "number of clients": ([str(n) for n in selection.clients], lambda c: str(c.entry.clients)),
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
) -> list[SuiteColumn]:
    """All columns of a suite under a profile."""
    return [SuiteColumn(suite, document, i, selection, overrides) for i in range(len(document.column))]


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


def _named(info: Info, table: NamedTable, where: str) -> Named:
    options = {}
    for key, value in (table.model_extra or {}).items():
        with at(f"{where}.{key}"):
            options[key] = coerce(info, key, value)
            if key in info.paths:  # where it lies is no part of what it is
                options[key] = Path(value).name or str(value)
    with at(where):
        return Named(name=info.name, options=complete(info, options), version=info.version)


def check_keys(suite: Suite, profile: str) -> None:
    """Reject keys that name no method, no row (in a column) and, below `[sources]`, no setting or hyperparameter."""
    document = suite.document(profile)
    rows, columns = suite_rows(suite, document), every_column(suite, document)
    methods = {row.entry.method for row in rows}
    ids = methods | {row.row.id for row in rows}
    infos = _infos(rows, columns)
    settings = {*SETTINGS, *(f"{name}.{key}" for name, info in infos for key in info.fields)}
    tables: list[tuple[str, str, Iterable[str], set[str]]] = [("method", "hyper", document.hyper, methods)]
    for i, column in enumerate(document.column):
        tables.append(("method", f"column[{i}].hyper", column.hyper, ids))
        tables.append(("method", f"column[{i}].finetune", column.finetune.model_extra or {}, ids))
        tables.append(("setting", f"column[{i}].sources", column.sources, settings))
    tables.append(("setting", "sources", document.sources, settings))
    tables += [("method", f"tune.{key}", getattr(document.tune, key), ids) for key in ("read", "grid", "points")]
    unread = any(info.version == UNREAD for _, info in infos)  # a command that imports it checks the settings
    for kind, where, keys, known in tables:
        with at(f"{suite.path}: {where}"):
            all_known(kind, () if unread and kind == "setting" else keys, known)


def _infos(rows: Sequence[SelectedRow], columns: Sequence[SuiteColumn]) -> list[tuple[str, Info]]:
    """What has options or hyperparameters, by its name in `[sources]`."""
    infos: list[tuple[str, Info]] = [(kind[:-1], info) for one in columns for kind, info in one.infos.items()]
    return infos + [(name, row.info) for row in rows for name in (row.row.id, row.entry.method)]


def staged(row: SelectedRow, document: Document, columns: Sequence[SuiteColumn]) -> SelectedRow:
    """The row at the stages that its method has in all these columns, so that selecting some changes no run.

    A row of the suite is scored at what it names and, of what other rows name, at what its method has. A guest is shown
    and scored at what the table shows and its method has.

    Raises:
        UsageError: The row names a stage that its method does not have, or nothing is left for a guest.
    """
    present = _present(row, document, columns)
    shown, scored = row.row.stages, set[str](row.scored)
    if row.where:
        if row.info.version == UNREAD:  # its stored runs may be of suites that show other stages
            present = tuple(stage for stage in SHOWN if stage in {*present, *row.entry.named})
        lacking = [stage for stage in row.entry.named if stage not in present]
    else:
        displayed = _displayed(document)
        best = [stage for stage in displayed if stage in present][:1]
        shown = tuple(stage for stage in document.layout.stages or best if stage in present)
        lacking = [] if shown else sorted(displayed, key=SHOWN.index)
        # Methods need not have the stages "stored" and "sampled": runs are scored at them only where they are shown.
        scored = document.scored_anywhere - {"stored", "sampled"} | {*shown}
    if lacking:
        raise _lacks(row, lacking[0], document, present)
    scored_stages = canonical(stage for stage in scored if stage in present)
    return replace(row, row=replace(row.row, stages=shown), scored=scored_stages)


def _present(row: SelectedRow, document: Document, columns: Sequence[SuiteColumn]) -> tuple[Shown, ...]:
    """The stages that a row's method has with the hyperparameters of each column."""
    stages = row.info.stages
    points: list[dict[str, object]] = [{}]
    if stages.personal_needs and "personalized" in canonical((*row.scored, *row.entry.named)):
        points = [point for column in columns for point in column.hyperparameters(row)[0]]
    moment, held_out = row.entry.moment or document.evaluation.moment, document.held_out
    by_point = [stages.present(point, moment=moment, held_out=held_out) for point in points]
    return tuple(stage for stage in SHOWN if all(stage in one for one in by_point))


def _lacks(row: SelectedRow, stage: Shown, document: Document, present: Sequence[Shown]) -> UsageError:
    needs = row.info.stages.personal_needs
    clients = " for clients that never train" if document.held_out else ""
    needed = f" without a value for {needs}" if needs else ""
    where = f"{row.where}.stage: " if row.where else ""
    problem = f"{row.info.name} has no stage {stage!r}{clients}; it has {', '.join(present) or 'none'}{needed}"
    return UsageError(f"{where}{problem}. See 'Which stages exist' in docs/methods.md.")


def _displayed(document: Document) -> list[Shown]:
    """The stages that some row shows, the preferred one first."""
    return [stage for stage in PREFERRED if any(stage in document.shown(row) for row in document.row)]
