"""Fill a figure: an expanded suite and the stored runs become panels of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.figures.density import density, pooled
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.runs import by_round, done, results
from pflbench.report.figures.scatter import scatter
from pflbench.report.figures.sizes import Slicing, histogram
from pflbench.report.figures.steps import COUNTED, beside, curve, unknown_costs
from pflbench.report.figures.tsne import Maker as Walks
from pflbench.report.mixtures import mixtures, runs_used
from pflbench.report.reading import Shelf
from pflbench.report.statistics import summarize
from pflbench.report.text import ranges
from pflbench.suite.cells import Cell, ColumnHead, Expansion
from pflbench.suite.figure import Curve, FromRuns, Histogram, Kde, Scatter, Steps, Tsne

Remarks = list[tuple[str, str]]
"""What is missing, and in which column."""
_SCALES = {"none": "", "share": " / sum over clients", "dimension": " / d"}


def draw_runs(table: Expansion, figure: FromRuns, shelf: Shelf) -> Drawing:
    """A figure from runs, with a panel for each column and stage. Where nothing is done, there are no series."""
    if isinstance(figure, Tsne):
        return _draw_tsne(table, figure, shelf)
    if isinstance(figure, Steps):
        table = _of_stage(table, "finetuned")
    maker = _Maker(table, figure, shelf)
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    heads = sorted(table.heads, key=lambda head: stages.index(head.stage))  # a line of panels for each stage
    panels = tuple(Panel(head.name if len(stages) > 1 else head.column.setting, maker.series(head)) for head in heads)
    return Drawing(
        table.suite,
        table.heading,
        table.profile,
        *maker.axes(),
        panels,
        _across(len(panels) // len(stages)),
        (*_mixed(table, shelf), *maker.notes(), *table.notes),
        tuple(row.title for row in table.rows),
        beside=beside(maker.costs) if isinstance(figure, Steps) else {},
    )


def _draw_tsne(table: Expansion, figure: Tsne, shelf: Shelf) -> Drawing:
    maker = Walks(table, figure, shelf)
    panels = maker.panels()
    return Drawing(
        *(table.suite, table.heading, table.profile, "t-SNE 1", "t-SNE 2", panels, maker.across),
        (*_mixed(table, shelf), *maker.notes(), *table.notes),
        tuple(row.title for row in table.rows),
        "round",
    )


def _of_stage(table: Expansion, stage: str) -> Expansion:
    """The part of a table that shows one stage."""
    if not table.stages:
        return table
    kept = {one: label for one, label in table.stages.items() if one == stage}
    return replace(table, stages=kept, cells=tuple(cell for cell in table.cells if cell.stage == stage))


def draw_sizes(table: Expansion, figure: Histogram, columns: Sequence[Slicing], seeds: Sequence[int]) -> Drawing:
    """A figure of partitions alone."""
    panels = tuple(histogram(column, seeds, figure.bins) for column in columns)
    drawn = f"Drawn: the clients of {len(seeds)} partitions (seeds {ranges(seeds)}); no data are read."
    notes = (f"Paper: {table.paper}.", drawn, *table.notes)
    axes = "training rows of a client", "density"
    return Drawing(table.suite, table.heading, table.profile, *axes, panels, _across(len(panels)), notes)


def _across(panels: int) -> int:
    return panels if panels <= 3 else 2 if panels == 4 else 3


class _Maker:
    """Makes the panels, and collects what the notes under the figure say: seeds, missing runs, costs."""

    def __init__(self, table: Expansion, figure: FromRuns, shelf: Shelf) -> None:
        self.table, self.figure, self.shelf = table, figure, shelf
        self.seeds: dict[int, None] = {}
        self.missing: Remarks = []
        self.partial: Remarks = []
        self.curves: list[Series] = []
        self.devices: set[str] = set()

    def axes(self) -> tuple[str, str]:
        if isinstance(self.figure, Scatter):
            return "support rows of a client", "accuracy (%)"
        if isinstance(self.figure, Kde):
            return f"{self.figure.metric}{_SCALES[self.figure.scale]}", "density"
        return "fine-tuning step" if isinstance(self.figure, Steps) else "round", "accuracy (%)"

    def series(self, head: ColumnHead) -> tuple[Series, ...]:
        """What a panel shows: rows in the suite's order, as far as they are done."""
        cells = {row.title: cell for row in self.table.rows if (cell := self.table.places.get((row.id, head.id)))}
        for title, cell in cells.items():
            self._look(title, cell, head)
        if isinstance(self.figure, Scatter):
            return scatter({title: done(cell, self.shelf) for title, cell in cells.items()}, self.figure.bins)
        if isinstance(self.figure, Curve):
            curves = [self._curve(title, cell, head) for title, cell in cells.items()]
            return tuple(curve for curve in curves if curve.points)
        if isinstance(self.figure, Steps):
            return self._tuned(cells)
        prefixes = {title: f"{title}, " if len(cells) > 1 else "" for title in cells}
        found = [self._densities(prefixes[title], cell, head) for title, cell in cells.items()]
        return tuple(one for several in found for one in several)

    def _look(self, title: str, cell: Cell, head: ColumnHead) -> None:
        """Note which seeds of a cell are done and which are not."""
        finished = [all(self.shelf.read(run) for run in needed) for needed in cell.by_seed]
        lacking = [needed[0].seed for needed, there in zip(cell.by_seed, finished, strict=True) if not there]
        self.seeds |= {needed[0].seed: None for needed, there in zip(cell.by_seed, finished, strict=True) if there}
        if lacking:
            which = "" if not any(finished) else f" (seeds {ranges(lacking)})"
            self.missing.append((f"{title}{which}", head.column.setting))

    def _curve(self, title: str, cell: Cell, head: ColumnHead) -> Series:
        rounds: dict[int, list[float]] = {}
        runs = results(cell, self.shelf)
        for run in runs:
            for round, accuracy in by_round(run, cell).items():
                rounds.setdefault(round, []).append(accuracy)
        if len(rounds) == 1:
            self.partial.append((f"{title} but after round {next(iter(rounds))}", head.column.setting))
        elif any(len(accuracies) < len(runs) for accuracies in rounds.values()):
            self.partial.append((f"{title} after some rounds of some seeds", head.column.setting))
        points = []
        for round, accuracies in sorted(rounds.items()):
            summary = summarize(np.array(accuracies)[:, None], self.table.spread)
            points.append(Point(float(round), summary.mean, summary.spread, summary.n))
        return Series(title, "line", tuple(points))

    def _tuned(self, cells: Mapping[str, Cell]) -> tuple[Series, ...]:
        runs = {title: results(cell, self.shelf) for title, cell in cells.items()}
        for several in runs.values():
            self.devices |= {str(run.provenance.get("device", "unknown")) for run in several}
        tuned = [curve(title, runs[title], cell, self.table.spread) for title, cell in cells.items()]
        there = tuple(one for one in tuned if one.points)
        self.curves += there
        return there

    def _densities(self, prefix: str, cell: Cell, head: ColumnHead) -> list[Series]:
        assert isinstance(self.figure, Kde)
        runs = results(cell, self.shelf)
        found = []
        # Runs that end earlier than asked for show their last round instead.
        for round in sorted({min(round, cell.runs[0].rounds) for round in self.figure.rounds} if runs else ()):
            values = pooled(runs, self.figure.metric, self.figure.scale, round)
            if len(values) < len(runs):
                some = f" (in {len(runs) - len(values)} of {len(runs)} runs)" if values else ""
                self.partial.append((f"{prefix}round {round}{some}", head.column.setting))
            if values and len(together := np.concatenate(values)):
                found.append(density(f"{prefix}round {round}", together))
        return found

    @property
    def costs(self) -> list[tuple[str, Mapping[str, float]]]:
        """The label of each curve with the costs of a round."""
        return [(curve.label, curve.numbers) for curve in self.curves]

    def notes(self) -> list[str]:
        """The lines under the figure that say what it shows and what it lacks."""
        everywhere = len(self.table.columns)
        lines = [f"Missing or failed runs: {_grouped(self.missing, everywhere)}."] if self.missing else []
        if self.partial:
            lines.append(f"Not scored, see --evaluate-every: {_grouped(self.partial, everywhere)}.")
        lines.append(f"Paper: {self.table.paper}. Protocol: {self.table.protocol}. Seeds: {ranges(self.seeds)}.")
        if isinstance(self.figure, Scatter):
            lines.append(
                f"The clients of all seeds in up to {self.figure.bins} bins of equally many; mean and standard error "
                "over those in a bin."
            )
        elif isinstance(self.figure, Kde):
            lines.append("Gaussian kernels with Scott's bandwidth, the clients of all seeds together.")
        else:
            kind = "standard error of the mean" if self.table.spread.kind == "sem" else "standard deviation"
            lines.append(f"Mean over seeds; the band is the {kind}.")
        if isinstance(self.figure, Steps) and self.curves:
            measured = f"{COUNTED} Device: {', '.join(sorted(self.devices))}."
            lines += [line for line in (measured, unknown_costs(self.costs)) if line]
        return lines


def _grouped(remarks: Remarks, everywhere: int) -> str:
    """`round 1; FedAvg in A, B`: what, and in which columns unless in all; `everywhere`: how many there are."""
    found: dict[str, dict[str, None]] = {}
    for what, column in remarks:
        found.setdefault(what, {})[column] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for what, columns in found.items():
        alike.setdefault(tuple(columns), []).append(what)
    return "; ".join(
        ", ".join(several) + ("" if len(columns) == everywhere else f" in {', '.join(columns)}")
        for columns, several in alike.items()
    )


def _mixed(table: Expansion, shelf: Shelf) -> list[str]:
    """Warnings of columns whose runs saw different data, or are of different versions of a method."""
    used = runs_used(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    return list(mixtures(table, used).values())
