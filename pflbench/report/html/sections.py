"""Sections of the page for methods: what is known of each, and its results in all tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pflbench.report import text
from pflbench.report.html.data import Sheet
from pflbench.report.html.escape import discreet, web_link
from pflbench.report.html.grid import grid_cells
from pflbench.report.methods import MethodDescription
from pflbench.report.rivals import side_by_side


class MethodCell(NamedTuple):
    """A cell of a method: where it stands, and what it says."""

    table: str
    title: str
    cell: str
    row: str
    column: str
    ours: str
    paper: str
    difference: str
    verdict: str


class Section(NamedTuple):
    """A method of the tables; `about` is None for one of a user's."""

    name: str
    key: str
    about: MethodDescription | None
    links: tuple[tuple[str, str], ...]
    results: tuple[MethodCell, ...]


def sections(sheets: Iterable[Sheet], described: Mapping[str, MethodDescription]) -> list[Section]:
    """A section for each method that has a result, by name."""
    found: dict[str, list[MethodCell]] = {}
    for sheet in sheets:
        for name, result in _results(sheet):
            found.setdefault(name, []).append(result)
    made = []
    for name in sorted(found):
        about, key = described.get(name), re.sub(r"[^\w.-]+", "-", name)
        cited = re.findall(r"arXiv:? ?\d{4}\.\d{4,5}", about.citation) if about else []
        links = [(one, web_link("arXiv:" + one[-10:].lstrip(": "))) for one in dict.fromkeys(cited)]
        made.append(
            Section(discreet(name), key, about, tuple((one, to) for one, to in links if to), tuple(found[name]))
        )
    return made


def _results(sheet: Sheet) -> Iterable[tuple[str, MethodCell]]:
    table = side_by_side(sheet.table, peaks=False)
    rows = (*table.rows, *table.extra)
    for place in grid_cells(table):
        value, head = place.value, table.columns[place.column]
        if not value.there or value.told is not None or " - " in value.method:
            continue
        printed = value.reference
        paper = "" if printed is None else printed.text or text.number(printed.mean, printed.spread, table.decimals)
        apart = (
            "" if value.difference is None else text.difference_text(value.difference, value.verdict, table.decimals)
        )
        yield (
            value.method,
            MethodCell(
                table=sheet.key,
                title=discreet(table.title),
                cell=place.key,
                row=rows[place.row].title,
                column=head.name,
                ours=text.cell(value, table.decimals),
                paper=paper,
                difference=apart,
                verdict=value.judged,
            ),
        )
