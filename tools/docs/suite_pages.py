"""Pages of the site: one for each built-in suite, from its file and the committed runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pflbench as pb
from pflbench import names
from pflbench.catalog import describe
from pflbench.errors import UsageError
from pflbench.package import benchmarks
from pflbench.report.explain import Setting, hyperparameters, shared_settings
from pflbench.report.explain_text import SOURCES
from pflbench.report.reading import readable
from pflbench.report.verdict import SUSPECT
from pflbench.store import Store, Stored
from pflbench.suite.cells import Expansion, TableRow
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
from pflbench.suite.sources import KNOWN
from pflbench.units import duration, seed_text

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/pflbench/pflbench/blob/main/"


def suite_pages() -> dict[str, str]:
    """Text of every suite's page and of their list, by path below `docs/`."""
    store = Store(ROOT / "results")
    stored = {run.spec.id: run for run in store.list()}
    named = {path.resolve(): name for name, path in available().items()}
    pages, lines = dict[str, str](), ["# Every suite", ""]
    lines += ["For readers who look for a table or figure: each suite, its size, and the committed runs of it.", ""]
    lines += ["| suite | table or figure | size | runs | done |", "|---|---|---|---|---|"]
    for name in sorted(available()):
        one = About(name, load(name, readable(store)), stored, named)
        pages[f"suites/{name}.md"] = one.page()
        lines.append(f"| [`{name}`]({name}.md) | {one.suite.document().suite.title} | {one.counts()} |")
    return {"suites/all.md": "\n".join(lines) + "\n", **pages}


@dataclass(frozen=True)
class About:
    """A suite, the stored runs by id, and the names of suites by their files."""

    name: str
    suite: Suite
    stored: Mapping[str, Stored]
    named: Mapping[Path, str]

    @cached_property
    def tables(self) -> Mapping[str, Expansion]:
        """The suite's table under each profile."""
        return {profile: expand(self.suite, profile=profile) for profile in self.suite.profiles}

    def page(self) -> str:
        """Text of the page."""
        document = self.suite.document()
        parts = [f"# {document.suite.title}", self._about()]
        if document.statistics is not None:
            datasets = ", ".join(f"`{column.dataset.name}`" for column in document.column)
            parts += [f"It trains nothing: it counts the images of {datasets}, and shows the paper's numbers beside."]
            return "\n\n".join([*parts, "## Commands", self.commands()]) + "\n"
        table = self.tables["paper"]
        if table.rows:
            parts += [f"It has {_size(table)}: {len(table.runs):,} runs. {_RUNS}"]
        parts += [f"Protocol: {table.protocol}."]
        if table.notes:
            parts += ["\n".join(f"- {note}" for note in table.notes)]
        parts += ["## Commands", self.commands()]
        if table.rows:
            parts += ["## Profiles", _PROFILES, self._profiles(), *self._shown()]
        parts += ["## Columns", self._columns(table)]
        if table.rows:
            parts += ["## Rows", _rows(table.rows), "## Values and where they come from", _SOURCES]
            parts += [_settings(table), _hyperparameters(table)]
        return "\n\n".join(parts) + "\n"

    def _about(self) -> str:
        """Kind, paper and file of the suite."""
        document, of = self.suite.document(), self.name.partition("-")[0]
        kind = "a figure" if document.figure else "a table of statistics" if document.statistics else "a table"
        paper = document.suite.paper
        about = f"For readers who check or rerun `{self.name}`, {kind}"
        if (ROOT / "docs" / "papers" / f"{of}.md").exists():
            title = document.suite.title.partition(",")[0]
            about += f" of [{title}](../papers/{of}.md)" + (f" ({paper})" if paper != "none" else "")
        file = self.suite.path.relative_to(benchmarks()).as_posix()
        about += f". The page is made from [the suite's file]({REPOSITORY}benchmarks/{file})"
        base = document.suite.extends
        if base is not None:
            other = self.named.get((self.suite.path.parent / base).resolve())
            about += f", which extends that of [`{other}`]({other}.md)" if other else ""
        return about + "."

    def commands(self) -> str:
        """Commands that make the table or figure, one a line."""
        document = self.suite.document()
        if document.statistics is not None:
            made = [f"pflbench run --suite {self.name}", f"pflbench report --suite {self.name}"]
        elif document.figure is not None:
            made = [f"pflbench run --suite {self.name}"] if document.row else []
            every = getattr(document.figure, "every", None)
            made = [f"{one} --evaluate-every {every}" if every else one for one in made]
            made += [f"pflbench plot {self.name} -o figure.png"]
        else:
            made = [f"pflbench {verb} --suite {self.name}" for verb in ("plan", "run", "report")]
            made += [f"pflbench report --suite {self.name} --format html -o page.html"]
        return "\n".join(f"    {one}" for one in made)

    def _profiles(self) -> str:
        head = "| profile | differs in | seeds | runs | rounds in all | done | they took |\n" + "|---" * 7 + "|\n"
        lines = (_line(profile, table, self._done(table)) for profile, table in self.tables.items())
        return head + "\n".join(lines)

    def _shown(self) -> list[str]:
        """Finished cells of the whole protocol, and links to the page of all tables."""
        there = [profile for profile, table in self.tables.items() if self._done(table)]
        cells = results_of(self.name)
        said = (
            ["## Results", _CAME, f"| {HEADS} |\n{'|---' * (HEADS.count('|') + 1)}|\n" + _lines(cells)] if cells else []
        )
        if there and self.suite.document().figure is None:
            links = (f'<a href="../../tables.html#table={self.name}.{profile}">{profile}</a>' for profile in there)
            said = said or ["## Results", "No cell of the whole protocol is done."]
            said.append(f"The page of all tables has every profile that has results: {', '.join(links)}.")
        return said

    def _columns(self, table: Expansion) -> str:
        done = {profile: self._done_by_column(profile) for profile in self.suite.profiles} if table.rows else {}
        head = "| id | column | dataset | partition | clients | network | rounds | done |\n" + "|---" * 8 + "|\n"
        lines = []
        for one in table.columns:
            some = [f"{profile} {of[one.id]}" for profile, of in done.items() if of.get(one.id)]
            plain = f"`{one.dataset}` | `{one.partition}` | {one.clients} | `{one.model}` | {one.rounds}"
            lines.append(f"| `{one.id}` | {one.setting} | {plain} | {', '.join(some) or '–'} |")
        return head + "\n".join(lines)

    def _done_by_column(self, profile: str) -> dict[str, str]:
        """Finished runs of each column, as `n of m`, by id; columns without any are left out."""
        runs: dict[str, set[str]] = {}
        for cell in self.tables[profile].cells:
            runs.setdefault(cell.column.id, set()).update(run.id for run in cell.needed)
        done = {run.spec.id for run in self.stored.values() if run.failure is None}
        return {column: f"{len(ids & done)} of {len(ids)}" for column, ids in runs.items() if ids & done}

    def _done(self, table: Expansion) -> list[Stored]:
        found = (self.stored.get(run.id) for run in table.runs)
        return [run for run in found if run is not None and run.failure is None]

    def counts(self) -> str:
        """Three cells of a table: size, number of runs of the paper's protocol, and number of committed ones."""
        document = self.suite.document()
        if not document.row:
            return f"0 rows × {len(document.column)} columns | 0 | –"
        table = self.tables["paper"]
        quick = len(self._done(self.tables["quick"])) if "quick" in self.tables else 0
        done = f"{len(self._done(table))}" + (f", and {quick} at quick" if quick else "")
        return f"{_size(table)} | {len(table.runs):,} | {done}"


_RUNS = (
    "Rows that differ only in the scored model share runs. A row whose clients choose among values has runs of each."
)
_CAME = (
    "Whole protocol, from the committed runs; ± is the standard deviation over seeds. "
    "[Read a verdict](../tutorials/verdict.md) explains the last word."
)
_SOURCES = (
    "\n".join(f"- *{source}*: {meaning.partition(';')[0]}" for source, meaning in SOURCES.items() if source in KNOWN)
    + "\n- –: the suite names no source\n\n`pflbench explain … --full` prints them for one cell, with the trials "
    "behind a tuned value and each departure from the paper's text."
)
HEADS = "row | setting | stage | ours | seeds | the paper's | verdict"
"""Heads of the cells that `line` writes."""


@cache
def results_of(suite: str) -> Sequence[Mapping[str, Any]]:
    """Cells of a suite's whole protocol with committed runs, under the names of the table's CSV."""
    try:
        cells = pb.table(pb.select(suite), results=ROOT / "results").to_frame()
    except UsageError:
        return []
    return [dict(one) for one in cells[cells["n"] > 0].astype(object).fillna("").to_dict("records")]


def line(cell: Mapping[str, Any]) -> str:
    """Cell of `results_of` as a line of a Markdown table, without its ends."""
    ours = f"{cell['mean']:.2f}" + (f" ± {cell['std']:.2f}" if cell["n"] > 1 else "")
    paper = f"{cell['reference_mean']:g}" if cell["reference_mean"] else ""
    seeds = f"{cell['n']} of {cell['expected']}"
    verdict = cell["verdict"] + (f", {SUSPECT}" if cell["suspect"] else "")
    return " | ".join((cell["row"], cell["column"], cell["stage"], ours, seeds, paper, verdict))


def _lines(cells: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(f"| {line(cell)} |" for cell in cells)


def _size(table: Expansion) -> str:
    seeds = dict.fromkeys(run.seed for run in table.runs)
    return f"{len(table.rows)} rows × {len(table.columns)} columns × {len(seeds)} seeds"


_PROFILES = (
    "*Rounds in all*: sum over all runs. *Done*: committed runs, which come with pflbench. *They took*: their measured "
    "time together; `pflbench show` names the machine of each. `pflbench plan` estimates the time on yours."
)


def _line(profile: str, table: Expansion, done: Collection[Stored]) -> str:
    less = "; ".join(filter(None, (table.shortfall.runs, table.shortfall.seeds, table.shortfall.columns)))
    rounds = sum(run.rounds for run in table.runs)
    took = sum(float(run.provenance.get("wall_seconds") or 0.0) for run in done)
    cells = (
        f"`{profile}`",
        less or "nothing: the whole protocol",
        seed_text(table.seeds),
        f"{len(table.runs):,}",
        f"{rounds:,}",
        str(len(done)),
        duration(took) if done else "–",
    )
    return f"| {' | '.join(cells)} |"


def _rows(rows: Iterable[TableRow]) -> str:
    return "| id | row | method | scored |\n|---|---|---|---|\n" + "\n".join(_row(row) for row in rows)


def _row(row: TableRow) -> str:
    built_in = row.method in names.BUILT_IN["methods"]
    method = f"[`{row.method}`](../methods/{row.method}.md)" if built_in else f"`{row.method}`"
    return f"| `{row.id}` | {row.title} | {method} | {', '.join(row.stages) or '–'} |"


_Places = dict[tuple[str, str], dict[str, None]]
"""Ids of columns by a value and its source."""


def _settings(table: Expansion) -> str:
    """Settings that the rows of a column share."""
    found: dict[str, _Places] = defaultdict(lambda: defaultdict(dict))
    for cell in table.cells:
        for one in shared_settings(cell, describe(cell.row.method)):
            if not _of_row(one):
                found[one.name][one.value, one.source][cell.column.id] = None
    lines = [
        f"| {name} | {value} | {source or '–'} | {_columns(columns, table)} |"
        for name, values in found.items()
        for (value, source), columns in values.items()
    ]
    return "| setting | value | from | columns |\n|---|---|---|---|\n" + "\n".join(lines)


def _hyperparameters(table: Expansion) -> str:
    """Hyperparameters and other settings of each row."""
    rows: dict[str, dict[str, _Places]] = {}
    for cell in table.cells:
        method = describe(cell.row.method)
        own = [one for one in shared_settings(cell, method) if _of_row(one)]
        mine = rows.setdefault(cell.row.id, {})
        for one in (*hyperparameters(cell, method), *own):
            places = mine.setdefault(one.name, {}).setdefault((one.value, one.source), {})
            places[cell.column.id] = None
    lines = [
        f"| `{row}` | {name} | {value} | {source or '–'} | {_columns(columns, table)} |"
        for row, mine in rows.items()
        for name, values in mine.items()
        for (value, source), columns in values.items()
    ]
    return "| row | hyperparameter | value | from | columns |\n|---|---|---|---|---|\n" + "\n".join(lines)


def _of_row(one: Setting) -> bool:
    """True for a setting of a row, False for one of a column."""
    return one.name.startswith("finetune.")


def _columns(some: Collection[str], table: Expansion) -> str:
    """Columns by their ids: `all`, a list, or `all but` a list."""
    left = [column.id for column in table.columns if column.id not in some]
    if not left:
        return "all"
    less = 2 * len(left) < len(some)
    return ("all but " if less else "") + ", ".join(f"`{id}`" for id in (left if less else some))
