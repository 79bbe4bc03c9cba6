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
from pflbench.suite.cells import Caption, ColumnHead, Reference, TableColumn
from pflbench.suite.counting import CountTable, ToCount
from pflbench.suite.figure import COLUMNS, Sizes


def lay_out_counts(table: CountTable, store: Store) -> Table:
    """The finished table. A dataset that is not counted with every seed is a line of dashes, and the footer says so."""
    found = {dataset.id: _counted(dataset, store) for dataset in table.datasets}
    return Table(
        suite=table.suite,
        title=table.heading,
        profile=table.profile,
        columns=tuple(ColumnHead(TableColumn(name, "", name, "", "", "", 0, 0)) for name in COLUMNS),
        rows=tuple(
            Row(one.id, one.title, tuple(_cell(table, found[one.id], one.printed, name) for name in COLUMNS))
            for one in table.datasets
        ),
        extra=(),
        decimals=0,
        blocks=False,
        facts=tuple(_facts(table, found, store.root)),
        comparable=not table.shortfall.runs,
        unit="",
    )


def _facts(table: CountTable, found: Mapping[str, Sequence[Counts]], results: Path) -> Iterator[Fact]:
    """Facts of the table. `found`: stored counts, by the dataset's id."""
    varies = any(len({one[:-1] for one in counts}) > 1 for counts in found.values())
    there = [f"{found[one.id][0].data[:12]} ({one.title})" for one in table.datasets if found[one.id]]
    missing = ", ".join(one.title for one in table.datasets if not found[one.id])
    yield from facts("shortfall", shortfall_text(table))
    yield from facts("protocol", paper_line(table))
    counted = "Counted: train, the clients' support images; test, their query images; classes, the labels of both."
    yield Fact("scores", counted)
    pm = f" ± is the {spread_word(table.spread)} over seeds." if table.shows_spread else ""
    means = f" Where they differ, the mean stands there.{pm}" if varies else ""
    yield Fact("seeds", f"Seeds: {ranges(table.seeds)}.{means}")
    yield from facts("data", f"Data: {', '.join(there)}." if there else "")
    if missing:
        counts = command("run", f" {table.command}", public_folder(results))
        yield Fact("missing", f"Not counted yet: {missing}. `{counts}` counts what the datasets hold.")
    yield from facts("note", *table.notes)


def _counted(dataset: ToCount, store: Store) -> list[Counts]:
    """Stored counts of a dataset for each seed; empty if one is missing."""
    counts = [read_counts(store.root, run) for run in dataset.federations]
    found = [one for one in counts if one is not None]
    return found if len(found) == len(counts) else []


def _cell(table: Caption, counts: list[Counts], paper: Sizes | None, name: str) -> CellValue | None:
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
