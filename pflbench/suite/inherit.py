"""Inheritance of suite files: `extends` another file, a column or row is `like` another.

All of it happens to the raw tables. Of a file's own only the shape is checked before; those that it extends are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from pflbench.errors import UsageError, unknown
from pflbench.suite.strict import all_known, at

Raw = dict[str, Any]
TAKEN = ("paper", "protocol", "seeds", "spread", "paper_round")
"""Keys of `[suite]` that a file takes over from the one it extends as they are."""


class _Loose(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class _Head(_Loose):
    extends: str = ""
    rows: list[str] = []
    columns: list[str] = []


class _Like(_Loose):
    id: str = ""
    like: str = ""
    method: str = ""
    stages: list[Any] = []


class _Profile(_Loose):
    column: dict[str, Raw] = {}


class Shape(_Loose):
    """Types of a file's tables that merging relies on."""

    suite: _Head = _Head()
    column: list[_Like] = []
    row: list[_Like] = []
    profile: dict[str, _Profile] = {}
    federation: Raw = {}
    evaluation: Raw = {}
    hyper: dict[str, Raw] = {}
    sources: Raw = {}
    layout: Raw = {}
    tune: Raw = {}


def merged(old: Raw, new: Mapping[str, Any]) -> Raw:
    """`old` with `new` over it: tables merge, all else is replaced."""
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and not _replaces(key, value, before):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


def _replaces(key: str, new: Raw, old: Raw) -> bool:
    """True for a dataset or partition with a name, and for `{value[, source]}` or `{like}` over another value."""
    if key in ("dataset", "partition") and "name" in new:
        return True
    # Beside other keys, `value` is a hyperparameter's name.
    return not new.keys().isdisjoint({"value", "like"}) and (new | old).keys() <= {"value", "source", "like"}


class Complete(NamedTuple):
    """A file's content with all that it takes over; `rows`, `columns`: by id, the model in the extended file."""

    raw: Raw
    rows: Mapping[str, str]
    columns: Mapping[str, str]


def inherited(raw: Raw, base: Raw | None, path: Path, scored: Mapping[str, Sequence[str]] | None = None) -> Complete:
    """`raw`, the content of the file `path`, with what it takes over; `base` is the extended file's, complete.

    `scored`: the stages that the runs of each row of the extended file are scored at, by the row's id.
    """
    below = base or {}
    raw = _listed(raw, below, path)
    rows = _resolved("row", raw, below, path, scored or {})
    below = _without(below, _gone(rows, below))
    columns = _resolved("column", raw, below, path, {})
    resolved = {"row": rows, "column": columns}
    result = raw | {kind: [one.table for one in several] for kind, several in resolved.items() if several}
    for key in ("federation", "evaluation", "hyper", "sources"):
        if key in below:
            result[key] = merged(below[key], raw.get(key, {}))
    if base is not None:
        result["suite"] = {key: value for key, value in below["suite"].items() if key in TAKEN} | raw["suite"]
        result["layout"] = _layout(below, rows) | raw.get("layout", {})
    if "tune" in below:
        result["tune"] = _tune(raw.get("tune", {}), below["tune"], [one.ids[-1] for one in columns])
    result["profile"] = _profiles(raw, below, columns)
    return Complete(result, _models("row", rows, below), _models("column", columns, below))


def _listed(raw: Raw, below: Raw, path: Path) -> Raw:
    """The file with the rows and columns that `suite.rows` and `suite.columns` list, then its others.

    A file without any row has all of the extended one.
    """
    result = dict(raw)
    lists = {kind: raw.get("suite", {}).get(f"{kind}s") for kind in ("row", "column")}
    if "row" not in raw:
        lists["row"] = lists["row"] or [*_by_id("row", below)]
    for kind, ids in lists.items():
        if ids:
            tables = raw.get(kind, [])
            with at(f"{path}: suite.{kind}s"):
                all_known(kind, ids, [*(table.get("id", "") for table in tables), *_by_id(kind, below)])
            named = [[table for table in tables if table.get("id") == id_] or [{"id": id_, "like": id_}] for id_ in ids]
            result[kind] = [*chain.from_iterable(named), *(table for table in tables if table.get("id") not in ids)]
    return result


class _Resolved(NamedTuple):
    """A column or row with all that it takes over.

    `model`: id of the extended file's one that it is like. `ids`: of this file's ones that it is like, from far to
    near, its own last.
    """

    table: Raw
    model: str | None = None
    ids: tuple[str, ...] = ()


def _by_id(kind: str, raw: Raw) -> dict[str, Raw]:
    return {table["id"]: table for table in raw.get(kind, [])}


def _resolved(kind: str, raw: Raw, below: Raw, path: Path, scored: Mapping[str, Sequence[str]]) -> list[_Resolved]:
    """The columns or rows of a file, each with what the one that it is like has, in this file or the extended one."""
    tables, models = raw.get(kind, []), _by_id(kind, below)

    def resolve(i: int, *nearer: int) -> _Resolved:
        table, name = tables[i], tables[i].get("like")
        others = {other.get("id", ""): j for j, other in enumerate(tables) if j not in (i, *nearer)}
        if name is None:
            base = _Resolved({})
        elif name in others:
            base = resolve(others[name], *nearer, i)
        elif name in models:
            base = _Resolved(models[name] | _scored(models[name], table, scored.get(name)), name)
        else:
            raise UsageError(f"{path}: {kind}[{i}].like: {unknown(kind, name, {*others, *models})}")
        # What is scored and what is shown of it go together.
        hidden = {"id", "stage", "stages"} if {"stage", "stages"} & table.keys() else {"id"}
        taken = {key: value for key, value in base.table.items() if key not in hidden}
        whole = merged(taken, {key: value for key, value in table.items() if key != "like"})
        return _Resolved(whole, base.model, (*base.ids, table.get("id", "")))

    for i, table in enumerate(tables):
        if "id" not in table:
            raise UsageError(f"{path}: {kind}[{i}].id: missing (its keys: {', '.join(table) or 'none'})")
    return [resolve(i) for i in range(len(tables))]


def _scored(model: Raw, table: Raw, scored: Sequence[str] | None) -> Raw:
    """Stages at which the extended file scores a row's runs, so that a row that is like it has these runs."""
    other_method = table.get("method", model.get("method")) != model.get("method")
    if scored is None or other_method or "stages" in model or {"stage", "stages"} & table.keys():
        return {}
    return {"scored": list(scored)}


def _gone(rows: Sequence[_Resolved], below: Raw) -> set[str]:
    """The methods and the ids of rows that the extended file has and this one has not."""
    methods, models = {row.table.get("method") for row in rows}, _by_id("row", below)
    gone = {row["method"] for row in models.values()} - methods
    return gone | (models.keys() - {row.table.get("id") for row in rows} - methods)


def _models(kind: str, several: Sequence[_Resolved], below: Raw) -> dict[str, str]:
    """By id, the extended file's one that each is like; left out where that has another method."""
    methods = {id_: table.get("method") for id_, table in _by_id(kind, below).items()}
    return {one.ids[-1]: one.model for one in several if one.model and methods[one.model] == one.table.get("method")}


def _tune(tune: Raw, below: Raw, columns: Sequence[str]) -> Raw:
    """`[tune]` with what it takes over; trials of its own replace all inherited ones."""
    dropped = {"grid", "points", "read"} if {"grid", "points"} & tune.keys() else set[str]()
    remaining = {key: value for key, value in below.items() if key not in dropped}
    return merged(remaining | {"columns": [id_ for id_ in below.get("columns", []) if id_ in columns]}, tune)


def _profiles(raw: Raw, below: Raw, columns: Sequence[_Resolved]) -> Raw:
    old_profiles, new_profiles = below.get("profile", {}), raw.get("profile", {})
    result: Raw = {}
    for name in old_profiles | new_profiles:
        old, new = old_profiles.get(name, {}), new_profiles.get(name, {})
        before, after = old.get("column", {}), new.get("column", {})
        column = after | {"*": merged(before.get("*", {}), after.get("*", {}))}
        for one in columns:
            patches = (before.get(one.model or "", {}), *(after.get(id_, {}) for id_ in one.ids))
            column[one.ids[-1]] = reduce(merged, patches)
        result[name] = merged(old, new) | {"column": column}
    return result


def _layout(below: Raw, rows: Sequence[_Resolved]) -> Raw:
    """The extended file's `[layout]`, with the stages that some row has."""
    layout: Raw = below.get("layout", {})
    present = [stage for row in rows for stage in (*row.table.get("stages", ()), row.table.get("stage"))]
    stages = {stage: title for stage, title in layout.get("stages", {}).items() if stage in present}
    return layout | ({"stages": stages} if "stages" in layout else {})


_ABOUT = ("hyper", "sources", "finetune", "grid", "points", "read")
"""Tables whose keys are methods or row ids."""


def _without(value: Any, names: set[str]) -> Any:
    """A suite's tables without those of these methods and row ids, of which the extending file has no row."""
    if isinstance(value, list):
        return [_without(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    result = {key: one if key in ("row", "reference") else _without(one, names) for key, one in value.items()}
    for key in _ABOUT:
        if isinstance(table := value.get(key), dict):
            result[key] = {name: one for name, one in table.items() if name not in names}
    return result
