"""Parts of README, results/README.md and docs/findings.md from committed runs: claims, differing cells, runs, figures.

    python tools/docs/results_table.py

writes them again between their marks, and `results/packs/shipped.txt`, the list of committed runs. Run it after runs
were packed or a suite or claim changed; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pflbench.report.claim_list import DIFFER, SIGNS, differing, needs, summary, word_of
from pflbench.report.claims import Judged, judged
from pflbench.report.reading import readable
from pflbench.report.table import CellValue, Table
from pflbench.report.tables import reported
from pflbench.report.text import NONE, number
from pflbench.report.verdict import COMPARED
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.shipped import write_list
from pflbench.suite.cells import ColumnHead
from pflbench.suite.document import column_key
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
from pflbench.suite.user_supplied import UserSupplied
from pflbench.units import count

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "results" / "README.md", ROOT / "docs" / "findings.md")
PICTURES = ROOT / "results" / "figures"
OPTIONS = {
    "pfedvem-gradients": "--curve -s pfedvem-table1 --column fashion-mnist-100 --against gradients",
}
"""Options of `pflbench plot` for the committed pictures that no suite's name tells."""
MARKS = re.compile(r"(<!-- (\S+), written by tools/docs/results_table\.py -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """Text of a page with what is between its marks made again: `claims`, `runs`, `figures`, or a paper's findings."""

    def part(found: re.Match[str]) -> str:
        made = {"claims": claims, "runs": runs, "figures": figures}.get(found[2])
        return f"{found[1]}\n{made() if made else findings(found[2])}\n\n{found[3]}"

    return MARKS.sub(part, page)


def _pipes(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|---" * len(head) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def pictures() -> dict[str, str]:
    """Commands that draw the committed pictures, by their file's name."""
    found = {}
    for path in sorted(PICTURES.glob("*.png")):
        suite = path.stem.removesuffix("-quick")
        profile = "--profile quick" if suite != path.stem else ""
        options = OPTIONS.get(path.stem) or " ".join((suite, profile))
        found[path.name] = f"pflbench plot {options.strip()} -o {path.name}"
    return found


def pictures_page() -> str:
    """Page of the site with the committed pictures."""
    parts = [
        "# Figures",
        "For readers who look for a picture: each of the committed runs, below the command that draws it.",
    ]
    for name, command in pictures().items():
        parts += [f"## {name.removesuffix('.png')}", f"    {command}", f"![{name}](pictures/{name})"]
    return "\n\n".join(parts) + "\n"


def figures() -> str:
    """Table of the committed pictures."""
    return _pipes(("file", "drawn by"), ((f"`{name}`", f"`{command}`") for name, command in pictures().items()))


@cache
def _store() -> Store:
    return Store(ROOT / "results")


@cache
def _claims() -> Mapping[str, Sequence[Judged]]:
    return judged((), _store(), readable(_store()))


@cache
def _tables() -> Sequence[Table]:
    """Tables and figures of the papers themselves, whole protocol, with results."""
    own = tuple(name for name in sorted(available()) if re.search(r"-(table|fig|20)\d+$", name))
    part = Selection(suites=tuple(name for name in own if load(name).document().row), profile="paper")
    return reported(part, _store(), readable(_store())).tables


def claims() -> str:
    """Sentence on all claims."""
    of_all = summary([one for judged_ in _claims().values() for one in judged_])
    return f"The papers make {of_all} (`pflbench claims`)."


def findings(paper: str) -> str:
    """A paper's claims, and those of its finished cells that differ from its numbers."""
    found = _claims()[paper]
    lines = (
        (
            f"{one.claim.text} ({one.claim.source})",
            f"{SIGNS[one.word]} {word_of(one.paper, one.word)}"
            + (f"; {DIFFER[0].lower()}{DIFFER[1:]}: {differing(one.paper)}" if one.paper.apart else ""),
            f"{SIGNS[one.equal.word]} {word_of(one.equal)}" if one.equal else NONE,
            NONE if one.contrary else needs(one.paper),
            f"`pflbench claims {one.claim.id}`",
        )
        for one in found
    )
    head = ("claim", "paper's protocol", "equal terms", "missing", "shown by")
    return f"{summary(found)}.\n\n{_pipes(head, lines)}\n\n{_differing(paper)}"


def _differing(paper: str) -> str:
    """Sentence on a paper's compared cells, and a table of those that differ; each run's cell once."""
    cells: dict[tuple[object, ...], tuple[Table, str, str, ColumnHead, CellValue]] = {}
    for table in sorted(_tables(), key=lambda one: "-fig" in one.suite):
        for row, head, value in table.shown:
            if table.suite.startswith(f"{paper}-") and value.verdict and value.verdict.label in COMPARED:
                key = (row.id, value.stage, *(id for ids in value.runs.values() for id in ids))
                cells.setdefault(key, (table, row.id, row.title, head, value))
    apart = [one for one in cells.values() if one[-1].verdict and one[-1].verdict.label == "differs"]
    if not cells:
        return "No cell of the whole protocol has three seeds yet."
    said = f"Of {count(len(cells), 'cell')} with three seeds of the whole protocol and a number of the paper, "
    said += f"{len(apart) or 'none'} {'differs' if len(apart) < 2 else 'differ'}{':' if apart else '.'}"
    lines = (
        (
            f"{title}, {head.name}",
            _points(value.mean),
            _points(value.reference and value.reference.mean),
            _points(value.difference, "+"),
            f"`pflbench explain {table.suite} {row} {head.column.id}{f' --stage {head.stage}' if head.stage else ''}`",
        )
        for table, row, title, head, value in apart
    )
    return f"{said}\n\n{_pipes(('cell', 'ours', 'the paper', 'difference', 'shown by'), lines)}" if apart else said


def _points(value: float | None, sign: str = "") -> str:
    return NONE if value is None else number(value, None, 2, sign)


def runs() -> str:
    """Table of finished runs, a line for each suite and profile, and a sentence about all other runs."""
    packed = (run for run in _store().list() if run.path.parent.name == "packs")
    specs = {run.spec.id: run.spec for run in packed if run.failure is None}
    lines, shown = [], set[str]()
    for name, profile, command, columns in _lines(specs, readable(_store())):
        counts = ", ".join(f"`{column}` {len(ids & specs.keys())} of {len(ids)}" for column, ids in columns.items())
        lines.append((f"`{name}`", profile, counts, f"`{command}`"))
        shown |= set().union(*columns.values()) & specs.keys()
    others = [spec for id, spec in specs.items() if id not in shown]
    trials = sum(spec.validation > 0 for spec in others)
    return (
        f"{_pipes(('suite', 'profile', 'finished runs by column', 'shown by'), lines)}\n\n"
        f"These are {len(shown)} runs; suites share them. Beside them are {trials} trials of `pflbench tune` and "
        f"{len(others) - trials} runs with settings that no suite has today, such as values before a search."
    )


def _lines(specs: dict[str, RunSpec], own: UserSupplied) -> Iterator[tuple[str, str, str, dict[str, set[str]]]]:
    """Suite, profile, command, and run ids by column; columns without a finished run are left out.

    `own`: where data are looked for; what a machine lacks is known from the stored runs.
    """
    keys = set(map(column_key, specs.values()))
    for name in sorted(available()):
        suite = load(name, own)
        for profile in suite.profiles:
            document = suite.document(profile)
            if not document.row or not document.column_keys() & keys:
                continue
            columns: dict[str, set[str]] = {}
            for cell in expand(suite, profile=profile).cells:
                columns.setdefault(cell.column.id, set()).update(run.id for run in cell.needed)
            columns = {column: ids for column, ids in columns.items() if ids & specs.keys()}
            if columns:
                figure = document.figure is not None
                command = f"pflbench plot {name} -o figure.png" if figure else f"pflbench report {name}"
                yield name, profile, f"{command} --profile {profile}", columns


if __name__ == "__main__":
    write_list(ROOT / "results" / "packs", (run for run in _store().list() if run.path.parent.name == "packs"))
    for path in PAGES:
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
