"""Suites of one paper: which runs the tables beside a table name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pflbench.errors import UsageError
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import read
from pflbench.suite.own import Own


def borrowed(table: Expansion, beside: Iterable[Expansion], stored: set[str], own: Own) -> bool:
    """Whether the suite extends one of another folder, and all its stored runs are that one's.

    `beside`: tables that were expanded already, of which it may be one.
    """
    if table.extends is None or table.extends.resolve().parent == table.path.resolve().parent:
        return False
    there = stored & {run.id for run in table.runs}
    base = table.extends.resolve()
    if not there:
        return False
    bases = (one for one in beside if one.path.resolve() == base and one.profile == table.profile)
    if any(there <= {run.id for run in one.runs} for one in bases):
        return True
    return there <= _named(base, base, table.profile, table.seeds, own)


def named_by_family(table: Expansion, own: Own) -> frozenset[str]:
    """Ids of the runs that the suite's other profiles name, or other suites of the paper: they are no guests here.

    A suite's family is the one that it extends, and those that extend that one or it, in the same folder. `own`: where
    what is the user's own is looked for.
    """
    head = (table.extends or table.path).resolve()
    places = [(path, table.profile) for path in sorted(head.parent.glob("*.toml"))]
    places += [(table.path, profile) for profile in read(str(table.path)).profiles]
    return frozenset().union(*(_named(path.resolve(), head, profile, table.seeds, own) for path, profile in places))


@cache
def _named(path: Path, head: Path, profile: str, seeds: tuple[int, ...], own: Own) -> frozenset[str]:
    try:
        suite = read(str(path), own)
        extends = suite.document().suite.extends
        if profile not in suite.profiles or (path.parent / extends if extends else path).resolve() != head:
            return frozenset()
        every = dict.fromkeys((*seeds, *suite.document(profile).suite.seeds))
        table = expand(suite, profile=profile, seeds=tuple(every))
    except UsageError:  # somebody's unfinished suite file
        return frozenset()
    return frozenset(run.id for run in table.runs)
