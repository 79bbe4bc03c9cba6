"""The settings of one row in one column: defaults, suite, column, row and overrides, of which the later win."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from pflbench import names, renames
from pflbench.catalog import FieldInfo, Info, coerce, complete, parse
from pflbench.errors import UsageError, unknown
from pflbench.spec import Finetune, Named
from pflbench.stages import Shown
from pflbench.suite import origins
from pflbench.suite.cells import Reference
from pflbench.suite.document import Document, Suite
from pflbench.suite.own import is_there
from pflbench.suite.schema import Candidates, FederationKeys, FinetuneKeys, NamedTable, Row, Sourced
from pflbench.suite.select import SelectedRow, all_known, references
from pflbench.suite.strict import at

FINETUNE = Info(
    "finetune",
    "pflbench.spec:Finetune",
    {key: FieldInfo(kind) for key, kind in (("steps", "int"), ("lr", "float"), ("decay", "float"), ("every", "int"))},
    "Test-time fine-tuning.",
)


_KEYS: dict[names.Kind, str] = {"datasets": "dataset.name", "partitions": "partition.name", "models": "model"}


def overridden(document: Document, sets: Sequence[str], rows: Sequence[SelectedRow]) -> list[SelectedRow]:
    """The rows, and those before them, with what `method.key=value` and `finetune.key=value` set.

    A target that none of them has is refused.
    """
    every = [one for selected in rows for one in (*selected.before, selected)]
    targets: dict[str, Info] = {alias: one.info for one in every for alias in one.aliases}
    if document.evaluation.finetune:
        targets["finetune"] = FINETUNE
    given: list[tuple[str, str, Any]] = []
    for text in sets:
        with at(f"--set {text}"):
            path, equals, value = text.partition("=")
            target, _, key = path.strip().rpartition(".")
            if not (equals and target):
                raise UsageError("Write method.key=value or finetune.key=value.")
            if target not in targets:
                raise _no_target(target, targets, {*(row.method for row in document.row), *names.known("methods")})
            given.append((target, key, parse(targets[target], key, value.strip())))

    def of(names: Collection[str]) -> dict[str, Any]:
        return {key: value for target, key, value in given if target in names}

    def settled(one: SelectedRow) -> SelectedRow:
        before = tuple(map(settled, one.before))
        return replace(one, before=before, hyper=of(one.aliases), finetune=of(["finetune"]))

    return list(map(settled, rows))


def _no_target(target: str, targets: Mapping[str, Info], methods: Collection[str]) -> UsageError:
    """The error for a `--set` of what is not selected; `methods`: those that could be."""
    if target not in methods:
        return unknown("method", target, targets)
    selected = ", ".join(dict.fromkeys(one.name for one in targets.values() if one is not FINETUNE))
    return UsageError(
        f"{target} is not selected: add --method {target}, or leave this --set out. Selected: {selected}."
        f"{renames.hint(target, targets)}"
    )


def check_method_keys(suite: Suite, document: Document, rows: Sequence[SelectedRow]) -> None:
    """Reject a table of hyperparameters or fine-tuning for a method, or in a column for a row, that is not there."""
    keys = {selected.key for selected in rows}
    tables = {"hyper": (list(document.hyper), keys)}
    for i, column in enumerate(document.column):
        tables[f"column[{i}].hyper"] = list(column.hyper), keys | {selected.row.id for selected in rows}
        tables[f"column[{i}].finetune"] = list(column.finetune.model_extra or {}), tables[f"column[{i}].hyper"][1]
    for place, (methods, known) in tables.items():
        with at(f"{suite.path}: {place}"):
            all_known("method", methods, known)


def shared(suite: Suite, document: Document, index: int) -> dict[str, Any]:
    """The part of a `RunSpec` that all runs of a column have in common."""
    column, place = document.column[index], f"{suite.path}: column[{index}]"
    keys = set(FederationKeys.model_fields)
    federation = document.federation.model_dump(exclude_none=True)
    federation |= column.model_dump(include=keys, exclude_none=True)
    federation.setdefault("training_clients", federation["clients"])
    federation.setdefault("cohort", federation["training_clients"])
    if not federation["cohort"] <= federation["training_clients"] <= federation["clients"]:
        raise UsageError(f"{place}: cohort ≤ training_clients ≤ clients does not hold.")
    if document.evaluation.clients == "held-out" and federation["training_clients"] == federation["clients"]:
        raise UsageError(f"{place}.training_clients: no client is left to be held out.")
    if column.subset and column.subset.smallest > federation["clients"]:
        raise UsageError(f"{place}.subset.smallest: there are only {federation['clients']} clients.")
    called, infos = references(suite, document, index), dict[names.Kind, Info]()
    # What is on this machine first: stored runs that tell of the rest agree with it.
    for kind in sorted(called, key=lambda kind: names.is_reference(called[kind]) and not is_there(kind, called[kind])):
        with at(f"{place}.{_KEYS[kind]}"):
            infos[kind] = suite.own.options(kind, called[kind])
    return federation | {
        "dataset": _named(infos["datasets"], column.dataset, f"{place}.dataset"),
        "partition": _named(infos["partitions"], column.partition, f"{place}.partition"),
        "model": infos["models"].name,
        "model_version": infos["models"].version,
        "rounds": column.rounds,
        "batch": column.batch,
    }


def places(suite: Suite, document: Document, index: int) -> names.Places:
    """Paths of user-supplied code, files and folders of a column's dataset, partition and network."""
    column, called = document.column[index], references(suite, document, index)
    found: dict[str, str] = {kind: name for kind, name in called.items() if names.is_reference(name)}
    tables: tuple[tuple[names.Kind, NamedTable], ...] = ("datasets", column.dataset), ("partitions", column.partition)
    for kind, table in tables:
        given = table.model_extra or {}
        for key in suite.own.options(kind, called[kind]).paths:
            if key in given:
                found[f"{kind}.{key}"] = str(_path(suite, given[key]))
    return found


def _path(suite: Suite, given: str) -> Path:
    """A user's file or folder with its whole path: seen from the suite file's folder, else from the data root."""
    beside = suite.path.parent.resolve() / Path(given).expanduser()
    below = (suite.own.root or beside).absolute() / given
    return below if below.exists() and not beside.exists() else beside


def hyperparameters(
    suite: Suite, document: Document, index: int, selected: SelectedRow
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every hyperparameter's value, and the source of those that the suite file gives one for, defaults included.

    One set of values for each point of the row's grid in the order written, the first key changing slowest; a single
    set without a grid. A column's values go by a method, or by the id of a row that is no method's name.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str | None] = {}
    for place, layer in _layers(suite, document, index, selected.entry, selected.place):
        for key, entry in layer.items():
            if entry.like is not None:
                entry = _alike(suite, document, index, entry, f"{place}.{key}.like")
            with at(f"{place}.{key}"):
                values[key], sources[key] = coerce(selected.info, key, entry.value), entry.source
    grid = candidates(selected.info, selected.entry.grid, f"{selected.place}.grid")
    values |= selected.hyper
    sources |= {key: selected.entry.grid[key].source for key in grid} | dict.fromkeys(selected.hyper)
    for key, source in origins.defaults(document, index, selected).items():
        sources.setdefault(key, source)
    varied = {key: tried for key, tried in grid.items() if key not in selected.hyper}
    points = [dict(zip(varied, chosen, strict=True)) for chosen in product(*varied.values())]
    known = {key: source for key, source in sources.items() if source}
    return [complete(selected.info, values | point) for point in points], known


def _layers(
    suite: Suite, document: Document, index: int, row: Row, place: str
) -> list[tuple[str, Mapping[str, Sourced]]]:
    """Everything that the file says of a row's hyperparameters in a column, with its place, the stronger later."""
    own, head = document.column[index].hyper, f"{suite.path}: column[{index}].hyper"
    layers: list[tuple[str, Mapping[str, Sourced]]] = [
        (f"{suite.path}: hyper.{row.method}", document.hyper.get(row.method, {})),
        (f"{head}.{row.method}", own.get(row.method, {})),
        (f"{place}.hyper", row.hyper),
    ]
    if id_ := _alone(document, row):
        layers.append((f"{head}.{id_}", own.get(id_, {})))
    return layers


def _alone(document: Document, row: Row) -> str:
    """The row's id where a column's values may go by it; empty where it is the name of a method."""
    return "" if row.id in {other.method for other in document.row} else row.id


def _alike(suite: Suite, document: Document, index: int, entry: Sourced, place: str) -> Sourced:
    """Entry of another row's hyperparameter in a column; `entry.like`: `row.hyperparameter`."""
    id_, _, key = (entry.like or "").rpartition(".")
    with at(place):
        row = next((row for row in document.row if row.id == id_), None)
        if row is None:
            raise unknown("row", id_, [row.id for row in document.row])
        entries = [layer[key] for _, layer in _layers(suite, document, index, row, "") if key in layer]
        if not entries or entries[-1].like is not None:
            raise UsageError(f"the suite file gives {id_} no {key} of its own.")
    own = entries[-1].source and entry.source  # a value that a profile sets has no source
    return entries[-1].model_copy(update={"source": own or entries[-1].source})


def candidates(info: Info, grid: Mapping[str, Candidates], place: str) -> dict[str, list[Any]]:
    """The values that a grid in a suite file tries; `place`: where in the file it stands."""
    lists = {}
    for key, entry in grid.items():
        with at(f"{place}.{key}"):
            lists[key] = [coerce(info, key, value) for value in entry.value]
            check_distinct(lists[key])
    return lists


def check_distinct(values: Sequence[Any]) -> None:
    """Raise `UsageError` if a grid tries a value twice."""
    if any(value in values[:i] for i, value in enumerate(values)):
        raise UsageError("a value is there twice.")


def finetuning(
    suite: Suite, document: Document, index: int, selected: SelectedRow
) -> tuple[Finetune | None, dict[str, str]]:
    """The fine-tuning of one row in one column, and its values' sources; None and empty if the suite has none.

    A column's own values go by a method, or by the id of a row that is no method's name, which is stronger.
    """
    if document.evaluation.finetune is None:
        return None, {}
    column = document.column[index].finetune
    named = column.model_extra or {}
    own = [named[name] for name in (selected.key, _alone(document, selected.entry)) if name in named]
    keys: dict[str, Any] = {}
    sources: dict[str, str] = {key: source for key, source in document.sources.items() if key.startswith("finetune.")}
    for layer in (document.evaluation.finetune, column, *own):
        values = layer.model_dump(include=set(FinetuneKeys.model_fields), exclude_none=True)
        keys |= values
        sources |= {f"finetune.{key}": layer.given.get(key, "") for key in values}
    keys |= selected.finetune
    sources |= {f"finetune.{key}": "" for key in selected.finetune}
    if "lr" not in keys:
        raise UsageError(f"{suite.path}: column[{index}].finetune.lr: missing")
    with at("finetune"):
        return Finetune(**keys), {key: source for key, source in sources.items() if source}


def reported_steps(suite: Suite, document: Document, index: int, finetune: Finetune) -> tuple[int, ...]:
    """The fine-tuning steps that a column's cells average: its own, else the suite's, else the last."""
    own = document.column[index].report
    report = own or document.evaluation.report
    steps = tuple(report.steps) if report else (finetune.steps,)
    if max(steps) > finetune.steps:
        place = f"{suite.path}: {f'column[{index}]' if own else 'evaluation'}.report.steps"
        raise UsageError(f"{place}: step {max(steps)} is not there, fine-tuning ends with step {finetune.steps}.")
    return steps


def printed(document: Document, row: str, column: str, stage: Shown) -> Reference | None:
    """Number that the paper printed there. Without a stage it is that of the one stage that the row shows."""
    printed = document.reference.get(row, {}).get(column, [])
    numbers = printed.get(stage, []) if isinstance(printed, dict) else printed
    if not numbers:
        return None
    suspect, inferred = origins.suspicion(document, row, column), origins.inferred(document, row, column)
    mean, spread = (*numbers, None)[:2]
    text = mean if isinstance(mean, str) else None
    return Reference(float(mean or 0), None if spread is None else float(spread), suspect, text, inferred)


def _named(info: Info, table: NamedTable, place: str) -> Named:
    options = {}
    for key, value in (table.model_extra or {}).items():
        with at(f"{place}.{key}"):
            options[key] = coerce(info, key, value)
            if key in info.paths:  # where it lies is no part of what it is
                options[key] = Path(value).name or str(value)
    with at(place):
        return Named(name=info.name, options=complete(info, options), version=info.version)
