"""Fill a table: read the runs, add extra rows, mark the best, add the differences, write the footer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pflbench.report.derive import Grid, derive
from pflbench.report.extra import extra_rows
from pflbench.report.footer import footer
from pflbench.report.mixtures import Used, marked, mixtures
from pflbench.report.outdated import outdated
from pflbench.report.shelf import Shelf
from pflbench.report.table import CellInput, ColumnHead, Row, Table, TableInput
from pflbench.report.values import read, value
from pflbench.store import Store


def lay_out(table: TableInput, store: Store) -> Table:
    """The finished table. Depends on nothing but the suite and the stored runs."""
    shelf = Shelf(store)
    specs = [stored.spec for stored in shelf.stored.values()]
    extra, spare = extra_rows(table, specs)
    older = outdated((run for cell in table.cells.values() for run in cell.asked), specs)
    table = replace(table, cells={place: cell for place, cell in table.cells.items() if cell.has_scores})
    cells: dict[tuple[str, str], CellInput] = dict(table.cells)
    for row in extra:
        cells |= {(row.id, head): cell for head, cell in row.cells.items()}
    found = {place: read(cell, shelf) for place, cell in cells.items()}
    # After the reading: only then are damaged files known.
    titles = {row.id: row.title for row in table.rows} | {row.id: row.title for row in extra}
    used = _used(table, cells, titles, shelf)
    mixed = mixtures(table, used)
    column = {head.id: head.column for head in table.columns}
    grid = {
        (row, head): value(cell, found[row, head], shelf, table, mixed=column[head] in mixed)
        for (row, head), cell in cells.items()
    }
    for row in extra:
        for head, expected in row.expected.items():
            grid[row.id, head] = replace(grid[row.id, head], expected=expected)
    if table.bold_best:
        _mark_best(grid, table)
    heads, columns, differences = derive(table, [row.id for row in extra], grid)
    shown = grid | differences
    return Table(
        suite=table.suite,
        title=table.heading,
        profile=table.profile,
        columns=columns,
        rows=tuple(_row(row.id, marked(row.title, used), shown, columns) for row in heads),
        extra=tuple(_row(row.id, marked(row.title, used), shown, columns) for row in extra),
        decimals=table.decimals,
        blocks=table.blocks,
        footer=(*footer(table, grid, used, tuple(mixed.values()), spare), *older),
        comparable=not table.shortfall,
    )


def _used(
    table: TableInput, cells: dict[tuple[str, str], CellInput], titles: dict[str, str], shelf: Shelf
) -> list[Used]:
    """Every stored run once for each row and column of the suite that it stands in."""
    heads = {head.id: head for head in table.columns}
    found = {
        (row, heads[head].column, run.id): Used(titles[row], heads[head].column, heads[head].setting, stored)
        for (row, head), cell in cells.items()
        for run in cell.asked
        if (stored := shelf.stored.get(run.id))
    }
    return list(found.values())


def _mark_best(grid: Grid, table: TableInput) -> None:
    # Cells that miss seeds or cannot be compared do not compete, and what prints alike is best alike.
    for column in table.columns:
        rounded = {
            place: round(value.mean, table.decimals)
            for place, value in grid.items()
            if place[1] == column.id
            and value.complete
            and not value.mixed
            and value.mean is not None
            and math.isfinite(value.mean)
        }
        if len(rounded) > 1:
            top = max(rounded.values())
            for place, mean in rounded.items():
                grid[place] = replace(grid[place], best=mean == top)


def _row(id: str, title: str, grid: Grid, columns: Sequence[ColumnHead]) -> Row:
    return Row(id, title, tuple(grid.get((id, column.id)) for column in columns))
