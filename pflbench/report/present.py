"""Extra rows of a user's method: which of its versions a table shows, and a note on the others.

Runs that differ in comments, docstrings and blank lines alone are of one version here, see `usercode.Code.digest`. Runs
that recorded no digest have a row for each version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pflbench import names, usercode
from pflbench.errors import UsageError
from pflbench.report.unlisted import belongs, extra_rows
from pflbench.spec import RunSpec
from pflbench.store import Stored
from pflbench.store.asked import Askers
from pflbench.suite.cells import Cell, Expansion
from pflbench.units import count


class Extra(NamedTuple):
    """The cells of extra rows, the runs that have no row, and sentences on versions of methods that are not shown."""

    cells: list[Cell]
    spare: list[RunSpec]
    notes: list[str]


class _Chosen(NamedTuple):
    """The runs of a method that a table shows, the version that names their row, and the runs that it leaves out."""

    shown: Sequence[Stored]
    version: str
    left: Sequence[Stored]
    is_now: bool
    """True if its file has this code now."""


def extra(table: Expansion, stored: Iterable[Stored], asked: Askers) -> Extra:
    """The extra rows of a table: of each method the version that its file has now or, without runs, the newest one."""
    stored, own = list(stored), {run.id for cell in table.cells for run in cell.needed}
    mine = _by(lambda run: run.spec.method.name, (run for run in stored if _is_here(run, table, asked)))
    hidden, alike, notes = set[str](), dict[tuple[str, str], str](), list[str]()
    for name, runs in mine.items():
        chosen = _choose(runs, own, _now(name, table.path.parent))
        alike |= {(name, run.spec.method.version): chosen.version for run in chosen.shown}
        hidden |= {run.spec.id for run in chosen.left}
        notes += _note(name, chosen)
    cells, spare = extra_rows(table, (run.spec for run in stored if run.spec.id not in hidden), asked, alike)
    return Extra(cells, spare, notes)


def _choose(runs: Sequence[Stored], own: set[str], now: usercode.Code | None) -> _Chosen:
    """Choose among the runs of a method. `own`: ids of the table's runs; `now`: the method's code."""
    version, digest = (now.version, now.digest) if now else ("", "")

    def rank(run: Stored) -> tuple[object, ...]:
        return run.spec.method.version == version, *_age(run)

    best = max(runs, key=lambda run: (run.code["method"] == digest, run.spec.id in own, *rank(run)))
    equal = _by(
        lambda run: run.spec.with_code(run.code).id, (run for run in runs if run.code["method"] == best.code["method"])
    )
    shown = [max(several, key=lambda run: (run.spec.id in own, *rank(run))) for several in equal.values()]
    there = own | {run.spec.id for run in shown}
    left = [run for run in runs if run.spec.id not in there]
    return _Chosen(shown, best.spec.method.version, left, best.code["method"] == digest)


def _note(name: str, chosen: _Chosen) -> list[str]:
    """A sentence on the finished runs of a method that are left out; none without any."""
    left = [run for run in chosen.left if run.failure is None]
    which = "as its file is now" if chosen.is_now else "in its newest finished version"
    return [f"{name} is shown {which} ({chosen.version}). Not shown: {_dated(left)}."] if left else []


def _by(key: Callable[[Stored], str], runs: Iterable[Stored]) -> dict[str, list[Stored]]:
    """The runs by a property."""
    found: dict[str, list[Stored]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


def _is_here(run: Stored, table: Expansion, asked: Askers) -> bool:
    """True for a run that can stand in the table, of a user's method whose digest it recorded."""
    spec = run.spec
    there = "method" in run.code and names.is_reference(spec.method.name) and not spec.validation
    return there and spec.setting() in table.settings and belongs(spec, table, asked, named=True)


def _now(name: str, folder: Path) -> usercode.Code | None:
    """The code of a method in a file that lies in the current folder or the suite file's; None if there is none."""
    where, _ = names.split_reference(name)
    for base in (Path.cwd(), folder):
        if where.endswith(".py") and Path(where).name == where and (base / where).is_file():
            try:
                return usercode.read(base / where)
            except UsageError:  # it is being edited
                return None
    return None


def _age(run: Stored) -> tuple[bool, str, str]:
    return run.failure is None, run.finished, run.spec.id


def _dated(runs: Iterable[Stored]) -> str:
    """`2 runs of version ab12 (2026-11-20), 1 run of version cd34 (2026-11-21 to 2026-11-24)`."""
    texts = []
    for version, several in _by(lambda run: run.spec.method.version, runs).items():
        days = sorted({run.finished[:10] or "undated" for run in several})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        texts.append(f"{count(len(several), 'run')} of version {version} ({when})")
    return ", ".join(texts)
