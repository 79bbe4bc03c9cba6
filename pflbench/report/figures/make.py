"""Fill a figure: an expanded suite and the stored runs become panels of series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.cells import read_seeds, spread_word, summarize
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.clients import Slicing, densities, histogram, scatter
from pflbench.report.figures.panels import PRINTED, Drawing, Panel, Point, Series
from pflbench.report.figures.parts import (
    UNEVEN,
    Remarks,
    cells_of,
    facts_of,
    in_a_line,
    in_order,
    in_panels,
    missing_facts,
    mixed,
    not_done,
    over_seeds,
    remarked,
    remarks_of,
    settings,
)
from pflbench.report.figures.tsne import draw as draw_tsne
from pflbench.report.holdings import Ints
from pflbench.report.provenance import COUNTED, costs_in_words, round_costs, unknown_costs
from pflbench.report.reading import Shelf, by_round, by_step
from pflbench.report.text import ranges
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.figure import Across, FromRuns, Histogram, Kde, Scatter, Steps, Tsne
from pflbench.suite.schema import Spread

_UNSCORED = Fact("missing", "Not scored, see --evaluate-every")
_SCALES = {"none": "", "share": " / sum over clients", "dimension": " / d"}


def draw_runs(table: Expansion, figure: FromRuns, shelf: Shelf) -> Drawing:
    """A figure from runs, with a panel for each column and stage. Where nothing is done, there are no series."""
    if isinstance(figure, Tsne):
        return draw_tsne(table, figure, shelf, mixed(table, shelf))
    if isinstance(figure, Across):
        return _against_columns(table, figure, shelf)
    if isinstance(figure, Steps):
        table = _of_stage(table, "finetuned")
    heads, remarks = in_panels(table), remarks_of()
    panels = tuple(Panel(title, _series(table, figure, head, shelf, remarks)) for title, head in heads.items())
    x, y, how = _said(figure, table.spread)
    shown = [(one.label, one.numbers) for panel in panels for one in panel.series if table.layout.costs]
    places = tuple(heads.values())
    _, seeds = not_done(table, places, shelf)
    drawn = [cell for cell in table.cells if any(shelf.read(spec) for spec in cell.runs)]
    notes = (
        *mixed(table, shelf),
        *facts("spread", how),
        *remarked(remarks, {"uneven": UNEVEN, "unscored": _UNSCORED}, settings(table)),
        *missing_facts(table, places, shelf),
        *(facts("runs", f"{COUNTED} Device: {_devices(table, shelf)}.", unknown_costs(shown)) if shown else ()),
        *facts_of(table, seeds, drawn),
    )
    across = in_a_line(len(table.columns))
    return Drawing(
        *(table.suite, table.heading, table.profile, x, y, panels, across),
        notes,
        in_order(table, panels),
        beside=costs_in_words(shown),
    )


def _devices(table: Expansion, shelf: Shelf) -> str:
    runs = [run for cell in table.cells for spec in cell.runs if (run := shelf.read(spec))]
    return ", ".join(sorted({str(run.provenance.get("device", "unknown")) for run in runs}))


def _against_columns(table: Expansion, figure: Across, shelf: Shelf) -> Drawing:
    """A panel for each stage, and in it for each row its numbers over the columns, beside the paper's."""
    panels, drawn = [], []
    alike = len({column.group for column in table.columns}) == 1
    for stage in dict.fromkeys(head.stage for head in table.heads):
        heads = [head for head in table.heads if head.stage == stage]
        ticks = () if figure.at else tuple(head.column.title if alike else head.column.setting for head in heads)
        series = across(table, figure, heads, shelf)
        at = figure.at or range(len(heads))
        between = tuple((at[i - 1] + at[i]) / 2 for i in figure.separators if i < len(heads))
        panels.append(Panel(heads[0].label, series, ticks, span(figure, series), separators=between))
        drawn += shown_in(table, figure, heads, series)
    _, seeds = not_done(table, table.heads, shelf)
    begins = f"The axis begins at {figure.y[0]:g} %, not at 0." if figure.y and figure.y[0] and panels[0].span else ""
    notes = (
        *mixed(table, shelf),
        *facts("spread", f"Mean over seeds; the error bar is the {spread_word(table.spread)}."),
        *facts("scores", begins),
        *missing_facts(table, table.heads, shelf),
        *facts_of(table, seeds, drawn),
    )
    titles = tuple(row.title for row in table.rows)
    return Drawing(
        *(table.suite, table.heading, table.profile, figure.x, "accuracy (%)", tuple(panels), in_a_line(len(panels))),
        notes,
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
    first = f"The first {clients} clients, support and query together; seed {seed}."
    notes = tuple(facts("note", f"Paper: {table.paper}.", first, *table.notes))
    axes = "client", "rows"
    return Drawing(table.suite, table.heading, table.profile, *axes, made, in_a_line(len(made)), notes)


def _stacked(label: int, counts: Ints) -> Series:
    points = tuple(Point(float(client), float(count)) for client, count in enumerate(counts))
    return Series(f"class {label}", "stacked", points, 0.8)


def draw_sizes(table: Expansion, figure: Histogram, columns: Sequence[Slicing], seeds: Sequence[int]) -> Drawing:
    """A figure of partitions alone."""
    panels = tuple(histogram(column, seeds, figure.bins) for column in columns)
    drawn = f"Drawn: the clients of {len(seeds)} partitions (seeds {ranges(seeds)}); no data are read."
    notes = tuple(facts("note", f"Paper: {table.paper}.", drawn, *table.notes))
    axes = "training rows of a client", "density"
    return Drawing(table.suite, table.heading, table.profile, *axes, panels, in_a_line(len(panels)), notes)


def _series(table: Expansion, figure: FromRuns, head: ColumnHead, shelf: Shelf, remarks: Remarks) -> tuple[Series, ...]:
    """Series of a panel: rows as far as they are done."""
    cells, where = cells_of(table, head), head.column.setting
    if isinstance(figure, Scatter):
        return scatter({title: read_seeds(cell, shelf) for title, cell in cells.items()}, figure.bins)
    found: list[Series] = []
    rare: list[str] = []
    for title, cell in cells.items():
        runs = [run for spec in cell.runs if (run := shelf.read(spec))]
        if isinstance(figure, Kde):
            found += densities(f"{title}, " if len(cells) > 1 else "", runs, figure, rare)
        else:
            found += _lines(title, cell, runs, table.spread, isinstance(figure, Steps), remarks)
    remarks["unscored"] += [("", what, where) for what in rare]
    return tuple(one for one in found if one.points)


def _lines(
    title: str, cell: Cell, runs: Sequence[RunResult], spread: Spread, steps: bool, remarks: Remarks
) -> tuple[Series, ...]:
    """A row's line over fine-tuning steps, else over rounds."""
    walks = {run.spec.seed: (by_step if steps else by_round)(run, cell.reading) for run in runs}
    lines = over_seeds(title, walks, spread, round_costs(runs) if steps else None)
    where = cell.column.setting
    remarks["uneven"] += [(lines.left_out, title, where)] if lines.left_out else []
    places = {point.x for one in lines.series for point in one.points}
    once = ("", f"{title} but after round {min(places):g}", where) if len(places) == 1 else None
    remarks["unscored"] += [once] if once else []
    return lines.series


def _said(figure: FromRuns, spread: Spread) -> tuple[str, str, str]:
    """Names of the axes, and a sentence on how the marks are made."""
    if isinstance(figure, Scatter):
        bins = f"The clients of all seeds in up to {figure.bins} bins of equally many; mean and standard error"
        return "training images of a client", "accuracy (%)", f"{bins} over those in a bin."
    if isinstance(figure, Kde):
        kernels = "Gaussian kernels with Scott's bandwidth, the clients of all seeds together."
        return f"{figure.metric}{_SCALES[figure.scale]}", "density", kernels
    x = "fine-tuning step" if isinstance(figure, Steps) else "round"
    return x, "accuracy (%)", f"Mean over seeds; the band is the {spread_word(spread)}."


_GROUP, _ASIDE = 0.8, 0.25
"""Width of a column's dots, where columns are 1 apart; share of a row's place that ours and the paper's are aside."""


def across(table: Expansion, figure: Across, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Series, ...]:
    """For each row its numbers in these columns, as far as they are done, then those that the paper printed.

    Dots of a row stand beside those of the others, and the paper's beside ours.
    """
    compared = not table.shortfall.runs and table.paper_round == "last"
    width = _GROUP / max(1, len(table.rows)) if figure.mark == "dots" else 0.0
    ours, printed = [], []
    for i, row in enumerate(table.rows):
        shift = (i - (len(table.rows) - 1) / 2) * width
        points, theirs = [], []
        for place, head in enumerate(heads):
            cell = table.places.get((row.id, head.id))
            x = (figure.at[place] if figure.at else place) + shift
            if cell is not None and (point := _point(cell, x - _ASIDE * width, shelf, table)) is not None:
                points.append(point)
            if cell is not None and cell.reference is not None and compared:
                theirs.append(Point(x + _ASIDE * width, cell.reference.mean, cell.reference.spread))
        if points:
            ours.append(Series(row.title, "mean" if width else "line", tuple(points), row=row.title))
        if theirs:
            label = PRINTED if points else f"{row.title}, {PRINTED}"
            printed.append(Series(label, "printed", tuple(theirs), like=row.title, row=row.title))
    return *ours, *printed


def _point(cell: Cell, x: float, shelf: Shelf, table: Expansion) -> Point | None:
    """Mean and spread of a cell's finished seeds."""
    done = read_seeds(cell, shelf)
    if not done:
        return None
    found = summarize(np.array([one.average(cell.reading) for one in done]), table.spread)
    return Point(x, found.mean, found.spread, found.n)


def span(figure: Across, series: Sequence[Series]) -> tuple[float, float] | None:
    """The accuracies that the figure asks to show, where every marker is within them; else None, for all."""
    if figure.y is None:
        return None
    low, high = figure.y
    ends = [
        point.y + side * (point.spread or 0.0)
        for one in series
        for point in one.points
        if point.y is not None
        for side in (-1, 1)
    ]
    return (low, high) if all(low <= end <= high for end in ends) else None


def shown_in(table: Expansion, figure: Across, heads: Sequence[ColumnHead], series: Sequence[Series]) -> list[Cell]:
    """The cells that have a marker."""
    at = figure.at or range(len(heads))
    rows = {row.title: row.id for row in table.rows}
    nearest = [
        (rows[one.row], heads[min(range(len(heads)), key=lambda i: abs(at[i] - point.x))].id)
        for one in series
        for point in one.points
    ]
    return [table.places[place] for place in nearest]
