"""From an expanded suite to what a table is made from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pflbench.data.root import data_root
from pflbench.report import table as t
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, TableColumn
from pflbench.suite.own import Own


def readable(store: Store, data_dir: Path | None = None) -> Own:
    """Where what is the user's own is looked for to read a table: on this machine, else in the stored runs' specs."""
    return Own(
        data_root(data_dir),
        cache(lambda: {one.spec: one.failure is None and not one.spec.validation for one in store.list()}),
    )


def table_input(
    table: Expansion, *, elsewhere: frozenset[str] = frozenset(), spread: bool | None = None
) -> t.TableInput:
    """An expanded suite as the report's input.

    `elsewhere`: ids of runs that stand in another table of the same paper. `spread`: whether one stands behind each
    number (None: as the suite says).
    """
    return t.TableInput(
        suite=table.suite,
        title=table.title,
        paper=table.paper,
        profile=table.profile,
        rows=tuple(t.RowHead(r.id, r.title) for r in table.rows),
        columns=tuple(head for column in table.columns for head in _heads(table, column)),
        cells={(cell.row.id, head_id(table, cell.column, cell.stage)): _cell(table, cell) for cell in table.cells},
        spread=t.Spread(table.spread.kind, table.spread.ddof, table.spread.of),
        decimals=table.decimals,
        bold_best=table.bold == "best-per-column",
        protocol=table.protocol,
        notes=table.notes,
        departures=tuple(departure.what for departure in table.departures),
        counts=table.shortfall.counts,
        shortfall=table.shortfall.runs,
        elsewhere=elsewhere,
        blocks=table.blocks,
        costs=table.costs,
        with_spread=table.shows_spread if spread is None else spread,
        derived=tuple(
            t.Derived(
                *(d.id, d.title, d.axis, d.of),
                {place: t.Reference(*printed) for place, printed in d.references.items()},
                d.shows_spread if spread is None else spread,
            )
            for d in table.derived
        ),
    )


def head_id(table: Expansion, column: TableColumn, stage: str) -> str:
    """The id of the column that shows this stage."""
    return f"{column.id}/{stage}" if table.stages else column.id


def _heads(table: Expansion, c: TableColumn) -> list[t.ColumnHead]:
    """A column of the suite as the table shows it: once, or once for each stage."""

    def head(id: str, stage: str | None = None, label: str = "") -> t.ColumnHead:
        return t.ColumnHead(id, c.title, c.group, c.id, c.dataset, c.partition, c.clients, c.rounds, stage, label)

    labels = table.stages if len(table.stages) > 1 else dict.fromkeys(table.stages, "")
    return [head(head_id(table, c, stage), stage, label) for stage, label in labels.items()] or [head(c.id)]


def _cell(table: Expansion, cell: Cell) -> t.CellInput:
    steps = cell.steps if cell.stage == "finetuned" else None
    return t.CellInput(
        row=cell.row.id,
        column=head_id(table, cell.column, cell.stage),
        reading=t.Reading(cell.stage, steps, cell.column.smallest, table.mean),
        runs=cell.runs,
        reference=cell.reference and t.Reference(*cell.reference),
        choices=tuple(tuple(t.Choice(*choice) for choice in points) for points in cell.choices),
        rests_on={key: source for key, source in cell.sources.items() if source in t.UNPRINTED},
    )
