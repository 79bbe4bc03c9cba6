"""Write `pflbench/catalog.json`: what `pflbench.catalog` says of everything that comes with pflbench.

`python tools/docs/catalog.py` after a change of a built-in class; a test says if the file is older than a class.
"""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from typing import Any

from pflbench import names
from pflbench.catalog import REQUIRED, FieldInfo, Info, MethodInfo, imported_method, imported_options
from pflbench.stages import Stages


def catalog() -> dict[str, dict[str, Any]]:
    """The file's content, by kind and name."""
    methods = [*names.BUILT_IN["methods"], *variants()]
    found: dict[str, dict[str, Any]] = {"methods": {name: told(imported_method(name)) for name in sorted(methods)}}
    kinds: tuple[names.Kind, ...] = ("datasets", "partitions", "models")
    for kind in kinds:
        found[kind] = {name: told(imported_options(kind, name)) for name in sorted(names.BUILT_IN[kind])}
    return found


def variants() -> list[str]:
    """Names of the public classes in the files of variants."""
    return [
        f"{file}:{node.name}"
        for file, path in names.variant_files().items()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.decorator_list
    ]


def told(one: Info | FieldInfo | Stages) -> dict[str, Any]:
    """Attributes that are not at their default, but for those that the name or the type gives."""
    left_out = {"name", "reference", "choices"}
    found = {}
    for field in fields(one):
        value = getattr(one, field.name)
        default = Stages() if field.name == "stages" else field.default
        if field.name not in left_out and value is not REQUIRED and (value != default or field.name == "default"):
            found[field.name] = value
    if isinstance(one, Info):
        found["fields"] = {name: told(field) for name, field in one.fields.items()}
    if isinstance(one, MethodInfo) and one.stages != Stages():
        found["stages"] = told(one.stages)
    return {key: value for key, value in found.items() if value != {}}


def main() -> None:
    """Write the file."""
    names.CATALOG.write_text(json.dumps(catalog(), indent=1, default=str) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
