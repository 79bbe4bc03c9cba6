"""The text of a page for each suite that comes with pflbench, from its file and the committed runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pflbench import names
from pflbench.store import Store, Stored
from pflbench.suite.cells import Expansion, TableRow
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
from pflbench.units import duration, seed_text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "suites"
PAPERS = {"cafeme": "CAFeMe", "fedec": "FedEC", "pfedvem": "pFedVEM", "meta": "Meta-learning"}
"""What the folders of suite files are called in the site."""


def suite_pages() -> dict[str, str]:
    """The text of every page, by its path below `FOLDER`."""
    stored = {run.spec.id: run for run in Store(ROOT / "results").list()}
    named = {path.resolve(): name for name, path in available().items()}
    pages, lines = dict[str, str](), ["# Every suite", ""]
    lines += ["Written by `docs/pages.py` from the suite files and the committed runs.", ""]
    lines += ["| suite | table or figure | runs | done |", "|---|---|---|---|"]
    for name in sorted(available()):
        one = _About(name, load(name), stored, named)
        pages[f"{name}.md"] = one.page()
        lines.append(f"| [`{name}`]({name}.md) | {one.suite.document().suite.title} | {one.counts()} |")
    return {"all.md": "\n".join(lines) + "\n", **pages}


@dataclass(frozen=True)
class _About:
    """A suite, the stored runs by id, and what suites are called by their files."""

    name: str
    suite: Suite
    stored: Mapping[str, Stored]
    named: Mapping[Path, str]

    def page(self) -> str:
        """Its page."""
        document = self.suite.document()
        parts = [f"# {document.suite.title}", self._about()]
        if document.statistics is not None:
            datasets = ", ".join(f"`{column.dataset.name}`" for column in document.column)
            parts += [
                f"It trains nothing, but counts the images of {datasets}, and sets the paper's numbers beside them."
            ]
            return "\n\n".join([*parts, "## Commands", self._commands()]) + "\n"
        table = expand(self.suite)
        parts += [f"Protocol: {table.protocol}."]
        if table.notes:
            parts += ["\n".join(f"- {note}" for note in table.notes)]
        parts += ["## Commands", self._commands()]
        if table.rows:
            parts += ["## Profiles", _PROFILES, self._profiles(), *self._shown()]
        parts += ["## Columns", self._columns(table)]
        if table.rows:
            parts += ["## Rows", _rows(table.rows)]
        return "\n\n".join(parts) + "\n"

    def _about(self) -> str:
        """What it is, of which paper, and where its file lies."""
        document, folder = self.suite.document(), self.suite.path.parent.name
        kind = "a figure" if document.figure else "a table of statistics" if document.statistics else "a table"
        paper = document.suite.paper
        about = f"`{self.name}` is {kind}"
        if (ROOT / "docs" / "papers" / f"{folder}.md").exists():
            about += f" of [{PAPERS[folder]}](../papers/{folder}.md)" + (f" ({paper})" if paper != "none" else "")
        file = f"{self.suite.path.parent.name}/{self.suite.path.name}"
        about += f". Every value with its source stands in [its file](../../benchmarks/{file})"
        base = document.suite.extends
        if base is not None:
            other = self.named.get((self.suite.path.parent / base).resolve())
            about += f", which extends that of [`{other}`]({other}.md)" if other else ""
        return about + "."

    def _commands(self) -> str:
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
        head = "| profile | differs in | seeds | runs | rounds in all | done | they took |\n|---|---|---|---|---|---|---|\n"
        tables = ((profile, expand(self.suite, profile=profile)) for profile in self.suite.profiles)
        return head + "\n".join(_line(profile, table, self._done(table)) for profile, table in tables)

    def _shown(self) -> list[str]:
        """Where the site shows its results, if there are any. A figure is in no table of the page."""
        tables = {profile: expand(self.suite, profile=profile) for profile in self.suite.profiles}
        there = [profile for profile, table in tables.items() if self._done(table)]
        if not there or self.suite.document().figure is not None:
            return []
        links = (f'<a href="../../tables.html#table={self.name}.{profile}">{profile}</a>' for profile in there)
        return [f"What they gave stands on the page of all tables: {', '.join(links)}."]

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
        """How many of a column's runs are done, of how many, by its id; columns without any are left out."""
        runs: dict[str, set[str]] = {}
        for cell in expand(self.suite, profile=profile).cells:
            runs.setdefault(cell.column.id, set()).update(run.id for run in cell.needed)
        done = {run.spec.id for run in self.stored.values() if run.failure is None}
        return {column: f"{len(ids & done)} of {len(ids)}" for column, ids in runs.items() if ids & done}

    def _done(self, table: Expansion) -> list[Stored]:
        found = (self.stored.get(run.id) for run in table.runs)
        return [run for run in found if run is not None and run.failure is None]

    def counts(self) -> str:
        """How many runs the paper's protocol has, and how many of them are committed, as two cells."""
        document = self.suite.document()
        if document.statistics is not None or not document.row:
            return "0 | –"
        table = expand(self.suite)
        quick = len(self._done(expand(self.suite, profile="quick"))) if "quick" in self.suite.profiles else 0
        return f"{len(table.runs):,} | {len(self._done(table))}" + (f", and {quick} at quick" if quick else "")


_PROFILES = (
    "*Rounds in all*: those of all runs together. *Done*: of these runs, those that are committed and come with pflbench; "
    "*they took* so long together, as measured; `pflbench show` names the machine of each. `pflbench plan` estimates the "
    "others on yours."
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
