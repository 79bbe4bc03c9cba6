"""Table of the committed runs in results/README.md, by suite, column and profile.

    python docs/results_table.py

writes it again between its two marks. Run it after runs were packed or a suite changed; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pflbench.report.reading import readable
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.document import column_key
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
from pflbench.suite.user_supplied import UserSupplied

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "results" / "README.md"
BEGIN = "<!-- written by docs/results_table.py -->"
END = "<!-- end -->"


def table() -> str:
    """Markdown table: a line for each suite and profile with finished runs, and a sentence about all other runs."""
    store = Store(ROOT / "results")
    packed = (run for run in store.list() if run.path.parent.name == "packs")
    specs = {run.spec.id: run.spec for run in packed if run.failure is None}
    parts = ["| suite | profile | finished runs by column | shown by |", "|---|---|---|---|"]
    shown: set[str] = set()
    for name, profile, command, columns in _lines(specs, readable(store)):
        counts = ", ".join(f"`{column}` {len(ids & specs.keys())} of {len(ids)}" for column, ids in columns.items())
        parts.append(f"| `{name}` | {profile} | {counts} | `{command}` |")
        shown |= set().union(*columns.values()) & specs.keys()
    others = [spec for id, spec in specs.items() if id not in shown]
    trials = sum(spec.validation > 0 for spec in others)
    parts += [
        "",
        f"These are {len(shown)} runs; suites share them. Beside them are {trials} trials of `pflbench tune` and "
        f"{len(others) - trials} runs with settings that no suite has today, such as values before a search.",
    ]
    return "\n".join(parts)


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


def with_table(page: str) -> str:
    """Text of the page with the current table between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
