"""Extra rows of a user's method: which of its versions a table shows, and a note on the others.

Runs that differ in comments, docstrings and blank lines alone are of one version here, see `usercode.Code.digest`. Runs
that recorded no digest have a row for each version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """The cells of extra rows, the runs that have no row, and by method a note on the version that is shown."""

    cells: list[Cell]
    spare: list[RunSpec]
    notes: Mapping[str, str]


class _Chosen(NamedTuple):
    """The runs of a method that a table shows, the version that names their row, and the runs that it leaves out."""

    shown: Sequence[Stored]
    version: str
    left: Sequence[Stored]
    is_now: bool
    """True if its file has this code now."""
    is_older: bool
    """True if its file has other code now."""


def extra(table: Expansion, stored: Iterable[Stored], asked: Askers, methods: Iterable[str] = ()) -> Extra:
    """The extra rows of a table: of each method the version that its file has now or, without runs, the newest one.

    `methods`: names the reader typed. `path/to/file.py:Class` among them says where the file of `file.py:Class` lies.
    """
    methods = list(methods)
    stored, own = list(stored), {run.id for cell in table.cells for run in cell.needed}
    mine = _by(lambda run: run.spec.method.name, (run for run in stored if _is_here(run, table, asked)))
    hidden, alike, notes = set[str](), dict[tuple[str, str], str](), dict[str, str]()
    for name, runs in mine.items():
        chosen = _choose(runs, own, _now(name, table.path.parent, methods))
        alike |= {(name, run.spec.method.version): chosen.version for run in chosen.shown}
        hidden |= {run.spec.id for run in chosen.left}
        if note := _note(name, chosen):
            notes[name] = note
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
    is_now = best.code["method"] == digest
    return _Chosen(shown, best.spec.method.version, left, is_now, is_older=now is not None and not is_now)


def _note(name: str, chosen: _Chosen) -> str:
    """A note on a file that has changed since its runs, and on finished runs that are left out; else empty."""
    left = [run for run in chosen.left if run.failure is None]
    if not left and not chosen.is_older:
        return ""
    which = "as its file is now" if chosen.is_now else "in its newest finished version"
    changed = ", and the file has changed since: `pflbench run` trains it as it is now" if chosen.is_older else ""
    hidden = f" Not shown: {_dated(left)}." if left else ""
    return f"{name} is shown {which} ({chosen.version}){changed}.{hidden}"


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


def _now(name: str, folder: Path, methods: Iterable[str]) -> usercode.Code | None:
    """The present code of a method; None without a file that can be read.

    The file is the one that `methods` names, else the one in the current folder, else the one beside the suite file.
    """
    file = next((path for path in _files(name, folder, methods) if path.is_file()), None)
    try:
        return usercode.read(file) if file else None
    except UsageError:  # it is being edited
        return None


def _files(name: str, folder: Path, methods: Iterable[str]) -> Iterator[Path]:
    """The paths where the file of `file.py:Class` may lie, the most telling first."""
    where, _ = names.split_reference(name)
    if where.endswith(".py") and Path(where).name == where:
        yield from (Path(names.split_reference(one)[0]) for one in methods if names.without_folder(one) == name)
        yield from (base / where for base in (Path.cwd(), folder))


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
