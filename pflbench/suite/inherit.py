"""Inheritance of suite files: `extends` another file, a column or row is `like` another.

All of it happens to the raw tables. Of a file's own only the shape is checked before; those that it extends are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from pflbench.errors import UsageError, unknown

Raw = dict[str, Any]
LIST = "pflbench ls suites --all"
"""Command that lists the suites that come with pflbench."""
TAKEN = ("paper", "protocol", "seeds", "spread", "paper_round")
"""Keys of `[suite]` that a file takes over from the one it extends as they are."""


class _Loose(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class _Head(_Loose):
    notes: list[Any] = []


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
    hyper: Raw = {}
    sources: Raw = {}
    layout: Raw = {}
    tune: Raw = {}
    follows: list[Raw] = []
    departure: list[Raw] = []
    suspect: list[Raw] = []
    inferred: list[Raw] = []


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


def extended_file(raw: Mapping[str, Any], path: Path, shipped: Mapping[str, Path]) -> Path | None:
    """The file that this one extends; None if it stands alone. Raises `UsageError` if it is not there.

    `shipped`: files of the suites that may be named instead.
    """
    return _named_file(raw.get("suite", {}).get("extends"), f"{path}: suite.extends", path, shipped)


def file_beside(raw: Mapping[str, Any], path: Path, shipped: Mapping[str, Path]) -> Path | None:
    """The file whose numbers stand beside this one's; None if there is none. Raises `UsageError` as `extended_file`."""
    return _named_file(raw.get("layout", {}).get("beside"), f"{path}: layout.beside", path, shipped)


def _named_file(name: Any, place: str, path: Path, shipped: Mapping[str, Path]) -> Path | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError(f"{place}: a suite's name, or the path of its file, not {name!r}")
    file = shipped.get(name, path.parent / name)
    if not file.is_file():
        if ".toml" not in name:
            raise UsageError(f"{place}: {unknown('suite', name, shipped, LIST)}")
        siblings = [other.name for other in file.parent.glob("*.toml") if other != path]
        raise UsageError(f"{place}: {unknown('suite file', name, siblings)}")
    return file


class Complete(NamedTuple):
    """A file's content with all that it takes over; `rows`, `columns`: as `scoped.Layer` has them."""

    raw: Raw
    rows: Mapping[str, str]
    columns: Mapping[str, str]


def inherited(raw: Raw, base: Raw | None, path: Path) -> Complete:
    """`raw`, the content of the file `path`, with what it takes over; `base` is the extended file's, complete."""
    below = base or {}
    whole = "row" not in raw and "row" in below
    if whole:
        raw = raw | {"row": below["row"]}
    rows = _Family("row", raw, below, path)
    below = _without(below, rows.gone())
    columns = _Family("column", raw, below, path)
    result = raw | {family.kind: family.tables for family in (rows, columns) if family.tables}
    for key in ("federation", "evaluation", "hyper", "sources"):
        if key in below:
            result[key] = merged(below[key], raw.get(key, {}))
    if base is not None:
        result["suite"] = {key: value for key, value in below["suite"].items() if key in TAKEN} | raw["suite"]
        result["layout"] = _layout(below, rows) | raw.get("layout", {})
    if "tune" in below:
        result["tune"] = _tune(raw.get("tune", {}), below["tune"], [column.get("id") for column in columns.own])
    result["profile"] = _profiles(raw, below, columns)
    return Complete(result, {id_: id_ for id_ in rows.below} if whole else rows.models(), columns.models())


class _Family:
    """The columns or rows of a file, each with the one that it is like, in this file or the extended one."""

    def __init__(self, kind: str, raw: Raw, below: Raw, path: Path):
        self.kind, self.path = kind, path
        self.own: list[Raw] = raw.get(kind, [])
        self.below: dict[str, Raw] = {table["id"]: table for table in below.get(kind, [])}
        self.trails = [self._trail(i) for i in range(len(self.own))]
        self.tables = [self._resolved(*trail) for trail in self.trails]

    def _parent(self, i: int) -> int | str | None:
        """The one that `own[i]` is like: of this file by its number, or of the extended file by its id."""
        name = self.own[i].get("like")
        others = {table.get("id", ""): j for j, table in enumerate(self.own) if j != i}
        if name is None or name in others:
            return None if name is None else others[name]
        if name in self.below:
            return str(name)
        for j, table in enumerate(self.own):
            if "id" not in table:  # which may be the one that is meant
                raise UsageError(f"{self.path}: {self.kind}[{j}].id: missing (keys there: {', '.join(table)})")
        raise UsageError(f"{self.path}: {self.kind}[{i}].like: {unknown(self.kind, name, [*others, *self.below])}")

    def _trail(self, i: int) -> tuple[str | None, list[int]]:
        """From far to near: the extended file's one that `own[i]` is like, if any, and this file's, `i` itself last."""
        numbers = [i]
        while isinstance(parent := self._parent(numbers[0]), int):
            numbers.insert(0, parent)
            if parent in numbers[1:]:
                ids = " → ".join(repr(self.own[j].get("id")) for j in reversed(numbers))
                raise UsageError(f"{self.path}: {self.kind}[{i}].like: goes round in a circle: {ids}")
        return parent, numbers

    def _resolved(self, model: str | None, numbers: Sequence[int]) -> Raw:
        table: Raw = self.below[model] if model is not None else {}
        for i in numbers:
            own = {key: value for key, value in self.own[i].items() if key != "like"}
            # What is scored and what is shown of it go together.
            hidden = {"stage", "stages"} if {"stage", "stages"} & own.keys() else set()
            shared = self._scored(table, own) if model is not None and i == numbers[0] and not hidden else {}
            table = merged({key: v for key, v in table.items() if key not in {"id", *hidden}} | shared, own)
        return table

    def _scored(self, model: Raw, own: Raw) -> Raw:
        """Stages at which the extended file scores a row's runs, so that the row keeps these runs."""
        if self.kind != "row" or "stages" in model or own.get("method", model.get("method")) != model.get("method"):
            return {}
        named = ((row.get("stage"), *row.get("stages", ()), *row.get("scored", ())) for row in self.below.values())
        return {"scored": list(dict.fromkeys(stage for stages in named for stage in stages if stage))}

    def gone(self) -> set[str]:
        """The methods and the ids of rows that the extended file has and this one has not."""
        there = {row.get("method") for row in self.tables}
        methods = {row["method"] for row in self.below.values()} - there
        return methods | (self.below.keys() - {row.get("id") for row in self.tables} - there)

    def models(self) -> dict[str, str]:
        """By id, the one of the extended file that it is like; left out where that has another method."""
        return {
            table["id"]: model
            for table, (model, _) in zip(self.tables, self.trails, strict=True)
            if model is not None and "id" in table and self.below[model].get("method") == table.get("method")
        }

    def overrides(self, i: int, own: Raw, below: Raw) -> Raw:
        """Overrides of a profile for `own[i]`: those of the ones it is like, then its own."""
        model, numbers = self.trails[i]
        result: Raw = below.get(model or "", {})
        for j in numbers:
            result = merged(result, own.get(self.own[j].get("id", ""), {}))
        return result


def _tune(own: Raw, below: Raw, columns: Sequence[str | None]) -> Raw:
    """`[tune]` with what it takes over; trials of its own replace all inherited ones."""
    given_up = {"grid", "points", "read"} if {"grid", "points"} & own.keys() else set[str]()
    remaining = {key: value for key, value in below.items() if key not in given_up}
    return merged(remaining | {"columns": [id_ for id_ in below.get("columns", []) if id_ in columns]}, own)


def _profiles(raw: Raw, below: Raw, columns: _Family) -> Raw:
    old_profiles, new_profiles = below.get("profile", {}), raw.get("profile", {})
    result: Raw = {}
    for name in old_profiles | new_profiles:
        old, new = old_profiles.get(name, {}), new_profiles.get(name, {})
        before, own = old.get("column", {}), new.get("column", {})
        column = own | {"*": merged(before.get("*", {}), own.get("*", {}))}
        column |= {t.get("id", ""): columns.overrides(i, own, before) for i, t in enumerate(columns.own)}
        result[name] = merged(old, new) | {"column": column}
    return result


def _layout(below: Raw, rows: _Family) -> Raw:
    """The extended file's `[layout]`, with the stages that some row has."""
    layout: Raw = below.get("layout", {})
    there = [stage for row in rows.tables for stage in (*row.get("stages", ()), row.get("stage"))]
    stages = {stage: title for stage, title in layout.get("stages", {}).items() if stage in there}
    return layout | ({"stages": stages} if "stages" in layout else {})


def _without(raw: Raw, names: set[str]) -> Raw:
    """A suite without what it says of these methods and row ids, of which the extending file has no row."""

    def remaining(table: Raw) -> Raw:
        about = [key for key in ("hyper", "sources", "finetune", "grid", "points", "read") if key in table]
        return table | {key: {name: v for name, v in table[key].items() if name not in names} for key in about}

    def columns(profile: Raw) -> Raw:
        return {id_: remaining(column) for id_, column in profile.get("column", {}).items()}

    result = remaining(raw)
    if "tune" in raw:
        result["tune"] = remaining(raw["tune"])
    if "column" in raw:
        result["column"] = [remaining(column) for column in raw["column"]]
    profiles = raw.get("profile", {})
    return result | {"profile": {name: remaining(one) | {"column": columns(one)} for name, one in profiles.items()}}
