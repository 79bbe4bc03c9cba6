"""A user's own code as text, to be laid out again where a run trains that has none of its files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pflbench import names, usercode
from pflbench.errors import UsageError
from pflbench.names import Places

Luggage = Mapping[str, Mapping[str, str]]
"""By kind, as in `Places`, of what is no installed package: the files' texts by their paths relative to the user's
file, whose own path and attribute, with a colon between, are under `""`.
Modules of Python's import path have paths that begin with `PATH`."""
PATH = "path:"


def pack(places: Places) -> dict[str, dict[str, str]]:
    """The code behind these references. What they name by paths (`datasets.OPTION`) is not packed.

    Raises:
        UsageError: A file is not there.
    """
    packed = {}
    for kind, reference in places.items():
        if "." in kind or not names.is_users(reference):
            continue
        code = names.code(reference)
        if usercode.is_installed(code.path):
            continue
        where, attribute = names.split_reference(reference)
        outside = set(code.outside.values())
        files = {f"{PATH if name in outside else ''}{name}": text for name, text in code.neighbors.items()}
        own = code.path.name if where.endswith(".py") else f"{PATH}{_below(where, code.path)}"
        packed[kind] = {"": f"{own}:{attribute}", own: code.source, **files}
    return packed


def unpack(packed: Luggage, places: Places, folder: Path) -> dict[str, str]:
    """Write packed code into a folder, which nobody else may write to; returns these places with the code there.

    Raises:
        UsageError: A path leads out of the folder.
        OSError: It cannot be written.
    """
    found = dict(places)
    for kind, files in packed.items():
        own, _, attribute = files[""].rpartition(":")
        deep = max((PurePosixPath(name).parts.count("..") for name in files if name), default=0)
        base = folder.joinpath(kind, *(f"folder{k}" for k in range(deep)))
        path = folder / kind / "path"
        for name, text in files.items():
            if name:
                file = path / name.removeprefix(PATH) if name.startswith(PATH) else base / name
                if folder.resolve() not in file.resolve().parents:
                    raise UsageError(f"The code of a run has a file {name!r}, which lies nowhere.")
                file.resolve().parent.mkdir(parents=True, exist_ok=True)
                file.resolve().write_text(text, encoding="utf-8")
        if path.is_dir() and str(path) not in sys.path:
            sys.path.insert(0, str(path))
        if not own.startswith(PATH):
            found[kind] = f"{base / own}:{attribute}"
    return found


def _below(module: str, path: Path) -> str:
    """The path of a module's file below the folder of the import path that it was found in."""
    parts = module.split(".")
    return "/".join([*parts, "__init__.py"]) if path.name == "__init__.py" else "/".join(parts) + ".py"
