"""Figures of each client of stored runs: distributions of accuracy, and before against after personalization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.errors import unknown
from pflbench.report.cells import read_seeds
from pflbench.report.extra_rows import EXTRA
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.parts import (
    Remarks,
    cells_of,
    drawn_in,
    facts_of,
    in_a_line,
    in_panels,
    missing_facts,
    mixed,
    not_done,
    remarked,
    remarks_of,
    settings,
    unadapted,
)
from pflbench.report.reading import EVERYBODY, Floats, Rounds, Shelf, by_client, scored
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, Expansion

KINDS = ("sorted", "violins")
GAIN, LOSE = "gain (%)", "lose (%)"
"""The shares of clients whose accuracy rises and falls, as the CSV calls them."""
_POOLED = "The clients of all seeds together, each with its own accuracy after the last scored round"
_Clients = Mapping[int, float]
"""Accuracies in percent, by client."""


def distributions(table: Expansion, shelf: Shelf, kind: str = "sorted") -> Drawing:
    """Distribution of accuracy over clients: a panel for each column and stage, a curve or violin for each row.

    `kind`: "sorted", the accuracies of all seeds' clients from the least to the most, over their share; or "violins",
    their densities.

    Raises:
        UsageError: Another kind.
    """
    if kind not in KINDS:
        raise unknown("kind of distribution", kind, KINDS)

    def drawn(cell: Cell) -> Floats:
        found = [_of_clients(one.rounds) for one in read_seeds(cell, shelf)]
        return np.sort([value for clients in found for value in clients.values()])

    panels, remarks = list[Panel](), remarks_of()
    heads = in_panels(table)
    for where, head in heads.items():
        found: dict[str, Floats] = {}
        for title, cell in cells_of(table, head).items():
            if len(values := drawn(cell)):
                found[title] = values
            elif any(shelf.read(run) for run in cell.runs):
                remarks["on test"].append(("", title, where))
        shown = (_sorted(found), ()) if kind == "sorted" else (_violins(found), tuple(found))
        panels.append(Panel(where, *shown))
    how = f"{_POOLED} (the mean over those that the table reads)."
    x = "clients, from the worst (%)" if kind == "sorted" else ""
    on_test = {"on test": Fact("left out", "Left out, as one score on the whole test set is no client's")}
    left = remarked(remarks, on_test, list(heads))
    places = drawn_in(table, heads.values(), panels)
    return _drawing(
        table, shelf, "accuracy of each client", (x, "accuracy (%)"), panels, (*facts("scores", how), *left), places
    )


def before_after(table: Expansion, shelf: Shelf) -> Drawing:
    """Each client's accuracy after personalization against that before: a panel for each column, dots for each row.

    Of a row at the stage "finetuned" it is before the first fine-tuning step and after the last; of one at
    "personalized", the global model's on the same client, and its own one's.
    """
    panels, left, drawn = list[Panel](), remarks_of(), list[Cell]()
    shares: dict[str, list[float]] = {}
    for column in table.columns:
        series, of_series = list[Series](), list[Cell]()
        here = [
            (row.title, cell)
            for row in table.rows
            for cell in table.cells
            if (cell.row.id, cell.column.id) == (row.id, column.id)
        ]
        for title, cell in here:
            if cell.stage not in _BEFORE:
                continue
            runs = [run for spec in cell.runs if (run := shelf.read(spec))]
            pairs = [] if cell.choices else [pair for run in runs for pair in _BEFORE[cell.stage](run, cell)]
            if pairs:
                series.append(_dots(title, pairs))
                of_series.append(cell)
                shares.setdefault(title, []).append(series[-1].numbers[GAIN])
            elif runs:
                left[_reason(cell, runs)].append(("", title, cell.column.setting))
        left["one model"] += _of_one_model(here, of_series, column.setting, left, shelf)
        drawn += of_series
        panels.append(Panel(column.setting, tuple(series), square=True))
    axes = "accuracy before (%)", "accuracy after (%)"
    how = (
        f"{_POOLED}: before and after fine-tuning, or of the global model and the client's own. In the legend, the "
        "share of clients that gain; those as accurate as before do not."
    )
    notes = (*facts("scores", how, unadapted(drawn, table.locations)), *remarked(left, _LEFT_OUT, settings(table)))
    drawing = _drawing(table, shelf, "before against after personalization", axes, panels, notes, drawn)
    return replace(drawing, beside={label: f"{_span(several)} % gain" for label, several in shares.items()})


_LEFT_OUT = {
    "choosing": Fact("left out", "Left out, as their clients choose among runs"),
    "on test": Fact(
        "left out",
        "Left out, as their global model is scored on the whole test set, not on each client, so there is no before",
    ),
    "no global": Fact("left out", "Left out, as their runs have no scores of a global model, so there is no before"),
    "one model": Fact("left out", "Left out, as they are shown before personalization alone"),
}
"""Reasons for rows without a before and an after."""


def _reason(cell: Cell, runs: Iterable[RunResult]) -> str:
    """Reason that a row is left out that is personalized, and of which these runs are done."""
    scored = {score.stage for run in runs for score in run.scores}
    return "choosing" if cell.choices else "on test" if "global" in scored else "no global"


def _of_one_model(
    here: Iterable[tuple[str, Cell]], drawn: Iterable[Cell], column: str, left: Remarks, shelf: Shelf
) -> list[tuple[str, str, str]]:
    """Remarks on rows of a column of whose runs no model is personalized; `left`: other rows that are left out."""
    runs = {run.id for cell in drawn for run in cell.runs}
    shown = {cell.row.title for cell in drawn}
    shown |= {title for several in left.values() for _, title, where in several if where == column}
    found = []
    for title, cell in here:
        done = [run.id for run in cell.runs if shelf.read(run)]
        if done and title not in shown and runs.isdisjoint(done):
            found.append(("", title, column))
    return found


def _span(values: Sequence[float]) -> str:
    """The least and the most, once if they read the same."""
    return "–".join(dict.fromkeys(f"{value:.0f}" for value in (min(values), max(values))))


def _fine_tuning(run: RunResult, cell: Cell) -> list[tuple[float, float]]:
    first, last = (_of_clients(scored(run, replace(cell.reading, steps=steps))) for steps in ((0,), None))
    return _paired(first, last)


def _personal(run: RunResult, cell: Cell) -> list[tuple[float, float]]:
    if not any(score.stage == "global" and score.client != EVERYBODY for score in run.scores):
        return []
    return _paired(*(_of_clients(scored(run, replace(cell.reading, stage=s))) for s in ("global", "personalized")))


_BEFORE: Mapping[str, Callable[[RunResult, Cell], list[tuple[float, float]]]] = {
    "finetuned": _fine_tuning,
    "personalized": _personal,
}
"""Readers of each client's accuracies before and after, by the stage that a cell shows."""


def _paired(before: _Clients, after: _Clients) -> list[tuple[float, float]]:
    return [(before[client], after[client]) for client in before if client in after]


def _of_clients(rounds: Rounds) -> _Clients:
    """Each client's mean over the rounds and steps that are read; none where there is one score for all."""
    found = by_client(rounds)
    values = 100 * found.values.mean(axis=0)
    return {client: float(v) for client, v in zip(found.clients, values, strict=True) if client != EVERYBODY}


def _sorted(found: Mapping[str, Floats]) -> tuple[Series, ...]:
    series = []
    for title, values in found.items():
        shares = 100 * (np.arange(len(values)) + 0.5) / len(values)
        points = tuple(Point(float(x), float(y), None, 1) for x, y in zip(shares, values, strict=True))
        series.append(Series(title, "line", points, row=title))
    return tuple(series)


def _violins(found: Mapping[str, Floats]) -> tuple[Series, ...]:
    return tuple(
        Series(title, "violin", tuple(Point(float(place), float(y), None, 1) for y in values), row=title)
        for place, (title, values) in enumerate(found.items())
    )


def _dots(title: str, pairs: Iterable[tuple[float, float]]) -> Series:
    before, after = np.array(list(pairs)).T
    shares = {GAIN: 100 * float((after > before).mean()), LOSE: 100 * float((after < before).mean())}
    points = tuple(Point(float(x), float(y), None, 1) for x, y in zip(before, after, strict=True))
    return Series(title, "dots", points, numbers=shares, row=title)


def _drawing(
    table: Expansion,
    shelf: Shelf,
    what: str,
    axes: tuple[str, str],
    panels: Iterable[Panel],
    told: Iterable[Fact],
    drawn: Iterable[Cell],
) -> Drawing:
    """`told`: how the picture is read, and what is left out."""
    shown = tuple(panel for panel in panels if panel.series)
    of_suite = tuple(row for row in table.rows if not row.id.startswith(EXTRA))
    _, seeds = not_done(replace(table, rows=of_suite), table.heads, shelf)
    notes = (
        *mixed(table, shelf),
        *told,
        *missing_facts(replace(table, rows=of_suite), table.heads, shelf),
        *facts_of(table, seeds, drawn),
    )
    return Drawing(
        *(table.suite, f"{table.heading}: {what}", table.profile, *axes, shown, in_a_line(len(shown))),
        notes,
        tuple(row.title for row in table.rows),
    )
