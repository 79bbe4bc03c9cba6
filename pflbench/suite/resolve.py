"""The settings of one row in one column: defaults, suite, column, row and overrides, of which the later win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

from pflbench import names
from pflbench.catalog import FieldInfo, Info, coerce, complete, parse
from pflbench.errors import UsageError, unknown
from pflbench.spec import Finetune, Named
from pflbench.stages import Shown
from pflbench.suite import origins
from pflbench.suite.cells import Reference
from pflbench.suite.document import Document, Suite
from pflbench.suite.schema import Candidates, FederationKeys, FinetuneKeys, NamedTable, Sourced
from pflbench.suite.select import SelectedRow, all_known, anchored, references
from pflbench.suite.strict import at

_FINETUNE = Info(
    "finetune",
    "pflbench.spec:Finetune",
    {key: FieldInfo(kind) for key, kind in (("steps", "int"), ("lr", "float"), ("decay", "float"), ("every", "int"))},
    "Test-time fine-tuning.",
)


class Setting(NamedTuple):
    """One `--set target.key=value`."""

    target: str
    key: str
    value: Any


def settings(document: Document, sets: Sequence[str], rows: Sequence[SelectedRow]) -> list[Setting]:
    """Parse `method.key=value` and `finetune.key=value`; a target that no selected row has is an error."""
    targets: dict[str, Info] = {alias: selected.info for selected in rows for alias in selected.aliases}
    if document.evaluation.finetune:
        targets["finetune"] = _FINETUNE
    settings = []
    for text in sets:
        with at(f"--set {text}"):
            path, equals, value = text.partition("=")
            target, _, key = path.strip().rpartition(".")
            if not (equals and target):
                raise UsageError("Write method.key=value or finetune.key=value.")
            if target not in targets:
                raise unknown("method", target, targets)
            settings.append(Setting(target, key, parse(targets[target], key, value.strip())))
    return settings


def check_method_keys(suite: Suite, document: Document, rows: Sequence[SelectedRow]) -> None:
    """Reject a table of hyperparameters or fine-tuning for a method, or in a column for a row, that is not there."""
    keys = {selected.key for selected in rows}
    tables = {"hyper": (list(document.hyper), keys)}
    for i, column in enumerate(document.column):
        tables[f"column[{i}].hyper"] = list(column.hyper), keys | {selected.row.id for selected in rows}
        tables[f"column[{i}].finetune"] = list(column.finetune.model_extra or {}), keys
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
    with at(f"{place}.model"):
        model = suite.own.options("models", anchored(column.model, suite.path.parent))
    return federation | {
        "dataset": _named(suite, "datasets", column.dataset, f"{place}.dataset"),
        "partition": _named(suite, "partitions", column.partition, f"{place}.partition"),
        "model": model.name,
        "model_version": model.version,
        "rounds": column.rounds,
        "batch": column.batch,
    }


def places(suite: Suite, document: Document, index: int) -> names.Places:
    """Where the code is of a column's dataset, partition and network, as far as they are the user's own."""
    return {kind: name for kind, name in references(suite, document, index).items() if names.is_reference(name)}


def hyperparameters(
    suite: Suite, document: Document, index: int, selected: SelectedRow, overrides: Sequence[Setting]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every hyperparameter's value, and the source of those that the suite file gives one for, defaults included.

    One set of values for each point of the row's grid in the order written, the first key changing slowest; a single
    set without a grid. A column's values go by a method, or by the id of a row that is no method's name.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str | None] = {}
    for place, layer in _layers(
        suite, document, index, selected.key, selected.row.id, selected.place, selected.said.hyper
    ):
        for key, entry in layer.items():
            if entry.like is not None:
                entry = _alike(suite, document, index, entry, f"{place}.{key}.like")
            values[key], sources[key] = _coerced(selected.info, key, entry.value, place), entry.source
    grid = candidates(selected.info, selected.said.grid, f"{selected.place}.grid")
    sources |= {key: selected.said.grid[key].source for key in grid}
    for target, key, value in overrides:
        if target in selected.aliases:
            values[key], sources[key] = value, None
            grid.pop(key, None)
    given = {key for target, key, _ in overrides if target in selected.aliases}
    for key, source in origins.defaults(document, index, selected).items():
        if key not in sources and key not in given:
            sources[key] = source
    points = [dict(zip(grid, chosen, strict=True)) for chosen in product(*grid.values())]
    known = {key: source for key, source in sources.items() if source}
    return [complete(selected.info, values | point) for point in points], known


def _layers(
    suite: Suite, document: Document, index: int, method: str, row: str, place: str, hyper: Mapping[str, Sourced]
) -> list[tuple[str, Mapping[str, Sourced]]]:
    """Everything that the file says of a row's hyperparameters in a column, with its place, the stronger later.

    `hyper` is what the row itself says, at `place`.
    """
    own, head = document.column[index].hyper, f"{suite.path}: column[{index}].hyper"
    layers = [
        (f"{suite.path}: hyper.{method}", document.hyper.get(method, {})),
        (f"{head}.{method}", own.get(method, {})),
        (f"{place}.hyper", hyper),
    ]
    if row not in {other.method for other in document.row}:
        layers.append((f"{head}.{row}", own.get(row, {})))
    return layers


def _alike(suite: Suite, document: Document, index: int, entry: Sourced, place: str) -> Sourced:
    """What the file says of another row's hyperparameter in a column; `entry.like`: `row.hyperparameter`."""
    id_, _, key = (entry.like or "").rpartition(".")
    with at(place):
        row = next((row for row in document.row if row.id == id_), None)
        if row is None:
            raise unknown("row", id_, [row.id for row in document.row])
        layers = _layers(suite, document, index, row.method, id_, "", row.hyper)
        entries = [layer[key] for _, layer in layers if key in layer]
        if not entries or entries[-1].like is not None:
            raise UsageError(f"the suite file gives {id_} no {key} of its own.")
    own = entries[-1].source and entry.source  # a value that a profile sets has no source
    return entries[-1].model_copy(update={"source": own or entries[-1].source})


def _coerced(info: Info, key: str, value: Any, place: str) -> Any:
    """What `coerce` makes of a value that stands at `place` in a file."""
    try:
        return coerce(info, key, value)
    except UsageError as error:
        raise UsageError(f"{place}.{key}: {error}") from error


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
    suite: Suite, document: Document, index: int, selected: SelectedRow, overrides: Sequence[Setting]
) -> tuple[Finetune | None, dict[str, str]]:
    """The fine-tuning of one method in one column, and its values' sources; None and empty if the suite has none."""
    if document.evaluation.finetune is None:
        return None, {}
    column = document.column[index].finetune
    own = (column.model_extra or {}).get(selected.key, FinetuneKeys())
    keys: dict[str, Any] = {}
    sources: dict[str, str] = {k: source for k, source in document.sources.items() if k.startswith("finetune.")}
    for layer in (document.evaluation.finetune, column, own):
        values = layer.model_dump(include=set(FinetuneKeys.model_fields), exclude_none=True)
        keys |= values
        sources = {key: source for key, source in sources.items() if key.removeprefix("finetune.") not in values}
        sources |= {f"finetune.{key}": source for key, source in layer.given.items()}
    for target, key, value in overrides:
        if target == "finetune":
            keys[key] = value
            sources.pop(f"finetune.{key}", None)
    if "lr" not in keys:
        raise UsageError(f"{suite.path}: column[{index}].finetune.lr: missing")
    with at("finetune"):
        return Finetune(**keys), sources


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
    """What the paper printed there. A number without a stage is that of the one stage that the row shows."""
    printed = document.reference.get(row, {}).get(column, [])
    numbers = printed.get(stage, []) if isinstance(printed, dict) else printed
    if not numbers:
        return None
    suspect = origins.suspicion(document, row, column)
    mean, spread = (*numbers, None)[:2]
    text = mean if isinstance(mean, str) else None
    return Reference(float(mean or 0), None if spread is None else float(spread), suspect, text)


def _named(suite: Suite, kind: Literal["datasets", "partitions"], table: NamedTable, place: str) -> Named:
    with at(f"{place}.name"):
        info = suite.own.options(kind, anchored(table.name, suite.path.parent))
    options = {}
    for key, value in (table.model_extra or {}).items():
        options[key] = _coerced(info, key, value, place)
    with at(place):
        return Named(name=info.name, options=complete(info, options), version=info.version)
