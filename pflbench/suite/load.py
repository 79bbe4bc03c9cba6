"""Suite files on disk: where they are, and from TOML to a checked `Suite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import tomli

from pflbench.data.root import data_root
from pflbench.errors import UsageError, unknown
from pflbench.package import benchmarks
from pflbench.suite import scoped
from pflbench.suite.cells import Expansion
from pflbench.suite.defaults import identified, with_defaults
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.inherit import LIST, Shape, extended_file, file_beside, inherited
from pflbench.suite.layers import check_sources
from pflbench.suite.strict import validated
from pflbench.suite.tuning import check_tuning
from pflbench.suite.user_supplied import UserSupplied
from pflbench.units import parse_seeds


def required(suites: Sequence[str]) -> Sequence[str]:
    """These suites' names. Raises `UsageError` if there are none, with those that come with pflbench."""
    if not suites:
        raise UsageError(f"Which suite? Write --suite NAME, or the path of a .toml file. `{LIST}` lists the names.")
    return suites


def available() -> dict[str, Path]:
    """Every suite that comes with pflbench: `cafeme/table1.toml` is `cafeme-table1`.

    A file in a folder `variants` is named as if it were beside that folder.
    """
    return dict(_shipped(benchmarks()))


def is_variant(path: Path) -> bool:
    """True for a suite that tries other readings of a paper's table."""
    return path.parent.name == "variants"


@cache
def _shipped(root: Path) -> dict[str, Path]:
    # The suites that come with pflbench stay the same files while it runs.
    files = [path for path in root.rglob("*.toml") if path.name != "claims.toml"]
    parts = {path: [part for part in path.relative_to(root).parts if part != "variants"] for path in files}
    return {"-".join(parts[path]).removesuffix(".toml"): path for path in sorted(files, key=lambda path: parts[path])}


def figures() -> dict[str, Path]:
    """The suites that come with pflbench and are figures: their file has a `[figure]`."""
    # Parsing a file costs more than looking whether the word is there at all.
    candidates = {name: path for name, path in available().items() if "[figure" in path.read_text(encoding="utf-8")}
    return {name: path for name, path in candidates.items() if "figure" in read_toml(path)}


def find(name: str) -> Path:
    """The file of a suite given by name, or by a path (anything that ends in `.toml`)."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            if path.is_file():
                return path
        except OSError as error:  # such as a name that is too long
            raise UsageError(f"Cannot read the suite file {name!r}: {error.strerror or error}.") from error
        raise UsageError(f"There is no suite file {name!r}.")
    suites = available()
    if name not in suites:
        raise unknown("suite", name, suites, LIST)
    return suites[name]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `UsageError`."""
    try:
        content = tomli.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a BOM
        _check_integers(path, "", content)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:  # of TOML, of UTF-8, or of an integer with more digits than Python reads
        raise UsageError(f"{path}: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: its tables or lists are nested too deeply. Write them flatter.") from error
    return content


def _check_integers(path: Path, key: str, value: Any) -> None:
    """Raise `UsageError` for an integer of more than 64 bits, which is all that TOML has."""
    if isinstance(value, dict | list):
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            _check_integers(path, f"{key}.{name}" if key else str(name), one)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(f"{path}: {key} is an integer of more than 64 bits. Write a smaller one.")


def load(name: str, supplied: UserSupplied | None = None) -> Suite:
    """A suite by name or path, every profile of it checked down to each method's hyperparameters.

    `supplied`: as `read` takes it.
    """
    suite = read(name, supplied)
    checked = replace(suite, supplied=replace(suite.supplied, root=None))
    for profile in suite.profiles:
        expand(checked, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    check_sources(checked)
    check_tuning(checked)
    return suite


def loaded(suites: Sequence[str], data_dir: str | Path | None) -> list[Suite]:
    """The suites by these names, to be trained or checked: their user-supplied code may be imported.

    User-supplied data are looked for below the data root. Raises `UsageError`.
    """
    return [load(name, UserSupplied(data_root(data_dir), imports=True)) for name in required(suites)]


def requested_table(request: Mapping[str, Any], supplied: UserSupplied) -> Expansion:
    """The table that a run was trained for, with the rounds, seeds and precision that were selected.

    `request`: `asked` of the run's provenance. Raises `UsageError` if the suite is gone or has become another one.
    """
    seeds = request.get("seeds")
    return expand(
        read(request.get("file") or request["suite"], supplied),
        profile=request["profile"],
        rounds=request.get("rounds"),
        seeds=parse_seeds(seeds) if isinstance(seeds, str) else seeds,  # runs of before 1.0 have them as text
        precision=request.get("precision"),
    )


def read(name: str, supplied: UserSupplied | None = None) -> Suite:
    """A suite by name or path, of which only the files are checked: `expand` finds the other errors.

    `supplied`: access to user-supplied code and data; by default in the data root.
    """
    supplied = supplied or UserSupplied(data_root())
    return replace(_read(find(name), (), supplied).suite, called=name, supplied=supplied)


class _Read(NamedTuple):
    """A suite file's content with all that it inherits, and the suite made of it."""

    raw: dict[str, Any]
    suite: Suite


_known: dict[Path, _Read] = {}
"""Suites that come with pflbench, as read in this process: they extend each other, and stay the same files."""


def _read(path: Path, above: tuple[Path, ...], supplied: UserSupplied) -> _Read:
    """A suite file with all that it inherits; `above` are the files that extend it."""
    if path in _known:
        return _known[path]
    raw = read_toml(path)
    validated(Shape, raw, f"{path}: ")
    raw = identified(raw, path)
    base, beside = (find_file(raw, path, available()) for find_file in (extended_file, file_beside))
    if beside is not None:
        raw["layout"]["beside"] = str(beside.resolve())
    below: _Read | None = None
    remarks: scoped.Remarks = ()
    if base is not None:
        raw["suite"]["extends"] = str(base.resolve())  # from now on a path, wherever it was named from
        if base.resolve() in [p.resolve() for p in (*above, path)]:
            chain = " → ".join(str(p) for p in (*above, path, base))
            raise UsageError(f"{path}: suite.extends: goes round in a circle: {chain}")
        below = _read(base, (*above, path), supplied)
    complete = inherited(raw, below and below.raw, path)
    if below is not None:
        document = below.suite.document()
        paper = document.suite.paper
        same_paper = complete.raw["suite"].get("paper", paper) == paper
        remarks = scoped.inherited(document.remarks, complete, same_paper=same_paper)
    whole, defaults = with_defaults(complete.raw, path, supplied.method)
    result = _Read(complete.raw, replace(parse(whole, path, remarks), defaults=defaults))
    if path in available().values():
        _known[path] = result
    return result
