"""Suite files on disk: where they are, and from TOML to a checked `Suite`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pflbench
from pflbench.errors import UsageError, unknown
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.inherit import extended_file, inherited
from pflbench.suite.resolve import shared
from pflbench.suite.tuning import check_tuning

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def folder(package: Path | None = None) -> Path:
    """The folder of suite files: inside an installed package, or beside it in a checkout."""
    package = package or Path(pflbench.__file__).parent
    inside, beside = package / "benchmarks", package.parent / "benchmarks"
    # Beside an installed package lie other packages: only a project's own folder counts.
    return beside if not inside.is_dir() and (package.parent / "pyproject.toml").is_file() else inside


def available() -> dict[str, Path]:
    """Every suite that comes with pflbench: `cafeme/table1.toml` is `cafeme-table1`."""
    root = folder()
    files = sorted(root.rglob("*.toml"))
    return {"-".join(path.relative_to(root).with_suffix("").parts): path for path in files}


def find(name: str) -> Path:
    """The file of a suite given by name, or by a path (anything that ends in `.toml`)."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"There is no suite file {name!r}.")
        return path
    suites = available()
    if name not in suites:
        raise unknown("suite", name, suites)
    return suites[name]


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's content. Raises `UsageError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def load(name: str) -> Suite:
    """A suite by name or path, every profile of it checked down to each method's hyperparameters."""
    path = find(name)
    suite = replace(parse(_complete(path, ()), path), called=name)
    for profile in suite.profiles:
        document = suite.document(profile)
        if document.statistics is not None:
            for index in range(len(document.column)):
                shared(suite, document, index)
            continue
        expand(suite, profile=profile, seeds=document.suite.seeds[:1])
    check_tuning(suite)
    return suite


def _complete(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A suite file's content with what it takes over; `above` are the files that extend it."""
    raw = read_toml(path)
    base = extended_file(raw, path, available())
    if base is None:
        return inherited(raw, None, path)
    raw["suite"]["extends"] = str(base.resolve())  # from now on a path, wherever it was named from
    if base.resolve() in [p.resolve() for p in (*above, path)]:
        chain = " → ".join(str(p) for p in (*above, path, base))
        raise UsageError(f"{path}: suite.extends: goes round in a circle: {chain}")
    below = _complete(base, (*above, path))
    parse(below, base)  # what is wrong there is not this file's mistake
    return inherited(raw, below, path)
