"""Fill a figure: an expanded suite and the stored runs become panels of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.cells import read, spread_word, summarize
from pflbench.report.figures.across import across
from pflbench.report.figures.clients import Slicing, densities, histogram, scatter
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.tsne import draw as draw_tsne
from pflbench.report.holdings import Ints
from pflbench.report.reading import Shelf, by_round, by_step
from pflbench.report.text import grouped, ranges
from pflbench.report.used import COUNTED, beside, costs, runs_used, unknown_costs
from pflbench.report.versions import mixtures
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.figure import Across, FromRuns, Histogram, Kde, Scatter, Steps, Tsne
from pflbench.suite.schema import Spread

Remarks = list[tuple[str, str]]
"""What is missing, and in which column."""
_SCALES = {"none": "", "share": " / sum over clients", "dimension": " / d"}


def draw_runs(table: Expansion, figure: FromRuns, shelf: Shelf) -> Drawing:
    """A figure from runs, with a panel for each column and stage. Where nothing is done, there are no series."""
    if isinstance(figure, Tsne):
        return draw_tsne(table, figure, shelf, _mixed(table, shelf))
    if isinstance(figure, Across):
        return _against_columns(table, figure, shelf)
    if isinstance(figure, Steps):
        table = _of_stage(table, "finetuned")
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    heads = sorted(table.heads, key=lambda head: stages.index(head.stage))  # a line of panels for each stage
    unscored: Remarks = []
    panels = tuple(
        Panel(head.name if len(stages) > 1 else head.column.setting, _series(table, figure, head, shelf, unscored))
        for head in heads
    )
    x, y, drawn = _said(figure, table.spread)
    shown = [(one.label, one.numbers) for panel in panels for one in panel.series if table.layout.costs]
    missing, seeds = _missing(table, heads, shelf)
    runs = [run for cell in table.cells for spec in cell.runs if (run := shelf.read(spec))]
    devices = ", ".join(sorted({str(run.provenance.get("device", "unknown")) for run in runs}))
    notes = (
        *_mixed(table, shelf),
        _listed("Missing or failed runs", missing, table),
        _listed("Not scored, see --evaluate-every", unscored, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        drawn,
        *((f"{COUNTED} Device: {devices}.", unknown_costs(shown)) if shown else ()),
        *table.notes,
    )
    return Drawing(
        *(table.suite, table.heading, table.profile, x, y, panels, _across(len(panels) // len(stages))),
        tuple(filter(None, notes)),
        tuple(row.title for row in table.rows),
        beside=beside(shown),
    )


def _against_columns(table: Expansion, figure: Across, shelf: Shelf) -> Drawing:
    """A panel for each stage, and in it for each row its numbers over the columns, beside the paper's."""
    panels = []
    alike = len({column.group for column in table.columns}) == 1
    span = (figure.y[0], figure.y[1]) if figure.y else None
    for stage in dict.fromkeys(head.stage for head in table.heads):
        heads = [head for head in table.heads if head.stage == stage]
        ticks = () if figure.at else tuple(head.column.title if alike else head.column.setting for head in heads)
        panels.append(Panel(heads[0].label, across(table, figure, heads, shelf), ticks, span))
    missing, seeds = _missing(table, table.heads, shelf)
    notes = (
        *_mixed(table, shelf),
        _listed("Missing or failed runs", missing, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        f"Mean over seeds; the error bar is the {spread_word(table.spread)}.",
        *table.notes,
    )
    titles = tuple(row.title for row in table.rows)
    return Drawing(
        *(table.suite, table.heading, table.profile, figure.x, "accuracy (%)", tuple(panels), _across(len(panels))),
        tuple(filter(None, notes)),
        titles,
    )


def _of_stage(table: Expansion, stage: str) -> Expansion:
    """The part of a table that shows one stage."""
    if not table.stages:
        return table
    kept = {one: label for one, label in table.stages.items() if one == stage}
    return replace(table, stages=kept, cells=tuple(cell for cell in table.cells if cell.stage == stage))


def draw_classes(table: Expansion, clients: int, panels: Sequence[tuple[str, Ints]], seed: int) -> Drawing:
    """A figure of who holds which classes; `panels`: titles, and how many rows of each class each client has."""
    made = tuple(
        Panel(title, tuple(_stacked(label, counts) for label, counts in enumerate(held[:clients].T)))
        for title, held in panels
    )
    notes = (f"Paper: {table.paper}.", f"The first {clients} clients, support and query together; seed {seed}.")
    axes = "client", "rows"
    return Drawing(
        *(table.suite, table.heading, table.profile, *axes, made, _across(len(made))), (*notes, *table.notes)
    )


def _stacked(label: int, counts: Ints) -> Series:
    points = tuple(Point(float(client), float(count)) for client, count in enumerate(counts))
    return Series(f"class {label}", "stacked", points, 0.8)


def draw_sizes(table: Expansion, figure: Histogram, columns: Sequence[Slicing], seeds: Sequence[int]) -> Drawing:
    """A figure of partitions alone."""
    panels = tuple(histogram(column, seeds, figure.bins) for column in columns)
    drawn = f"Drawn: the clients of {len(seeds)} partitions (seeds {ranges(seeds)}); no data are read."
    notes = (f"Paper: {table.paper}.", drawn, *table.notes)
    axes = "training rows of a client", "density"
    return Drawing(table.suite, table.heading, table.profile, *axes, panels, _across(len(panels)), notes)


def _across(panels: int) -> int:
    return panels if panels <= 3 else 2 if panels == 4 else 3


def _cells(table: Expansion, head: ColumnHead) -> dict[str, Cell]:
    """The cells of a panel by their rows' titles, in the suite's order."""
    return {row.title: cell for row in table.rows if (cell := table.places.get((row.id, head.id)))}


def _series(
    table: Expansion, figure: FromRuns, head: ColumnHead, shelf: Shelf, unscored: Remarks
) -> tuple[Series, ...]:
    """What a panel shows: rows as far as they are done. `unscored` is told which rounds they lack."""
    cells = _cells(table, head)
    if isinstance(figure, Scatter):
        return scatter({title: read(cell, shelf) for title, cell in cells.items()}, figure.bins)
    found: list[Series] = []
    rare: list[str] = []
    for title, cell in cells.items():
        runs = [run for spec in cell.runs if (run := shelf.read(spec))]
        if isinstance(figure, Kde):
            found += densities(f"{title}, " if len(cells) > 1 else "", runs, figure, rare)
        elif isinstance(figure, Steps):
            found.append(_line(title, [by_step(run, cell.reading) for run in runs], table.spread, costs(runs)))
        else:
            walks = [by_round(run, cell.reading) for run in runs]
            found.append(_line(title, walks, table.spread, {}))
            rare += _rare(title, walks)
    unscored += [(what, head.column.setting) for what in rare]
    return tuple(one for one in found if one.points)


def _rare(title: str, walks: Sequence[Mapping[int, float]]) -> list[str]:
    """What a curve lacks."""
    rounds = {round for walk in walks for round in walk}
    if len(rounds) == 1:
        return [f"{title} but after round {min(rounds)}"]
    return [f"{title} after some rounds of some seeds"] if any(len(walk) < len(rounds) for walk in walks) else []


def _line(title: str, walks: Sequence[Mapping[int, float]], spread: Spread, numbers: Mapping[str, float]) -> Series:
    """Mean and spread over seeds, at each place that one of their walks comes by."""
    points = []
    for x in sorted({x for walk in walks for x in walk}):
        summary = summarize(np.array([[walk[x]] for walk in walks if x in walk]), spread)
        points.append(Point(float(x), summary.mean, summary.spread, summary.n))
    return Series(title, "line", tuple(points), numbers=numbers)


def _said(figure: FromRuns, spread: Spread) -> tuple[str, str, str]:
    """What the axes are called, and how the marks are made."""
    if isinstance(figure, Scatter):
        bins = f"The clients of all seeds in up to {figure.bins} bins of equally many; mean and standard error"
        return "support rows of a client", "accuracy (%)", f"{bins} over those in a bin."
    if isinstance(figure, Kde):
        kernels = "Gaussian kernels with Scott's bandwidth, the clients of all seeds together."
        return f"{figure.metric}{_SCALES[figure.scale]}", "density", kernels
    x = "fine-tuning step" if isinstance(figure, Steps) else "round"
    return x, "accuracy (%)", f"Mean over seeds; the band is the {spread_word(spread)}."


def _missing(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Remarks, set[int]]:
    """Which seeds of which rows are not done, and the seeds that are done of some row."""
    missing: Remarks = []
    seeds: set[int] = set()
    for head in heads:
        for title, cell in _cells(table, head).items():
            asked = {needed[0].seed for needed in cell.by_seed}
            done = {needed[0].seed for needed in cell.by_seed if all(shelf.read(run) for run in needed)}
            seeds |= done
            if lacking := asked - done:
                which = f" (seeds {ranges(lacking)})" if done else ""
                missing.append((f"{title}{which}", head.column.setting))
    return missing, seeds


def _listed(title: str, remarks: Remarks, table: Expansion) -> str:
    """`round 1; FedAvg in A, B`: what, and in which columns unless in all; empty without remarks."""
    alike = grouped((tuple(columns), what) for what, columns in grouped(remarks).items())
    said = "; ".join(
        ", ".join(several) + ("" if len(columns) == len(table.columns) else f" in {', '.join(columns)}")
        for columns, several in alike.items()
    )
    return f"{title}: {said}." if said else ""


def _mixed(table: Expansion, shelf: Shelf) -> list[str]:
    """Warnings of columns whose runs saw different data, or are of different versions of a method."""
    used = runs_used(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    return list(mixtures(table, used).values())
