"""Inheritance of suite files: `extends` another file, a column or row is `like` another.

All of it happens to the raw tables, before anything is checked. What has the wrong shape here is left as it is, for the
check to complain about.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pflbench.errors import UsageError, unknown
from pflbench.suite.scoped import carried

Raw = dict[str, Any]
TAKEN = ("paper", "protocol", "seeds", "spread")
"""Keys of `[suite]` that a file takes over from the one it extends as they are."""


def merged(old: Raw, new: Mapping[str, Any]) -> Raw:
    """`old` with `new` over it: tables merge, all else is replaced."""
    result = dict(old)
    for key, value in new.items():
        # A table that names a thing or gives a value is a new thing; mixing in the old one's options would be wrong.
        whole = not isinstance(value, dict) or "name" in value or "value" in value
        mixes = not whole and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if mixes else value
    return result


def extended_file(raw: Mapping[str, Any], path: Path, shipped: Mapping[str, Path]) -> Path | None:
    """The file that this one extends; None if it stands alone. Raises `UsageError` if it is not there.

    `shipped`: files of the suites that may be named instead.
    """
    name = _table(raw, "suite").get("extends")
    if name is None:
        return None
    place = f"{path}: suite.extends"
    if not isinstance(name, str):
        raise UsageError(f"{place}: a suite's name, or the path of its file, not {name!r}")
    file = shipped.get(name, path.parent / name)
    if not file.is_file():
        siblings = [other.name for other in file.parent.glob("*.toml") if other != path] if ".toml" in name else shipped
        raise UsageError(f"{place}: {unknown('suite file', name, siblings)}")
    return file


def inherited(raw: Raw, base: Raw | None, path: Path) -> Raw:
    """`raw`, the content of the file `path`, with what it takes over; `base` is the extended file's, complete."""
    below = base or {}
    whole = "row" not in raw and "row" in below
    if whole:
        raw = raw | {"row": below["row"]}
    rows = _Family("row", raw, below, path)
    result = raw | ({"row": rows.tables} if rows.tables else {})
    below = _without(below, _gone(below, rows))
    columns = _Family("column", raw, below, path)
    if columns.tables:
        result["column"] = columns.tables
    for key in ("federation", "evaluation", "hyper", "sources"):
        if key in below and isinstance(raw.get(key, {}), dict):
            result[key] = merged(below[key], raw.get(key, {}))
    if base is not None:
        result |= _extended(raw, below, rows, columns, whole)
    if isinstance(raw.get("profile", {}), dict):
        result["profile"] = _profiles(raw, below, columns)
    return result


def _gone(below: Raw, rows: _Family) -> set[str | None]:
    """The methods and the ids of rows that the extended file has and this one has not."""
    there = {_name(row, "method") for row in rows.tables}
    methods = {_name(row, "method") for row in _tables(below, "row")} - there
    ids = {_name(row, "id") for row in _tables(below, "row")} - {_name(row, "id") for row in rows.tables} - there
    return methods | ids


def _extended(raw: Raw, below: Raw, rows: _Family, columns: _Family, whole: bool) -> Raw:
    """What only a file that extends another one takes over: head, layout, grids, and what is said of cells."""
    said = _said(raw, below, rows, columns, whole)
    notes = {"notes": said.pop("notes")} if "notes" in said else {}
    taken = {k: v for k, v in _table(below, "suite").items() if k in TAKEN}
    result = {"suite": taken | _table(raw, "suite") | notes, **said}
    if isinstance(raw.get("layout", {}), dict):
        result["layout"] = _layout(below, rows) | raw.get("layout", {})
    if "tune" in below and isinstance(raw.get("tune", {}), dict):
        result["tune"] = merged(_tune(below, columns), raw.get("tune", {}))
    return result


class _Family:
    """The columns or rows of a file, each with the one that it is like, in this file or the extended one."""

    def __init__(self, kind: str, raw: Raw, below: Raw, path: Path):
        self.kind, self.path = kind, path
        listed = raw.get(kind)
        self.own: list[Any] = listed if isinstance(listed, list) else []
        self.below = {_name(table, "id"): table for table in _tables(below, kind)}
        self.parents = [self._parent(i) for i in range(len(self.own))]
        self.tables = [self._resolved(i, ()) for i in range(len(self.own))]

    def _parent(self, i: int) -> int | str | None:
        """The one that `own[i]` is like: of this file by its number, or of the extended file by its id."""
        name = _name(self.own[i], "like")
        others = {_name(table, "id"): j for j, table in enumerate(self.own) if j != i}
        if name is None or name in others:
            return None if name is None else others[name]
        if name in self.below:
            return name
        for j, table in enumerate(self.own):
            if isinstance(table, dict) and "id" not in table:  # which may be the one that is meant
                raise UsageError(f"{self.path}: {self.kind}[{j}].id: missing (keys there: {', '.join(table)})")
        known = [id_ for id_ in (*others, *self.below) if id_ is not None]
        raise UsageError(f"{self.path}: {self.kind}[{i}].like: {unknown(self.kind, name, known)}")

    def _resolved(self, i: int, trail: tuple[int, ...]) -> Any:
        if i in trail:
            ids = " → ".join(repr(_name(self.own[j], "id")) for j in (*trail[trail.index(i) :], i))
            raise UsageError(f"{self.path}: {self.kind}[{i}].like: goes round in a circle: {ids}")
        table, parent = self.own[i], self.parents[i]
        if parent is None:
            return table
        model = self.below[parent] if isinstance(parent, str) else self._resolved(parent, (*trail, i))
        # What is scored and what is shown of it go together.
        hidden = {"stage", "stages"} if {"stage", "stages"} & table.keys() else set()
        own = {k: v for k, v in table.items() if k != "like"}
        shared = {} if hidden or not isinstance(parent, str) else self._scored(model, own)
        return merged({k: v for k, v in model.items() if k not in {"id", *hidden}} | shared, own)

    def _scored(self, model: Raw, own: Raw) -> Raw:
        """What keeps the runs of a row those of the extended file's row: the stages that they are scored at there."""
        if self.kind != "row" or "stages" in model or own.get("method", model.get("method")) != model.get("method"):
            return {}
        named = [row.get(key) for row in self.below.values() for key in ("stage", "stages", "scored")]
        stages = [one for given in named for one in (given if isinstance(given, list) else [given])]
        return {"scored": list(dict.fromkeys(stage for stage in stages if isinstance(stage, str)))}

    def heirs(self) -> dict[str, list[str]]:
        """By id in the extended file, those of this file that are like it and of the same method."""
        heirs: dict[str, list[str]] = {}
        for i, table in enumerate(self.tables):
            model: int | str | None = i
            while isinstance(model, int):
                model = self.parents[model]
            id_ = _name(table, "id")
            if model is not None and id_ and _name(self.below[model], "method") == _name(table, "method"):
                heirs.setdefault(model, []).append(id_)
        return heirs

    def overrides(self, i: int, own: Raw, below: Raw) -> Raw:
        """What a profile overrides in `own[i]`: first for the one it is like, then for itself."""
        parent = self.parents[i]
        if parent is None:
            model: Raw = {}
        else:
            model = _table(below, parent) if isinstance(parent, str) else self.overrides(parent, own, below)
        return merged(model, own.get(_name(self.own[i], "id") or "", {}))


def _said(raw: Raw, below: Raw, rows: _Family, columns: _Family, whole: bool) -> Raw:
    """This file's notes, departures and the like, then those of the extended file about rows and columns still there.

    Plain notes are taken over where this file has none; suspicions and departures by a suite of the same paper, where a
    departure of the same `what` replaces the inherited one. `whole`: the rows are the extended file's own.
    """
    methods = {method for row in rows.tables if (method := _name(row, "method"))}
    same = {id_: [id_] for id_ in rows.below if id_}
    heirs = same if whole else rows.heirs(), methods, columns.heirs()
    own, theirs = _table(raw, "suite"), _table(below, "suite")
    notes: list[Any] = []
    for note in theirs.get("notes", []):
        if isinstance(note, dict):
            notes += carried([note], *heirs)
        elif "notes" not in own:
            notes.append(note)
    both: Raw = {"notes": [own.get("notes", []), notes]}
    both["follows"] = [raw.get("follows", []), carried(below.get("follows", []), *heirs)]
    if own.get("paper", theirs.get("paper")) == theirs.get("paper"):
        named = [_name(table, "what") for table in _tables(raw, "departure")]
        departures = [table for table in below.get("departure", []) if _name(table, "what") not in named]
        both["departure"] = [raw.get("departure", []), carried(departures, *heirs)]
        both["suspect"] = [raw.get("suspect", []), carried(below.get("suspect", []), *heirs)]
    return {key: mine + inherited for key, (mine, inherited) in both.items() if isinstance(mine, list)}


def _profiles(raw: Raw, below: Raw, columns: _Family) -> Raw:
    theirs, mine = _table(below, "profile"), _table(raw, "profile")
    result: Raw = {}
    for name in (*theirs, *(name for name in mine if name not in theirs)):
        old, new = _table(theirs, name), mine.get(name, {})
        own = new.get("column", {}) if isinstance(new, dict) else None
        if not isinstance(own, dict) or not all(isinstance(table, dict) for table in own.values()):
            result[name] = new
            continue
        before = _table(old, "column")
        column = own | {"*": merged(_table(before, "*"), own.get("*", {}))}
        column |= {_name(t, "id") or "": columns.overrides(i, own, before) for i, t in enumerate(columns.own)}
        result[name] = merged(old, new) | {"column": column}
    return result


def _layout(below: Raw, rows: _Family) -> Raw:
    """The extended file's `[layout]`, with the stages that some row has."""
    layout = _table(below, "layout")
    there = {
        stage for row in rows.tables if isinstance(row, dict) for stage in (*row.get("stages", ()), row.get("stage"))
    }
    stages = {stage: title for stage, title in _table(layout, "stages").items() if stage in there}
    return layout | ({"stages": stages} if "stages" in layout else {})


def _tune(below: Raw, columns: _Family) -> Raw:
    """The extended file's `[tune]`, as far as it speaks of columns that are there."""
    tune, ids = _table(below, "tune"), [_name(table, "id") for table in columns.own]
    return tune | {"columns": [id_ for id_ in tune.get("columns", []) if id_ in ids]}


def _without(raw: Raw, names: set[Any]) -> Raw:
    """A suite without what it says of these methods and row ids, of which the extending file has no row."""

    def kept(table: Raw) -> Raw:
        cut = {
            key: {name: value for name, value in _table(table, key).items() if name not in names}
            for key in ("hyper", "sources", "finetune", "grid", "reduced")
            if key in table
        }
        return table | cut

    result = kept(raw)
    if "tune" in raw:
        result["tune"] = kept(raw["tune"])
    if "column" in raw:
        result["column"] = [kept(column) for column in raw["column"]]
    if "profile" in raw:
        result["profile"] = {
            name: kept(profile) | {"column": {id_: kept(column) for id_, column in _table(profile, "column").items()}}
            for name, profile in raw["profile"].items()
        }
    return result


def _table(raw: Mapping[str, Any], key: str) -> Raw:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}


def _tables(raw: Mapping[str, Any], key: str) -> list[Raw]:
    value = raw.get(key)
    return [table for table in value if isinstance(table, dict)] if isinstance(value, list) else []


def _name(table: Any, key: str) -> str | None:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, str) else None
