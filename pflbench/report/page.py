"""Tables as one page of HTML: every reading and rival of each, with what its suite says of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from pflbench.catalog import shipped_method
from pflbench.commands import public_folder
from pflbench.report.claims import Judged, Tables, asked, judge
from pflbench.report.compact import check_known
from pflbench.report.explain import hyperparameters, shared_settings
from pflbench.report.html.data import CellSources, Sheet, with_numbers
from pflbench.report.html.render import render_page as rendered
from pflbench.report.layout import Filled, fill, finished, reread
from pflbench.report.reading import Shelf
from pflbench.report.rivals import rival_rows
from pflbench.report.table import Versus
from pflbench.report.tables import asked_for, counted_rows, names_of_rows, selects_nothing
from pflbench.selection import Selection, selection
from pflbench.store import Store
from pflbench.store.columns import scores_of
from pflbench.store.requests import Requests, requests_of
from pflbench.suite.cells import Expansion, ReadAs
from pflbench.suite.load import available
from pflbench.suite.user_supplied import UserSupplied

READINGS: tuple[ReadAs, ...] = ("last", "last-10", "best")


def tables_page(
    part: Selection,
    store: Store,
    own: UserSupplied,
    *,
    read_as: ReadAs = "last",
    versus: str | None = None,
) -> str:
    """The page of what a report shows, in every reading; it opens in the one that is asked for.

    The other arguments are those of `report.tables.reported`. Raises as it does.
    """
    found = asked_for(part, store, own, read_as=read_as)
    shown = without_smoke(found.shown)
    shelf, requests = Shelf(store), requests_of(store)
    sheets = [
        Sheet(
            {"last": counted_rows(table, part.methods)},
            selection(suites=[name]),
            results=public_folder(store.root),
        )
        for name, table in found.counted.items()
    ]
    sheets += [_sheet(one, part, shelf, requests) for one in shown]
    fills = [sheet.fills["last"] for sheet in sheets if sheet.fills]
    check_known(part.methods, names_of_rows(found.counted.values(), fills))
    kept = with_numbers([sheet for sheet in sheets if sheet.has_rows])
    filled = {sheet.key: sheet.fills["last"].table for sheet in kept if sheet.fills}
    rows = rival_rows(filled.values(), versus) if versus else []
    rivals = {key: rival for key, rival in zip(filled, rows, strict=False) if rival}
    return rendered(
        kept,
        read_as,
        rivals,
        _claims(kept, shelf, own, shown if selects_nothing(part) else []),
        elsewhere=public_folder(store.root) != store.root,
    )


def without_smoke(tables: Sequence[Expansion]) -> list[Expansion]:
    """The tables without those of profile `smoke` whose suite has another profile here."""
    others = {one.path for one in tables if one.profile != "smoke"}
    return [one for one in tables if one.profile != "smoke" or one.path not in others]


def _claims(
    sheets: Sequence[Sheet], shelf: Shelf, own: UserSupplied, whole: Sequence[Expansion]
) -> dict[str, list[Judged]]:
    """Claims by paper, each decided from all stored runs.

    `whole`: expanded suites of a page of everything, which has all claims of its papers; else it has those of its
    suites.
    """
    suites = {sheet.table.suite for sheet in sheets}
    found: dict[str, list[Judged]] = {}
    papers, shipped = asked([]), available()
    tables = Tables(own, "paper", chain.from_iterable(papers.values()))
    tables.update({one.suite: one for one in whole if one.profile == "paper" and shipped.get(one.suite) == one.path})
    for claims in papers.values():
        here = [claim for claim in claims if claim.suite in suites]
        for claim in claims if whole and here else here:
            found.setdefault(tables[claim.suite].paper, []).append(judge(claim, shelf, tables))
    return found


def _sheet(table: Expansion, part: Selection, shelf: Shelf, asked: Requests) -> Sheet:
    last = fill(table, shelf, asked)
    fills: dict[ReadAs, Filled] = {"last": last}
    if scored_often(last):
        fills |= {one: reread(last, one) for one in READINGS[1:]}
    return Sheet(
        tables={one: finished(filled, methods=part.methods) for one, filled in fills.items()},
        results=public_folder(shelf.root),
        part=table.part.but(suites=[_called(table)], profile=table.profile, methods=part.methods),
        paper=table.paper,
        protocol=table.protocol,
        fills=fills,
        told=_told(last),
        versus={read_as: _rivals(filled) for read_as, filled in fills.items()},
    )


def _told(filled: Filled) -> dict[tuple[str, str], CellSources]:
    """Values and departures of each cell that has a run. Departures hold for the whole protocol alone."""
    table, found = filled.table, dict[tuple[str, str], CellSources]()
    for place, cell in filled.cells.items():
        if filled.grid[place].there:
            method = shipped_method(cell.needed[0].method.name)
            given = (*hyperparameters(cell, method), *shared_settings(cell, method))
            whole = table.profile == "paper" and place in table.places
            found[place] = CellSources([one[:3] for one in given], table.departures_of(cell) if whole else [])
    return found


def _rivals(filled: Filled) -> dict[str, Versus]:
    """The table against each of its rows that has something in common with another one."""
    there = {row for (row, _), value in filled.grid.items() if value.seeds}
    found = {row.id: filled.against(row.id) for row in filled.table.rows if row.id in there}
    return {row: versus for row, versus in found.items() if versus.cells}


def _called(table: Expansion) -> str:
    """Name of its suite on the command line; a user's file without its folder, which stays private."""
    name = table.part.suites[0]
    return Path(name).name if name.endswith(".toml") else name


def scored_often(filled: Filled) -> bool:
    """True if a run was scored in several rounds at its cell's stage, so that the choice of rounds matters."""
    return any(
        len(scores_of(one.result.scores).at(filled.cells[place].stage)) > 1
        for place, done in filled.found.items()
        for one in done
    )
