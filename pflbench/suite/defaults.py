"""Defaults of a suite file: values that it and the files that it extends may leave out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pflbench.catalog import MethodInfo
from pflbench.errors import UsageError
from pflbench.names import anchored, base
from pflbench.stages import Shown
from pflbench.suite.inherit import Raw

TABLES: Mapping[str, Raw] = {
    "suite": {"paper": "none", "protocol": "the suite's own", "spread": {"kind": "std"}},
    "federation": {"query": 0.2},
    "evaluation": {"clients": "all", "average": "examples"},
}
"""Default values, by table and key."""
_STAGES: tuple[Shown, ...] = ("personalized", "global")
"""Stages of a row that names none: the first of these that its method has."""


def identified(raw: Raw, path: Path) -> Raw:
    """The content of a file in which every row that names a method has an id: by default the method's name.

    Of a variant, `variant` is the name, and `method` that of its built-in method, by which the suite's tables have
    values and remarks for it.
    """
    rows = []
    for row in raw.get("row", ()):
        if "method" in row:
            name = anchored(row["method"], path.parent)
            row = ({} if "like" in row else {"id": _id(row["method"])}) | row
            row |= {"method": base(name), "variant": name} if base(name) != name else {"variant": ""}
        rows.append(row)
    return raw | ({"row": rows} if rows else {})


def with_defaults(raw: Raw, path: Path, describe: Callable[[str], MethodInfo]) -> tuple[Raw, tuple[str, ...]]:
    """The content of a file, with all that it inherits, and with defaults; and those that runs or numbers depend on.

    Titles are ids by default, and the suite's name is that of the file. `describe`: describes a row's method.
    """
    result, taken = dict(raw), list[str]()
    for table, values in TABLES.items():
        written = raw.get(table, {})
        result[table] = values | written
        taken += [f"{table}.{key} = {_text(value)}" for key, value in values.items() if key not in written]
    name = {"name": _id(path.stem)} | result["suite"]
    result["suite"] = {"title": name["name"]} | name
    for kind in ("column", "row"):
        if raw.get(kind):
            result[kind] = [({"title": table["id"]} if "id" in table else {}) | table for table in raw[kind]]
    for row in result.get("row", ()):
        if "method" in row and not {"stage", "stages"} & row.keys():
            row["stage"] = "global"
            with suppress(UsageError):  # which `expand` reports
                row["stage"] = _stage(describe(row.get("variant") or anchored(row["method"], path.parent)), result)
            taken.append(f"stage of {row.get('id')} = {row['stage']}")
    return result, tuple(taken)


def _stage(method: MethodInfo, raw: Raw) -> Shown:
    evaluation, who = raw["evaluation"], raw["evaluation"]["clients"]
    some_train = any("training_clients" in table for table in (raw["federation"], *raw.get("column", ())))
    moment, held_out = evaluation.get("moment", "after-aggregation"), who == "held-out" or (who == "all" and some_train)
    present = method.stages.present({}, moment=moment, held_out=held_out)
    return next((stage for stage in _STAGES if stage in present), "global")


def _id(name: str) -> str:
    """An id made of a method's or a file's name: `mine.py:MyMethod` becomes `mymethod`."""
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition(":")[2].lower()).strip("-")


def _text(value: Any) -> str:
    return str(value["kind"] if isinstance(value, dict) else value)
