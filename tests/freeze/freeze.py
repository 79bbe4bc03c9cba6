"""Everything that a change of the code must not move unless it is meant to.

`python tests/freeze/freeze.py` writes it to frozen.json and cells.csv, and stored_ids.json. Run it after one of these things
was changed on purpose; then say so in CHANGELOG.md. Never run it to make a test pass. Only the committed runs that
`ids.txt` lists are read, so runs that are added move nothing.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest import mock

import typer

import pflbench as pb
from pflbench import catalog, names
from pflbench.cli import main as cli
from pflbench.report.reading import readable
from pflbench.selection import selection
from pflbench.store import Store, Stored, runfile
from pflbench.store.header import metadata
from pflbench.store.leases import Leases
from pflbench.store.verbs import pack
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load, loaded

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "results"
IDS = frozenset((HERE / "ids.txt").read_text(encoding="utf-8").split())
"""Ids of the committed runs that are read: those of commit aea3633, without four whose suites are gone."""
BASE = 27
"""Columns of the CSV that stay."""
GONE = ("cafeme-chained", "pfedvem-filter")
"""Suites of cells.csv that are gone."""
TITLES = {"pFedMe": "pFedME"}
"""Titles of rows in cells.csv that were mended, as they are now."""
FROZEN, CELLS, STORED = HERE / "frozen.json", HERE / "cells.csv", HERE / "stored_ids.json"
USERS, SHORTENED = HERE / "users", HERE / "store"


class FrozenStore(Store):
    """Committed runs of `IDS`."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(RESULTS)

    def find(self, id: str) -> Stored | None:
        return super().find(id) if id in IDS else None

    def every(self) -> dict[str, Stored]:
        return {id: run for id, run in super().every().items() if id in IDS}


def digest(*texts: str) -> str:
    """Twelve hex digits of a SHA-256 over texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def suites() -> Iterator[tuple[str, Suite]]:
    """Every shipped suite with runs, as one reads it who has the committed results and no data."""
    looked_up = readable(FrozenStore())
    for name in available():
        suite = load(name, looked_up)
        if suite.document().row:
            yield name, suite


def run_ids() -> dict[str, str]:
    """Number and digest of the run ids of every suite and profile."""
    return {
        f"{name} {profile}": f"{len(runs)} runs, {digest(*(run.id for run in runs))}"
        for name, suite in suites()
        for profile in suite.profiles
        for runs in [expand(suite, profile=profile).runs]
    }


def stored_ids() -> dict[str, dict[str, list[str]]]:
    """Ids of committed runs that each suite finds, by suite and profile."""
    stored, found = {run.spec.id for run in FrozenStore().list()}, dict[str, dict[str, list[str]]]()
    for name, suite in suites():
        for profile in suite.profiles:
            if ids := sorted(stored & {run.id for run in expand(suite, profile=profile).runs}):
                found.setdefault(name, {})[profile] = ids
    return found


def report(format: str) -> str:
    """`pflbench report --all --full` over the committed results."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = Path(folder) / "tables"
        told = ["report", "--all", "--full", "--results", str(RESULTS), "--format", format, "-o", str(path)]
        with contextlib.suppress(SystemExit), mock.patch("pflbench.cli.report.ShownStore", FrozenStore):
            cli.main(told)
        return path.read_text(encoding="utf-8")


def cells(text: str) -> list[list[str]]:
    """Lines of a CSV of tables in its base columns, sorted, without suites that are gone."""
    lines = (line[:BASE] for line in csv.reader(io.StringIO(text)) if line[0] not in GONE)
    return sorted([TITLES.get(word, word) for word in line] for line in lines)


GLYPHS = re.compile(
    r"\\makebox\[1em\]\{[^{}]*\}|^(?:[✓≈?✗]|\$\\(?:surd|approx|times)\$) (?=agrees|close|inconclusive|differs)"
)
"""Glyphs of verdicts, which stand beside what is frozen."""


def tables(format: str) -> dict[str, str]:
    """Digest of what stands in each table's cells (heads, numbers, marks, verdicts), by title or key; prose is left out."""
    found: dict[str, list[str]] = {}
    for key, words in GRIDS[format](report(format)):
        found.setdefault(key, []).extend(GLYPHS.sub("", word) for word in words)
    return {key: digest(*words) for key, words in found.items()}


Words = Iterator[tuple[str, list[str]]]


def _markdown(text: str) -> Words:
    for block in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in block.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
        yield (
            block.partition("\n")[0],
            [word.strip() for line in lines for word in re.split(r"(?<!\\)\|", line.strip("|"))],
        )


def _latex(text: str) -> Words:
    for block in re.split(r"^\\begin\{table\*?\}", text, flags=re.MULTILINE)[1:]:
        label = re.search(r"\\label\{(.*?)\}", block)
        grids = re.findall(r"\\toprule(.*?)\\bottomrule", block, re.DOTALL)
        yield (
            label[1] if label else "none",
            [word.strip() for grid in grids for word in re.split(r"(?<!\\)&|\\\\", grid)],
        )


class _Grids(HTMLParser):
    """Texts of the cells of a page's tables, by the key of the table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.key, self.cell, self.words = "", False, dict[str, list[str]]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "section":
            self.key = given.get("data-table") or given.get("data-page") or ""
        self.cell = (self.cell or tag in ("td", "th")) and tag != "section"
        if tag in ("td", "th"):
            self.words.setdefault(self.key, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self.cell = self.cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.words[self.key][-1] += data.strip()


def _page(text: str) -> Words:
    yield from ((key, words) for key, words in _Grids(text).words.items() if "." in key)
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    for table in json.loads(data[1])["tables"]:
        for reading, shown in table["readings"].items():
            for place, cell in shown["cells"].items():
                words = [cell.get(name, "") for name in ("paper", "diff", "verdict", "worst", "median")]
                yield table["key"], [reading, place, *map(str, words)]


GRIDS: dict[str, Callable[[str], Words]] = {"markdown": _markdown, "latex": _latex, "html": _page}


def signatures() -> dict[str, str]:
    """Signature of each name of `pflbench`, and the public attributes of its classes."""
    found = {}
    for name in pb.__all__:
        value = getattr(pb, name)
        found[name] = str(inspect.signature(value))
        if inspect.isclass(value):
            found[name] += f" {sorted(one for one in dir(value) if not one.startswith('_'))}"
    return found


def verbs() -> dict[str, list[str]]:
    """Options and arguments of each verb: names, type and default."""

    def of(app: typer.Typer, before: str = "") -> Iterator[tuple[str, list[str]]]:
        for command in app.registered_commands:
            assert command.callback
            yield before + (command.name or command.callback.__name__), sorted(_parameters(command.callback))
        for group in app.registered_groups:
            assert group.typer_instance
            yield from of(group.typer_instance, f"{before}{group.name} ")

    return dict(sorted(of(cli.program())))


def _parameters(verb: Callable[..., Any]) -> Iterator[str]:
    hints = get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        if hints[name] is not typer.Context:
            kind, option = get_args(hints[name])[:2]
            kind = kind.__name__ if inspect.isclass(kind) and not get_args(kind) else kind
            first = [option.default] if isinstance(option.default, str) else []
            declared = "/".join([*first, *(option.param_decls or [])] or [name])
            yield f"{declared} {kind} = {parameter.default!r}".replace("pathlib._local", "pathlib")  # so in 3.13


def imports() -> list[str]:
    """Names that README and docs import from pflbench in their examples."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    code = "\n".join(
        block for page in pages for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
    lines = re.findall(r"^from (pflbench[\w.]*) import ([\w, ]+)", code, re.MULTILINE)
    modules = re.findall(r"^import (pflbench\.[\w.]+)", code, re.MULTILINE)
    return sorted({f"{module}:{name.strip()}" for module, them in lines for name in them.split(",")} | {*modules})


def importable(name: str) -> bool:
    """True if `module:name`, or a module, can be imported."""
    module, _, attribute = name.partition(":")
    return hasattr(importlib.import_module(module), attribute or "__name__")


def built_in() -> dict[str, list[str]]:
    """Built-in methods that enter the hash of a user's class that imports a method module."""
    return names._versions()


def described() -> dict[str, str]:
    """Digest of the options of everything built in: names, types, defaults, ranges and stages, not help or order."""
    found = {}
    for kind, them in names.BUILT_IN.items():
        for name in them:
            info = catalog.describe(name) if kind == "methods" else catalog.describe_options(kind, name)
            fields = [
                f"{key} {one.type} {'required' if one.default is catalog.REQUIRED else repr(one.default)} {one.choices} {one.range} {one.added}"
                for key, one in info.fields.items()
            ]
            found[f"{kind} {name}"] = digest(*sorted(fields), str(info.version), str(getattr(info, "stages", "")))
    return found


def user_runs() -> dict[str, str]:
    """Version and run id of a user's method of each kind of base, by the name of its file in users/."""
    found = {}
    for path in sorted(USERS.glob("*.py")):
        table = expand(
            *loaded(["cafeme-table1"], None),
            selection(methods=[f"{path}:Mine"], profile="smoke", columns=["rmnist-shards"]),
        )
        run = next(run for run in table.runs if run.method.name.endswith("Mine"))
        found[path.stem] = f"{run.method.version} {run.id}"
    return found


def files() -> dict[str, list[str]]:
    """Paths that a run leaves in a results folder: while it is made, when it is stored, and when it is packed."""
    run = Store(SHORTENED).list()[0].spec
    with tempfile.TemporaryDirectory() as folder, Leases(Path(folder)) as leases:
        store, root = Store(Path(folder)), Path(folder)

        def there() -> list[str]:
            paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
            return sorted(re.sub(r"[0-9a-f]{32}", "TOKEN", str(path)) for path in paths)

        leases.take([run.id])
        found = {"made": there()}
        leases.release([run.id])
        store.write(Store(SHORTENED).read(run.id))
        found["stored"] = there()
        pack(store)
        found["packed"] = there()
    return found


def kept() -> dict[str, str]:
    """Digest of each run of `store/`: a single run and a pack that the version of the first freeze wrote."""
    results = {run.spec.id: Store(SHORTENED).read(run.spec.id) for run in Store(SHORTENED).list()}
    texts = {id: f"{runfile.rows(result)!r} {metadata(result)!r}" for id, result in results.items()}
    return {id: hashlib.sha256(text.encode()).hexdigest() for id, text in texts.items()}


SECTIONS: dict[str, Callable[[], Any]] = {
    "run ids": run_ids,
    "markdown": lambda: tables("markdown"),
    "latex": lambda: tables("latex"),
    "html": lambda: tables("html"),
    "signatures": signatures,
    "verbs": verbs,
    "imports": imports,
    "built in": built_in,
    "described": described,
    "user runs": user_runs,
    "files": files,
    "kept": kept,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as nothing:
        os.environ["PFLBENCH_DATA_DIR"] = nothing  # as on a machine without data
        found = {name: section() for name, section in SECTIONS.items()}
        FROZEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        CELLS.write_text(report("csv"), encoding="utf-8")
        STORED.write_text(json.dumps(stored_ids(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
