"""Figure of the clients of stored runs: distributions of accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pflbench.report.cells import read_seeds
from pflbench.report.extra_rows import EXTRA
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.parts import (
    cells_of,
    drawn_in,
    facts_of,
    in_a_line,
    in_panels,
    least_to_most,
    missing_facts,
    mixed,
    not_done,
    remarked,
    remarks_of,
)
from pflbench.report.reading import EVERYBODY, Floats, Rounds, Shelf, by_client
from pflbench.suite.cells import Expansion

_READING = "Accuracy of each client after the last scored round, or its mean over the rounds that the table reads."


def distributions(table: Expansion, shelf: Shelf) -> Drawing:
    """Distribution of accuracy over clients: a panel for each column and stage, a curve for each row.

    A curve has the accuracies of all seeds' clients from the least to the most, over their share.
    """
    panels, remarks = list[Panel](), remarks_of()
    pooled: list[tuple[int, int]] = []  # the numbers of clients and of seeds behind each curve
    heads = in_panels(table)
    for where, head in heads.items():
        found: dict[str, Floats] = {}
        for title, cell in cells_of(table, head).items():
            clients = [_of_clients(one.rounds) for one in read_seeds(cell, shelf)]
            if values := [value for of_seed in clients for value in of_seed.values()]:
                found[title] = np.sort(values)
                pooled.append((len(values), len(clients)))
            elif any(shelf.read(run) for run in cell.runs):
                remarks["on test"].append(("", title, where))
        panels.append(Panel(where, _sorted(found)))
    on_test = {"on test": Fact("left out", "Left out, as one score on the whole test set is no client's")}
    of_suite = replace(table, rows=tuple(row for row in table.rows if not row.id.startswith(EXTRA)))
    _, seeds = not_done(of_suite, table.heads, shelf)
    notes = (
        *mixed(table, shelf),
        *facts("spread", _number_of(pooled)),
        *facts("scores", _READING),
        *remarked(remarks, on_test, list(heads)),
        *missing_facts(of_suite, table.heads, shelf),
        *facts_of(table, seeds, drawn_in(table, heads.values(), panels)),
    )
    several = tuple(panel for panel in panels if panel.series)
    return Drawing(
        *(
            table.suite,
            f"{table.heading}: accuracy of each client",
            table.profile,
            "clients, from the worst (%)",
            "accuracy (%)",
            several,
        ),
        in_a_line(len(several)),
        notes,
        tuple(row.title for row in table.rows),
    )


def _number_of(pooled: Sequence[tuple[int, int]]) -> str:
    """Sentence on the numbers of clients and of seeds behind the curves; empty without curves."""
    if not pooled:
        return ""
    clients, seeds = (least_to_most(numbers) for numbers in zip(*pooled, strict=True))
    return f"n = {clients} clients of {seeds} seed{'' if seeds == '1' else 's'}, pooled."


def _of_clients(rounds: Rounds) -> dict[int, float]:
    """Each client's mean over the rounds and steps that are read; none where there is one score for all."""
    found = by_client(rounds)
    values = 100 * found.values.mean(axis=0)
    return {client: float(v) for client, v in zip(found.clients, values, strict=True) if client != EVERYBODY}


def _sorted(found: Mapping[str, Floats]) -> tuple[Series, ...]:
    series = []
    for title, values in found.items():
        shares = 100 * (np.arange(len(values)) + 0.5) / len(values)
        points = tuple(Point(float(x), float(y)) for x, y in zip(shares, values, strict=True))
        series.append(Series(title, "line", points, row=title))
    return tuple(series)
