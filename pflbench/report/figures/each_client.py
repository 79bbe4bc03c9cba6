"""What stored runs say of each client: distributions of accuracy, and before against after personalization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.errors import unknown
from pflbench.report.cells import read
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.parts import Remarks, cells_of, in_a_line, listed, mixed, not_done
from pflbench.report.reading import EVERYBODY, Floats, Rounds, Shelf, by_client, scored
from pflbench.report.text import ranges
from pflbench.report.unlisted import EXTRA
from pflbench.result import RunResult
from pflbench.suite.cells import Cell, ColumnHead, Expansion

KINDS = ("sorted", "violins")
GAIN, LOSE = "gain (%)", "lose (%)"
"""The shares of clients whose accuracy rises and falls, as the CSV calls them."""
_POOLED = "The clients of all seeds together, each with its own accuracy after the last scored round"
_Clients = Mapping[int, float]
"""Accuracies in percent, by client."""


def distributions(table: Expansion, shelf: Shelf, kind: str = "sorted") -> Drawing:
    """How accurate the models are for each client: a panel for each column and stage, a curve or violin for each row.

    `kind`: "sorted", the accuracies of all seeds' clients from the least to the most, over their share; or "violins",
    their densities.

    Raises:
        UsageError: Another kind.
    """
    if kind not in KINDS:
        raise unknown("kind of distribution", kind, KINDS)

    def drawn(cell: Cell) -> Floats:
        found = [_of_clients(one.rounds) for one in read(cell, shelf)]
        return np.sort([value for clients in found for value in clients.values()])

    panels, without = list[Panel](), Remarks()
    for head in _heads(table):
        found: dict[str, Floats] = {}
        for title, cell in cells_of(table, head).items():
            if len(values := drawn(cell)):
                found[title] = values
            elif any(shelf.read(run) for run in cell.runs):
                without.append((title, head.column.setting))
        shown = (_sorted(found), ()) if kind == "sorted" else (_violins(found), tuple(found))
        panels.append(Panel(_title(table, head), *shown))
    how = f"{_POOLED} (the mean over those that the table reads)."
    x = "clients, from the worst (%)" if kind == "sorted" else ""
    return _drawing(table, shelf, "accuracy of each client", (x, "accuracy (%)"), panels, without, how)


def before_after(table: Expansion, shelf: Shelf) -> Drawing:
    """Each client's accuracy after personalization against that before: a panel for each column, dots for each row.

    Of a row at the stage "finetuned" it is before the first fine-tuning step and after the last; of one at
    "personalized", the global model's on the same client, and its own one's.
    """
    panels, without = list[Panel](), Remarks()
    shares: dict[str, list[float]] = {}
    for column in table.columns:
        series = []
        here = [
            (row.title, cell)
            for row in table.rows
            for cell in table.cells
            if (cell.row.id, cell.column.id) == (row.id, column.id)
        ]
        for title, cell in here:
            if cell.choices or cell.stage not in _BEFORE:
                continue
            runs = [run for spec in cell.runs if (run := shelf.read(spec))]
            pairs = [pair for run in runs for pair in _BEFORE[cell.stage](run, cell)]
            if pairs:
                series.append(_dots(title, pairs))
                shares.setdefault(title, []).append(series[-1].numbers[GAIN])
            elif runs:
                without.append((title, column.setting))
        panels.append(Panel(column.setting, tuple(series), square=True))
    axes = "accuracy before (%)", "accuracy after (%)"
    how = (
        f"{_POOLED}: before and after fine-tuning, or of the global model and the client's own. In the legend, the "
        "share of clients that gain; those as accurate as before do not."
    )
    drawing = _drawing(table, shelf, "before against after personalization", axes, panels, without, how)
    return replace(drawing, beside={label: f"{_span(several)} % gain" for label, several in shares.items()})


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
"""How each client's accuracies before and after are read, by the stage that a cell shows."""


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
        series.append(Series(title, "line", points))
    return tuple(series)


def _violins(found: Mapping[str, Floats]) -> tuple[Series, ...]:
    return tuple(
        Series(title, "violin", tuple(Point(float(place), float(y), None, 1) for y in values))
        for place, (title, values) in enumerate(found.items())
    )


def _dots(title: str, pairs: Iterable[tuple[float, float]]) -> Series:
    before, after = np.array(list(pairs)).T
    shares = {GAIN: 100 * float((after > before).mean()), LOSE: 100 * float((after < before).mean())}
    points = tuple(Point(float(x), float(y), None, 1) for x, y in zip(before, after, strict=True))
    return Series(title, "dots", points, numbers=shares)


def _heads(table: Expansion) -> list[ColumnHead]:
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    return sorted(table.heads, key=lambda head: stages.index(head.stage))


def _title(table: Expansion, head: ColumnHead) -> str:
    return head.name if len({one.stage for one in table.heads}) > 1 else head.column.setting


def _drawing(
    table: Expansion,
    shelf: Shelf,
    what: str,
    axes: tuple[str, str],
    panels: Iterable[Panel],
    without: Remarks,
    how: str,
) -> Drawing:
    shown = tuple(panel for panel in panels if panel.series)
    of_suite = tuple(row for row in table.rows if not row.id.startswith(EXTRA))
    lacking, seeds = not_done(replace(table, rows=of_suite), table.heads, shelf)
    notes = (
        *mixed(table, shelf),
        listed("Missing or failed runs", lacking, table),
        listed("Left out, as they have no such scores for each client", without, table),
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        how,
        *table.notes,
    )
    return Drawing(
        *(table.suite, f"{table.heading}: {what}", table.profile, *axes, shown, in_a_line(len(shown))),
        tuple(filter(None, notes)),
        tuple(row.title for row in table.rows),
    )
