"""Fill a figure: an expanded suite and the stored runs become panels of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pflbench.report.cells import read, spread_word
from pflbench.report.figures.across import across
from pflbench.report.figures.clients import Slicing, densities, histogram, scatter
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.parts import (
    Remarks,
    cells_of,
    in_a_line,
    line,
    listed,
    mixed,
    not_done,
    unevenly_scored,
)
from pflbench.report.figures.tsne import draw as draw_tsne
from pflbench.report.holdings import Ints
from pflbench.report.reading import Shelf, by_round, by_step
from pflbench.report.text import ranges
from pflbench.report.used import COUNTED, beside, costs, unknown_costs
from pflbench.suite.cells import ColumnHead, Expansion
from pflbench.suite.figure import Across, FromRuns, Histogram, Kde, Scatter, Steps, Tsne
from pflbench.suite.schema import Spread

_SCALES = {"none": "", "share": " / sum over clients", "dimension": " / d"}


def draw_runs(table: Expansion, figure: FromRuns, shelf: Shelf) -> Drawing:
    """A figure from runs, with a panel for each column and stage. Where nothing is done, there are no series."""
    if isinstance(figure, Tsne):
        return draw_tsne(table, figure, shelf, mixed(table, shelf))
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
    missing, seeds = not_done(table, heads, shelf)
    runs = [run for cell in table.cells for spec in cell.runs if (run := shelf.read(spec))]
    devices = ", ".join(sorted({str(run.provenance.get("device", "unknown")) for run in runs}))
    notes = (
        *mixed(table, shelf),
        listed("Missing or failed runs", missing, table),
        listed("Not scored, see --evaluate-every", unscored, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        drawn,
        *((f"{COUNTED} Device: {devices}.", unknown_costs(shown)) if shown else ()),
        *table.notes,
    )
    return Drawing(
        *(table.suite, table.heading, table.profile, x, y, panels, in_a_line(len(panels) // len(stages))),
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
    missing, seeds = not_done(table, table.heads, shelf)
    notes = (
        *mixed(table, shelf),
        listed("Missing or failed runs", missing, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        f"Mean over seeds; the error bar is the {spread_word(table.spread)}.",
        *table.notes,
    )
    titles = tuple(row.title for row in table.rows)
    return Drawing(
        *(table.suite, table.heading, table.profile, figure.x, "accuracy (%)", tuple(panels), in_a_line(len(panels))),
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
        *(table.suite, table.heading, table.profile, *axes, made, in_a_line(len(made))), (*notes, *table.notes)
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
    return Drawing(table.suite, table.heading, table.profile, *axes, panels, in_a_line(len(panels)), notes)


def _series(
    table: Expansion, figure: FromRuns, head: ColumnHead, shelf: Shelf, unscored: Remarks
) -> tuple[Series, ...]:
    """What a panel shows: rows as far as they are done. `unscored` is told which rounds they lack."""
    cells = cells_of(table, head)
    if isinstance(figure, Scatter):
        return scatter({title: read(cell, shelf) for title, cell in cells.items()}, figure.bins)
    found: list[Series] = []
    rare: list[str] = []
    for title, cell in cells.items():
        runs = [run for spec in cell.runs if (run := shelf.read(spec))]
        if isinstance(figure, Kde):
            found += densities(f"{title}, " if len(cells) > 1 else "", runs, figure, rare)
        elif isinstance(figure, Steps):
            found.append(line(title, [by_step(run, cell.reading) for run in runs], table.spread, costs(runs)))
        else:
            walks = [by_round(run, cell.reading) for run in runs]
            found.append(line(title, walks, table.spread, {}))
            rare += unevenly_scored(title, walks)
    unscored += [(what, head.column.setting) for what in rare]
    return tuple(one for one in found if one.points)


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
