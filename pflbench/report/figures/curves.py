"""Curves of any stored runs: accuracy or a metric against rounds, steps, gradients, seconds or bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pflbench.errors import unknown
from pflbench.report.cells import spread_word
from pflbench.report.figures.pace import AXES, Axis
from pflbench.report.figures.panels import Drawing, Panel, Series
from pflbench.report.figures.parts import (
    Remarks,
    Walk,
    cells_of,
    in_a_line,
    line,
    listed,
    mixed,
    not_done,
    unevenly_scored,
)
from pflbench.report.reading import Shelf, after, by_round
from pflbench.report.text import ranges
from pflbench.report.unlisted import EXTRA
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, ColumnHead, Expansion, Reading

ACCURACY, LOSS = "accuracy", "loss"
_MEANING = (
    "Local steps, gradients and bytes are those of a client that takes part in every round, on average; seconds are as "
    "measured, evenly divided among the rounds."
)


def curves(table: Expansion, shelf: Shelf, against: str = "round", metric: str = ACCURACY) -> Drawing:
    """A panel for each column and stage, a line for each row: mean and spread over seeds, at every scored round.

    `against`: one of `AXES`. `metric`: "accuracy", "loss" (the mean loss on clients' test rows), or what the methods
    report about clients. Panels without a line are left out.

    Raises:
        UsageError: An axis or metric that is unknown.
    """
    if against not in AXES:
        raise unknown("axis", against, AXES)
    axis, remarks = AXES[against], _Remarks()
    _check_metric(table, shelf, metric)
    table = table if metric in (ACCURACY, LOSS) else _each_run_once(table)
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    heads = sorted(table.heads, key=lambda head: stages.index(head.stage))
    panels = []
    for head in heads:
        title = head.name if len(stages) > 1 else head.column.setting
        panels.append(Panel(title, tuple(_lines(table, head, shelf, axis, metric, remarks))))
    of_suite = tuple(row for row in table.rows if not row.id.startswith(EXTRA))
    lacking, _ = not_done(replace(table, rows=of_suite), heads, shelf)
    _, seeds = not_done(table, heads, shelf)
    again = f"pflbench run{table.part.options}"
    notes = (
        *mixed(table, shelf),
        listed("Missing or failed runs", lacking, table),
        listed(f"Not scored, which `{again} --evaluate-every {often(table)}` does", remarks.scored, table),
        listed(f"Left out, as the stored runs do not tell their {against} ({axis.fill})", remarks.untold, table),
        listed(f"Left out, as they have no {metric}", remarks.without, table),
        listed("Left out, as their clients choose among runs after the last round", remarks.choosing, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        f"Mean over seeds; the band is the {spread_word(table.spread)}.",
        "" if against == "round" else _MEANING,
        *table.notes,
    )
    shown = tuple(panel for panel in panels if panel.series)
    y = "accuracy (%)" if metric == ACCURACY else "test loss" if metric == LOSS else metric
    return Drawing(
        *(table.suite, f"{table.heading}: {metric} against {against}", table.profile, axis.title, y, shown),
        in_a_line(len(shown)),
        tuple(filter(None, notes)),
        tuple(row.title for row in table.rows),
    )


def often(table: Expansion) -> int:
    """The `--evaluate-every` that gives a curve about ten points."""
    return max(1, max(column.rounds for column in table.columns) // 10)


class _Remarks:
    """What cannot be drawn, and why."""

    def __init__(self) -> None:
        self.scored: Remarks = []
        self.untold: Remarks = []
        self.without: Remarks = []
        self.choosing: Remarks = []


def _lines(
    table: Expansion, head: ColumnHead, shelf: Shelf, axis: Axis, metric: str, remarks: _Remarks
) -> Iterator[Series]:
    where = head.column.setting
    for title, cell in cells_of(table, head).items():
        runs = [run for spec in cell.runs if (run := shelf.read(spec))]
        if not runs:
            continue
        if cell.choices:
            remarks.choosing.append((title, where))
            continue
        walks = [walk for run in runs if (walk := _walk(run, cell.reading, metric))]
        paces = [pace for run in runs if (pace := axis.pace(run)) is not None]
        if not walks:
            remarks.without.append((title, where))
        elif not paces:
            remarks.untold.append((title, where))
        else:
            remarks.scored += [(what, where) for what in unevenly_scored(title, walks)]
            yield line(title, walks, table.spread, {}, float(np.mean(paces)))


def _walk(run: RunResult, reading: Reading, metric: str) -> Walk:
    """A run's numbers, by the rounds that it was scored in."""
    if metric == ACCURACY:
        return by_round(run, reading)
    if metric == LOSS:
        return _losses(run, reading)
    found: dict[int, list[float]] = {}
    for one in run.metrics:
        if one.name == metric and np.isfinite(one.value):
            found.setdefault(one.round, []).append(one.value)
    return {round: float(np.mean(values)) for round, values in sorted(found.items())}


def _losses(run: RunResult, reading: Reading) -> Walk:
    """The mean over clients of each one's mean loss, over the fine-tuning steps that are read."""
    found: dict[int, list[float]] = {}
    for round in sorted({score.round for score in run.scores if score.stage == reading.stage}):
        steps = after(run, reading, round).steps
        for score in run.scores:
            if (score.stage, score.round) == (reading.stage, round) and score.step in steps and score.count:
                found.setdefault(round, []).append(score.loss_sum / score.count)
    return {round: float(np.mean(values)) for round, values in found.items()}


def _check_metric(table: Expansion, shelf: Shelf, metric: str) -> None:
    if metric in (ACCURACY, LOSS):
        return
    runs = [run for cell in table.cells for spec in cell.runs if (run := shelf.read(spec))]
    known = {one.name for run in runs for one in run.metrics if "/" not in one.name}
    if runs and metric not in known:
        raise unknown("metric of these runs", metric, {ACCURACY, LOSS, *known})


def _each_run_once(table: Expansion) -> Expansion:
    """Metrics are of runs, whatever stages and rows show these: the first row that does, in one panel for a column."""
    kept: dict[tuple[str, ...], Cell] = {}
    for cell in table.cells:
        kept.setdefault((cell.column.id, *(run.id for run in cell.runs)), cell)
    rows = {cell.row.id for cell in kept.values()}
    left = tuple(row for row in table.rows if row.id in rows)
    return replace(table, cells=tuple(kept.values()), rows=left, stages={})
