"""Curves of any stored runs: accuracy or a metric against rounds, steps, gradients, seconds or bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pflbench.catalog import shipped_method
from pflbench.commands import command, public_folder
from pflbench.errors import unknown
from pflbench.report.cells import spread_word
from pflbench.report.extra_rows import EXTRA
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import Drawing, Panel, Series
from pflbench.report.figures.parts import (
    UNEVEN,
    Remarks,
    Walk,
    cells_of,
    comma_list,
    drawn_in,
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
)
from pflbench.report.reading import EVERYBODY, Shelf, after, by_round
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store.columns import metrics_of
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
        *facts("spread", f"Mean over seeds; the band is the {spread_word(table.spread)}."),
        *facts("scores", axis_note(against, drawn)),
        *_facts(remarks, more, list(heads), f"the stored runs do not tell their {against} ({axis.fill})", metric),
        *missing_facts(replace(table, rows=of_suite), every, shelf),
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


MEGA = 1e6


class Axis(NamedTuple):
    """Axis of curves: its name, and its amount in a round of a run (None: the run does not tell).

    `fill`: what to do where a run does not tell.
    """

    title: str
    pace: Callable[[RunResult], float | None]
    fill: str = ""


def gradients(run: RunResult) -> float | None:
    """Minibatch gradients that a client which takes part is asked for in a round, on average."""
    return run.provenance.get("client_gradients")


def seconds_per_round(run: RunResult) -> float | None:
    """Measured seconds of training and scoring clients, over the rounds."""
    told = run.provenance.get("client_seconds")
    return None if told is None else float(told) / run.spec.rounds


def megabytes(run: RunResult) -> float | None:
    """Megabytes that a client of a round's cohort sends and receives."""
    told = [run.provenance.get(key) for key in ("bytes_up", "bytes_down")]
    return None if told == [None, None] else sum(one for one in told if one is not None) / MEGA


def local_steps(run: RunResult) -> float | None:
    """Minibatches that a client trains on in a round, by the method's hyperparameters.

    Where these are epochs, the mean over the clients whose numbers of support rows the run tells.
    """
    hyper, found = run.spec.method.hyper, list[float]()
    for part in ("", "head_", "base_"):
        steps, epochs = hyper.get(f"{part}steps"), hyper.get(f"{part}epochs")
        if steps is not None:
            found.append(steps)
        elif epochs is not None:
            passed = _minibatches(run)
            if passed is None:
                return None
            found.append(epochs * passed)
    return sum(found) if found else None


def _minibatches(run: RunResult) -> float | None:
    """Of one pass over a client's support rows, on average; None where the run does not tell clients' numbers."""
    sizes = [size for client, size in metrics_of(run.metrics).named("support", 0).items() if client != EVERYBODY]
    return float(np.mean([_in_a_pass(run.spec, size) for size in sizes])) if sizes else None


def _in_a_pass(spec: RunSpec, rows: float) -> int:
    batch = spec.method.hyper.get("batch") or spec.batch
    return max(1, math.ceil(rows / batch) if spec.keeps_tail else int(rows // batch))


_COUNTED = "`pflbench run --redo always` counts it"
AXES: Mapping[str, Axis] = {
    "round": Axis("round", lambda run: 1.0),
    "steps": Axis(
        "local steps of a client",
        local_steps,
        "their local updates are counted in epochs, and they do not tell how many images clients have: --against "
        "gradients has what these cost",
    ),
    "gradients": Axis("minibatch gradients of a client", gradients, _COUNTED),
    "seconds": Axis(
        "seconds of training and scoring, all clients", seconds_per_round, "`pflbench run --redo always` measures it"
    ),
    "bytes": Axis("megabytes up and down, a client", megabytes, _COUNTED),
}
"""By what `--against` calls them."""


def axis_note(against: str, cells: Iterable[Cell]) -> str:
    """Sentences on the unit of the axis; `cells`: those that are drawn."""
    if against == "seconds":
        return "Seconds are as measured of all clients together, evenly divided among the rounds."
    if against == "bytes":
        return "Bytes are those of a client that takes part in every round and whose upload arrives, on average."
    if against == "steps":
        return "Local steps are those of a client that takes part in every round, on average, by the hyperparameters."
    return _GRADIENTS + _expected(cells) if against == "gradients" else ""


_GRADIENTS = (
    "A round counts the minibatch gradients of one local update: the mean over all local updates that a run makes (a "
    "forward pass counts 1/3, a Hessian-vector product 3)."
)


def _expected(cells: Iterable[Cell]) -> str:
    """Whose local updates those are where uploads get lost: all clients', or those of which the upload arrives."""
    lossy = [(cell, _trains_all(cell.runs[0])) for cell in cells if cell.runs[0].arrival < 1]
    everyone, arriving = (
        comma_list(dict.fromkeys(cell.row.title for cell, all_ in lossy if all_ is which)) for which in (True, False)
    )
    said = (
        f" {everyone}: minibatch gradients of all clients, expected: every client that is asked trains, and what only "
        "its upload needs is counted where that arrives."
        if everyone
        else ""
    )
    return said + (f" {arriving}: only clients whose upload arrives train, and only they count." if arriving else "")


def _trains_all(run: RunSpec) -> bool:
    """True if a built-in method declares that clients train though their upload does not arrive."""
    method = shipped_method(run.method.name)
    return method is not None and method.commits == "trained"
