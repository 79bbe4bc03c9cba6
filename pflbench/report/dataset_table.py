"""The table of a suite of statistics: how many images the clients of each dataset hold, from the stored counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pflbench.commands import command, public_folder
from pflbench.report.cells import spread_word, summarize
from pflbench.report.facts import Fact, facts
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.table_facts import paper_line, shortfall_text
from pflbench.report.text import ranges
from pflbench.store import Store
from pflbench.store.counts import Counts, read_counts
from pflbench.suite.cells import ColumnHead, CountedColumn, Expansion, Reference, TableColumn
from pflbench.suite.figure import COLUMNS, Sizes


def lay_out_counts(table: Expansion, store: Store) -> Table:
    """The finished table. A dataset that is not counted with every seed is a line of dashes, and the footer says so."""
    found = {one.column.id: _counted(one, store) for one in table.counted}
    return Table(
        suite=table.suite,
        title=table.heading,
        profile=table.profile,
        columns=tuple(ColumnHead(TableColumn(name, "", name, "", "", "", 0, 0)) for name in COLUMNS),
        rows=tuple(
            Row(id_, one.title, tuple(_cell(table, found[id_], one.printed, name) for name in COLUMNS))
            for one in table.counted
            for id_ in [one.column.id]
        ),
        extra=(),
        decimals=0,
        blocks=False,
        facts=tuple(_facts(table, found, store.root)),
        comparable=not table.shortfall.runs,
        unit="",
    )


def _facts(table: Expansion, found: Mapping[str, Sequence[Counts]], results: Path) -> Iterator[Fact]:
    """Facts of the table. `found`: stored counts, by the column's id."""
    varies = any(len({one[:-1] for one in counts}) > 1 for counts in found.values())
    counted = [(one.title, found[one.column.id]) for one in table.counted]
    there = [f"{counts[0].data[:12]} ({title})" for title, counts in counted if counts]
    missing = ", ".join(title for title, counts in counted if not counts)
    yield from facts("shortfall", shortfall_text(table))
    yield from facts("protocol", paper_line(table))
    scored = "Counted: train, the clients' support images; test, their query images; classes, the labels of both."
    yield Fact("scores", scored)
    pm = f" ± is the {spread_word(table.spread)} over seeds." if table.shows_spread else ""
    means = f" Where they differ, the mean stands there.{pm}" if varies else ""
    yield Fact("seeds", f"Seeds: {ranges(table.seeds)}.{means}")
    yield from facts("data", f"Data: {', '.join(there)}." if there else "")
    if missing:
        counts = command("run", table.part.options, public_folder(results))
        yield Fact("missing", f"Not counted yet: {missing}. `{counts}` counts what the datasets hold.")
    yield from facts("note", *table.notes)


def _counted(dataset: CountedColumn, store: Store) -> list[Counts]:
    """Stored counts of a dataset for each seed; empty if one is missing."""
    counts = [read_counts(store.root, run) for run in dataset.federations]
    found = [one for one in counts if one is not None]
    return found if len(found) == len(counts) else []


def _cell(table: Expansion, counts: list[Counts], paper: Sizes | None, name: str) -> CellValue | None:
    if not counts:
        return None
    ours = summarize(np.array([[float(getattr(one, name))] for one in counts]), table.spread)
    printed = getattr(paper, name) if paper else None
    return CellValue(
        done=ours.n,
        expected=ours.n,
        mean=ours.mean,
        std=ours.std,
        sem=ours.sem,
        spread=(ours.spread or None) if table.shows_spread else None,  # the same number for all seeds has none
        reference=None if printed is None else Reference(printed),
    )
