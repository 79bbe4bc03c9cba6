"""How a cell's number is spread over its clients: the worst tenth, the deviation, the smallest, training and held-out."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pflbench.data.federation import split_clients
from pflbench.report.fairness import worst_tenth
from pflbench.report.layout import lay_out
from pflbench.report.render import CSV_COLUMNS, OVER_CLIENTS_COLUMNS, render
from pflbench.report.table import Fairness, Table
from pflbench.result import Metric, Score
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion

if TYPE_CHECKING:
    from conftest import Build

CLIENTS = 30
"""Of which 24 train."""


def accuracies(seed: int) -> list[float]:
    """A share for each client, none like another."""
    return np.random.default_rng([7, seed]).uniform(0.2, 0.9, CLIENTS).round(3).tolist()


def sizes(seed: int) -> list[int]:
    """Support images of each client; several have equally many."""
    return np.random.default_rng([8, seed]).integers(5, 12, CLIENTS).tolist()


@pytest.fixture
def table(build: Build, store: Store) -> Expansion:
    """One cell with two seeds, all of whose clients are scored after the last round."""
    given = build.table(seeds=2)
    cell = given.places["fedavg", "digits-a"]
    runs = tuple(whole(run) for run in cell.runs)
    for run in runs:
        write(build, store, run)
    return replace(given, cells=(replace(cell, runs=runs),))


def whole(run: RunSpec) -> RunSpec:
    scoring = run.scoring.model_copy(update={"clients": "all"})
    return run.model_copy(update={"clients": CLIENTS, "training_clients": 24, "scoring": scoring})


def write(build: Build, store: Store, run: RunSpec, *, sized: bool = True) -> None:
    scores = tuple(
        Score("global", run.rounds, 0, client, 0, 10 + client, 0.0, share)
        for client, share in enumerate(accuracies(run.seed))
    )
    metrics = tuple(Metric(0, client, "support", float(n)) for client, n in enumerate(sizes(run.seed)) if sized)
    store.write(replace(build.result(run, 0.5), scores=scores, metrics=metrics))


def of(table: Table) -> Fairness:
    assert table.fairness is not None
    return table.fairness["fedavg", "digits-a"]


def test_each_number_is_a_slow_counting_of_the_scores(store: Store, table: Expansion) -> None:
    found = of(lay_out(table, store, over_clients=True))
    expected: dict[str, list[float]] = {
        name: [] for name in ("mean", "worst", "spread", "smallest", "training", "held")
    }
    for seed in (0, 1):
        percents = [100 * share for share in accuracies(seed)]
        trains = split_clients(CLIENTS, 24, seed)
        by_size = sorted(range(CLIENTS), key=lambda client: (sizes(seed)[client], client))
        expected["mean"].append(statistics.fmean(percents))
        expected["worst"].append(statistics.fmean(sorted(percents)[:3]))
        expected["spread"].append(statistics.pstdev(percents))
        expected["smallest"].append(statistics.fmean(percents[client] for client in by_size[:3]))
        expected["training"].append(statistics.fmean(p for p, there in zip(percents, trains, strict=True) if there))
        expected["held"].append(statistics.fmean(p for p, there in zip(percents, trains, strict=True) if not there))
    means = {name: statistics.fmean(values) for name, values in expected.items()}
    assert (found.seeds, found.clients) == (2, (CLIENTS, CLIENTS))
    assert [found.mean, found.worst, found.spread] == pytest.approx([means["mean"], means["worst"], means["spread"]])
    assert [found.smallest, found.training, found.held_out] == pytest.approx(
        [means["smallest"], means["training"], means["held"]]
    )
    stds = [statistics.stdev(expected[name]) for name in ("worst", "spread")]
    assert [found.worst_std, found.spread_std] == pytest.approx(stds)


def test_of_fewer_than_ten_clients_one_is_the_worst_tenth() -> None:
    clients = np.arange(20.0)
    assert (worst_tenth(clients), worst_tenth(clients[:9])) == (0.5, 0.0)


def test_it_stands_in_every_format_as_a_mean_and_a_standard_deviation(store: Store, table: Expansion) -> None:
    made = lay_out(table, store, over_clients=True)
    found = of(made)
    for format in ("terminal", "markdown", "latex"):
        text = render(made, format, width=200, color=False)  # type: ignore[arg-type]
        assert "ver clients" in text and f"{found.worst:.2f}" in text and "Held-out" in text
        assert f"{found.worst:.2f} (" not in text and f"{found.worst_std:.2f}" in text
    header, line = csv.reader(io.StringIO(render(made, "csv")))
    assert tuple(header) == (*CSV_COLUMNS, *OVER_CLIENTS_COLUMNS)
    told = dict(zip(header, line, strict=True))
    assert float(told["worst_tenth_std"]) == pytest.approx(found.worst_std)
    assert float(told["worst_tenth"]) == pytest.approx(found.worst) and told["clients_scored"] == str(CLIENTS)
    assert "Over clients" not in render(lay_out(table, store), "markdown")


def test_what_was_not_scored_has_no_number(build: Build, store: Store, table: Expansion) -> None:
    """The client's sizes are not stored, one group is scored, there is one seed."""
    (cell,) = table.cells
    run = build.spec(0)
    store.write(build.result(run, 0.4))  # of the clients 2 and 3, with 30 % and 50 %
    found = of(lay_out(replace(table, cells=(replace(cell, runs=(run,)),)), store, over_clients=True))
    assert (found.seeds, found.clients, found.smallest, found.worst_std) == (1, (2, 2), None, None)
    assert (found.mean, found.worst, found.spread) == pytest.approx((40, 30, 10))
    trains = split_clients(run.clients, run.training_clients, run.seed)
    assert (found.training is None) == (trains[2] == trains[3])


def test_scores_on_the_test_set_are_of_no_client(build: Build, store: Store, table: Expansion) -> None:
    cell: Cell
    (cell,) = table.cells
    run = build.spec(3)
    store.write(replace(build.result(run, 0.4), scores=(Score("global", run.rounds, 0, -1, 0, 10, 0.0, 0.4),)))
    made = lay_out(replace(table, cells=(replace(cell, runs=(run,)),)), store, over_clients=True)
    assert made.fairness == {} and "No cell's clients were scored one by one." in render(made, "markdown")
