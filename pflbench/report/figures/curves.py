"""Curves of any stored runs: accuracy or a metric against rounds, steps, gradients, seconds or bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pflbench.commands import command, public_folder
from pflbench.errors import unknown
from pflbench.report.cells import spread_word
from pflbench.report.extra_rows import EXTRA
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.over_seeds import Walk, over_seeds
from pflbench.report.figures.pace import AXES, Axis, counting
from pflbench.report.figures.panels import Drawing, Panel, Series
from pflbench.report.figures.parts import (
    UNEVEN,
    Remarks,
    cells_of,
    comma_list,
    drawn_in,
    facts_of,
    in_a_line,
    in_order,
    in_panels,
    missing,
    mixed,
    not_done,
    remarked,
    remarks_of,
)
from pflbench.report.reading import Shelf, after, by_round
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, ColumnHead, Expansion, Reading

ACCURACY, LOSS = "accuracy", "loss"


def curves(table: Expansion, shelf: Shelf, against: str = "round", metric: str = ACCURACY) -> Drawing:
    """A panel for each column and stage, a line for each row: mean and spread over seeds, after scored rounds.

    `against`: one of `AXES`. `metric`: "accuracy", "loss" (the mean loss on clients' test rows), or what the methods
    report about clients. Each line is of the same seeds all along, see `over_seeds`. Panels with nothing in them, or
    with all of it at one place, are left out.

    Raises:
        UsageError: An axis or metric that is unknown.
    """
    if against not in AXES:
        raise unknown("axis", against, AXES)
    axis, remarks = AXES[against], remarks_of()
    _check_metric(table, shelf, metric)
    table = table if metric in (ACCURACY, LOSS) else _each_run_once(table)
    heads = in_panels(table)
    panels = [
        _with_lines(Panel(title, tuple(_lines(table, head, title, shelf, axis, metric, remarks))), remarks)
        for title, head in heads.items()
    ]
    of_suite = tuple(row for row in table.rows if not row.id.startswith(EXTRA))
    every = tuple(heads.values())
    _, seeds = not_done(table, every, shelf)
    more = (
        f"`{command('run', table.part.options, public_folder(shelf.root))} --evaluate-every {often(table)}` scores more"
    )
    drawn = drawn_in(table, every, panels)
    notes = (
        *mixed(table, shelf),
        *facts("scores", f"Mean over seeds; the band is the {spread_word(table.spread)}."),
        *facts("scores", counting(against, drawn, table.locations)),
        *_facts(remarks, more, list(heads), f"the stored runs do not tell their {against} ({axis.fill})", metric),
        *missing(replace(table, rows=of_suite), every, shelf),
        *facts_of(table, seeds, drawn),
    )
    shown = tuple(panel for panel in panels if panel.series)
    y = "accuracy (%)" if metric == ACCURACY else "test loss" if metric == LOSS else metric
    return Drawing(
        *(table.suite, f"{table.heading}: {metric} against {against}", table.profile, axis.title, y, shown),
        in_a_line(len(shown)),
        notes,
        in_order(table, shown),
    )


def often(table: Expansion) -> int:
    """The `--evaluate-every` that gives a curve about ten points."""
    return max(1, max(column.rounds for column in table.columns) // 10)


def _with_lines(panel: Panel, remarks: Remarks) -> Panel:
    """The panel; without its series, which is a remark, where all of them stand at one place."""
    if len({point.x for series in panel.series for point in series.points}) != 1:
        return panel
    remarks["bare"].append(("", panel.title, ""))
    remarks["once"] = [one for one in remarks["once"] if one[2] != panel.title]
    return replace(panel, series=())


def _facts(remarks: Remarks, more: str, panels: Sequence[str], untold: str, metric: str) -> Iterator[Fact]:
    """Facts on what is left out; `more`: what scores more rounds; `untold`: why rows have no place along the axis."""
    choosing = "Left out, as their clients choose among runs after the last round"
    apart = {"apart": Fact("scores", "A line for each seed, as they have no two rounds in common")}
    yield from remarked(remarks, {"uneven": UNEVEN} | apart, panels)
    if bare := dict.fromkeys(title for _, title, _ in remarks["bare"]):
        only = f"Left out, as all rows are scored after one and the same round alone ({more})"
        yield Fact("left out", f"{only}: {comma_list(bare)}.")
    reasons = {
        "once": Fact("scores", f"Scored after one round alone, so a marker ({more})"),
        "untold": Fact("left out", f"Left out, as {untold}"),
        "without": Fact("left out", f"Left out, as they have no {metric}"),
        "choosing": Fact("left out", choosing),
    }
    yield from remarked(remarks, reasons, panels)


def _lines(
    table: Expansion, head: ColumnHead, where: str, shelf: Shelf, axis: Axis, metric: str, remarks: Remarks
) -> Iterator[Series]:
    for title, cell in cells_of(table, head).items():
        runs = [run for spec in cell.runs if (run := shelf.read(spec))]
        if not runs:
            continue
        if cell.choices:
            remarks["choosing"].append(("", title, where))
            continue
        walks = {run.spec.seed: walk for run in runs if (walk := _walk(run, cell.reading, metric))}
        paces = {run.spec.seed: pace for run in runs if (pace := axis.pace(run)) is not None}
        if not walks:
            remarks["without"].append(("", title, where))
        elif not paces:
            remarks["untold"].append(("", title, where))
        else:
            found = over_seeds(title, walks, table.spread, paces=paces)
            remarks["uneven"] += [(found.left_out, title, where)] if found.left_out else []
            remarks["apart"] += [("", title, where)] if found.apart else []
            remarks["once"] += [("", title, where)] if all(len(one.points) == 1 for one in found.series) else []
            yield from found.series


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
