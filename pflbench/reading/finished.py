"""Tables with their numbers, from the stored runs and counts alone. Never imports torch."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pflbench.reading.tables import asked_for, latest, none_there, with_results
from pflbench.report.compact import only
from pflbench.report.dataset_table import lay_out_counts
from pflbench.report.layout import lay_out
from pflbench.report.table import Table
from pflbench.selection import Selection
from pflbench.store import Store
from pflbench.suite.cells import Expansion
from pflbench.suite.counting import counting
from pflbench.suite.load import find, load, read_toml
from pflbench.suite.own import Own


class Reported(NamedTuple):
    """The finished tables that are asked for, and the other tables that have results."""

    tables: list[Table]
    others: list[Expansion]


def reported(part: Selection, store: Store, own: Own, *, spread: bool | None = None, newest: bool = False) -> Reported:
    """What a report shows.

    Args:
        part: What is asked for; its methods choose among the rows.
        store: Where the runs are.
        own: Where what is the user's own is looked for.
        spread: Whether the spread over seeds stands behind each number; None: as the suite says.
        newest: Where nothing is asked for, only the table that was run last.

    Raises:
        UsageError: Something is unknown, or nothing that is asked for has results.
    """
    counted = counted_tables(part, store, own, spread)
    trained = part.but(suites=[name for name in part.suites if name not in counted], methods=None)
    there = with_results(trained, store, own) if trained.suites or not counted else []
    shown = there
    if newest and not asked_for(part):
        last = latest(store, own)
        shown = [last] if last else there[:1]
    if not shown and not counted:
        raise none_there(trained, store, own)
    tables = [*counted.values(), *(lay_out(one.with_spread(spread), store) for one in shown)]
    seen = {(one.path.resolve(), one.profile) for one in shown}
    others = [one for one in there if (one.path.resolve(), one.profile) not in seen]
    return Reported(only(tables, part.methods), others)


def counted_tables(part: Selection, store: Store, own: Own, spread: bool | None = None) -> dict[str, Table]:
    """The tables of those of the suites asked for that are statistics, by what the suite is called."""
    found = {}
    for name in part.suites:
        if "statistics" in read_toml(find(name)):
            table = counting(load(name, own), part)
            found[name] = lay_out_counts(replace(table, shows_spread=spread is not False), store)
    return found
