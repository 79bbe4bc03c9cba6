"""A table of how many examples datasets have, as they are divided among clients. No run is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pflbench.data.federation import Federation
from pflbench.errors import DataMissing
from pflbench.executor import build
from pflbench.names import Places
from pflbench.report import rules
from pflbench.report.statistics import summarize
from pflbench.report.table import CellValue, ColumnHead, Reference, Row, Table, TableInput
from pflbench.report.text import ranges
from pflbench.spec import RunSpec
from pflbench.suite.statistics import COLUMNS, Sizes


class Counts(NamedTuple):
    """What a federation's clients hold together; an image that several of them hold counts as often."""

    total: int
    train: int
    test: int
    classes: int


class Counted(NamedTuple):
    """A dataset's numbers for each seed, what identifies its data, and what is missing (empty: nothing is)."""

    counts: tuple[Counts, ...]
    hash: str = ""
    missing: str = ""


class Line(NamedTuple):
    """A line of the table: the id and title of a dataset, what it was counted in, and the paper's numbers."""

    id: str
    title: str
    counted: Counted
    printed: Sizes | None


def counts(federation: Federation) -> Counts:
    """The numbers of support and query rows of all clients, and of the labels among them."""
    train, test = (sum(map(len, rows)) for rows in (federation.support, federation.query))
    held = np.concatenate((*federation.support, *federation.query))
    return Counts(train + test, train, test, len(np.unique(federation.labels[held])))


def count(runs: Sequence[RunSpec], root: Path, places: Places = build.NOWHERE) -> Counted:
    """A dataset with the seeds of these runs, from the files under `root`; `places`: where the user's own code is.

    Raises:
        PflbenchError: A file is damaged, or the partition is impossible.
    """
    try:
        federations = [build.federation(run, root, places) for run in runs]
    except DataMissing as error:
        return Counted((), missing=" ".join(str(error).split()))
    return Counted(tuple(map(counts, federations)), runs[0].dataset.content or federations[0].hash)


def lay_out_counts(table: TableInput, lines: Sequence[Line], seeds: Sequence[int]) -> Table:
    """The finished table; `table` says what stands above and below it."""
    columns = tuple(ColumnHead(name, name, "", name, "", "", None, 0) for name in COLUMNS)
    there = [line for line in lines if not line.counted.missing]
    varies = any(len(set(line.counted.counts)) > 1 for line in there)
    footer = [
        rules.shortfall(table),
        f"Paper: {table.paper}.",
        "Counted: train, the clients' support rows; test, their query rows; classes, the labels of both.",
        f"Seeds: {ranges(seeds)}.{_spread(table) if varies else ''}",
        f"Data: {', '.join(f'{line.counted.hash[:12]} ({line.title})' for line in there)}." if there else "",
        *(f"{line.title}: {line.counted.missing}" for line in lines if line.counted.missing),
        *table.notes,
    ]
    return Table(
        suite=table.suite,
        title=table.heading,
        profile=table.profile,
        columns=columns,
        rows=tuple(Row(line.id, line.title, tuple(_cell(table, line, name) for name in COLUMNS)) for line in lines),
        extra=(),
        decimals=0,
        blocks=False,
        footer=tuple(line for line in footer if line),
        comparable=not table.shortfall,
    )


def _spread(table: TableInput) -> str:
    kind = "standard error of the mean" if table.spread.kind == "sem" else "standard deviation"
    pm = f" ± is the {kind} over seeds." if table.with_spread else ""
    return f" Where they differ, the mean stands there.{pm}"


def _cell(table: TableInput, line: Line, name: str) -> CellValue | None:
    found = [float(getattr(one, name)) for one in line.counted.counts]
    if not found:
        return None
    ours = summarize(np.array(found)[:, None], table.spread)
    printed = getattr(line.printed, name) if line.printed else None
    return CellValue(
        method="",
        stage="",
        rounds=0,
        done=ours.n,
        expected=ours.n,
        failed=0,
        mean=ours.mean,
        std=ours.std,
        sem=ours.sem,
        spread=(ours.spread or None) if table.with_spread else None,  # the same number for all seeds has none
        reference=None if printed is None else Reference(printed),
    )
