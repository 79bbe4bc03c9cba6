"""Suite files on disk: where they are, and from TOML to a checked `Suite`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from pflbench.catalog import MethodInfo
from pflbench.data.root import data_root
from pflbench.errors import UsageError, unknown
from pflbench.names import anchored, base
from pflbench.package import benchmarks
from pflbench.suite import scoped
from pflbench.suite.cells import Expansion
from pflbench.suite.columns import check_keys
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.inherit import Raw, Shape, inherited
from pflbench.suite.rows import suite_rows
from pflbench.suite.schema import Column, Row, SuiteTable
from pflbench.suite.strict import TomlTable, at, validated
from pflbench.suite.tuning import suites_points
from pflbench.suite.user_supplied import UserSupplied
from pflbench.units import parse_seeds


def required(suites: Sequence[str]) -> Sequence[str]:
    """These suites' names. Raises `UsageError` if there are none, with those that come with pflbench."""
    if not suites:
        raise UsageError(
            "Which suite? Write --suite NAME, or the path of a .toml file. See `pflbench ls suites --all`."
        )
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
    """The suites that come with pflbench and are figures: their file has a `[figure]`, which is looked for unparsed."""
    return {name: path for name, path in available().items() if "\n[figure]" in path.read_text(encoding="utf-8")}


def find(name: str, folder: Path = Path()) -> Path:
    """The file of a suite given by name, or by a path from `folder` (anything that ends in `.toml`)."""
    suites, path = available(), folder / name
    if name in suites:
        return suites[name]
    if not name.endswith(".toml"):
        raise unknown("suite", name, suites, "pflbench ls suites --all")
    with suppress(OSError):  # such as a name that is too long
        if path.is_file():
            return path
    raise unknown("suite file", name, [other.name for other in path.parent.glob("*.toml")])


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises `UsageError`."""
    try:
        return tomli.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a BOM
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:  # of TOML, of UTF-8, or of an integer with more digits than Python reads
        raise UsageError(f"{path}: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: its tables or lists are nested too deeply. Write them flatter.") from error


def load(name: str, supplied: UserSupplied | None = None) -> Suite:
    """A suite by name or path, every profile of it checked down to each method's hyperparameters.

    `supplied`: as `read` takes it.
    """
    suite = read(name, supplied)
    checked = replace(suite, supplied=replace(suite.supplied, root=None))
    for profile in suite.profiles:
        check_keys(checked, profile)
        expand(checked, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    for row in suite_rows(checked, suite.document()):
        suites_points(checked, suite.document(), row)
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
    return replace(_read(find(name), (), supplied)[1], called=name, supplied=supplied)


_known: dict[Path, tuple[Raw, Suite]] = {}
"""Suites that come with pflbench, as read in this process: they extend each other, and stay the same files."""


def _read(path: Path, above: tuple[Path, ...], supplied: UserSupplied) -> tuple[Raw, Suite]:
    """A suite file's content with all that it inherits, and its suite; `above` are the files that extend it."""
    if path not in _known:
        content = read_toml(path)
        validated(Shape, content, f"{path}: ")
        _check_keys(content, path)
        raw, remarks = _inherited(content, path, above, supplied)
        result = raw, parse(_with_defaults(raw, path, supplied.method), path, remarks)
        if path not in available().values():
            return result
        _known[path] = result
    return _known[path]


def _check_keys(raw: Raw, path: Path) -> None:
    """Reject unknown keys of a file's suite, rows and columns, by their places in this file, before it inherits."""
    tables: list[tuple[str, Raw, type[TomlTable]]] = [("suite", raw.get("suite", {}), SuiteTable)]
    tables += [(f"row[{i}]", table, Row) for i, table in enumerate(raw.get("row", []))]
    tables += [(f"column[{i}]", table, Column) for i, table in enumerate(raw.get("column", []))]
    for where, table, model in tables:
        for key in (key for key in table if key not in model.model_fields):
            raise UsageError(f"{path}: {where}.{key}: {unknown('key', key, model.model_fields)}")


def _inherited(raw: Raw, path: Path, above: tuple[Path, ...], supplied: UserSupplied) -> tuple[Raw, scoped.Remarks]:
    """A file's content with all that it inherits, and the remarks of the files that it extends."""
    raw = _identified(raw, path)
    for table, key in (("suite", "extends"), ("layout", "beside")):
        if name := raw.get(table, {}).get(key):
            with at(f"{path}: {table}.{key}"):
                raw[table][key] = str(find(str(name), path.parent).resolve())  # a path, wherever it was named from
    base = raw.get("suite", {}).get("extends")
    if not base:
        return inherited(raw, None, path).raw, ()
    if base in [str(one.resolve()) for one in (*above, path)]:
        chain = " → ".join(str(one) for one in (*above, path, base))
        raise UsageError(f"{path}: suite.extends: goes round in a circle: {chain}")
    below, extended = _read(Path(base), (*above, path), supplied)
    document = extended.document()
    complete = inherited(raw, below, path, {row.id: document.scored(row) for row in document.row})
    same_paper = complete.raw["suite"].get("paper", document.suite.paper) == document.suite.paper
    return complete.raw, scoped.inherited(document.remarks, complete, same_paper=same_paper)


def _identified(raw: Raw, path: Path) -> Raw:
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


def _with_defaults(raw: Raw, path: Path, describe: Callable[[str], MethodInfo]) -> Raw:
    """The content of a file, with all that it inherits, and with default names, titles and stages.

    Titles are ids by default, and the suite's name is that of the file. `describe`: describes a row's method.
    """
    name = {"name": _id(path.stem)} | raw.get("suite", {})
    result = raw | {"suite": {"title": name["name"]} | name, "federation": {"query": 0.2} | raw.get("federation", {})}
    for kind in ("column", "row"):
        if raw.get(kind):
            result[kind] = [{"title": table["id"]} | table for table in raw[kind]]
    evaluation, tables = raw.get("evaluation", {}), (raw.get("federation", {}), *raw.get("column", ()))
    who, moment = evaluation.get("clients", "all"), evaluation.get("moment", "after-aggregation")
    held_out = who == "held-out" or (who == "all" and any("training_clients" in table for table in tables))
    for row in result.get("row", ()):
        if "method" in row and not {"stage", "stages"} & row.keys():
            present = set[str]()
            with suppress(UsageError):  # which `expand` reports
                stages = describe(row.get("variant") or anchored(row["method"], path.parent)).stages
                present.update(stages.present({}, moment=moment, held_out=held_out))
            row["stage"] = "personalized" if "personalized" in present else "global"
    return result


def _id(name: str) -> str:
    """An id made of a method's or a file's name: `mine.py:MyMethod` becomes `mymethod`."""
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition(":")[2].lower()).strip("-")
