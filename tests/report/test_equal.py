"""Rows at equal cost: what each had reached by the time that it had spent what the cheapest row spends in all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from table_kit import row

from pflbench.report.html.data import Embedded, Sheet, sheet_data
from pflbench.report.html.equal import AtEqualCost, at_equal_cost
from pflbench.report.layout import fill, finished
from pflbench.report.reading import Shelf
from pflbench.result import RunResult, Score
from pflbench.selection import selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Cell, Expansion, Reading

if TYPE_CHECKING:
    from conftest import Build

CHEAP = {"client_gradients": 10.0, "bytes_up": 600_000, "bytes_down": 400_000, "client_seconds": 3.0}
DEAR = {"client_gradients": 14.0, "bytes_up": 605_000, "bytes_down": 400_000, "client_seconds": 6.0}


def run(spec: RunSpec, after: tuple[float, ...], **provenance: Any) -> RunResult:
    """Two clients alike; `after` each of the rounds up to the last the accuracy, the earlier ones not scored."""
    first = spec.rounds - len(after) + 1
    scores = [Score("global", n, 0, c, 0, 10, 0.0, value) for n, value in enumerate(after, first) for c in (2, 3)]
    return RunResult(spec, tuple(scores), {"device": "cpu", "data_hash": "d1", "commit": "c", **provenance})


def table(build: Build, *names: str, seeds: int = 2) -> Expansion:
    """A row for each of these methods, all in the first column and scored globally; Local has one round."""
    column = build.table().columns[0]
    cells = [
        Cell(
            row(name, name.title()),
            column,
            Reading("global"),
            tuple(build.spec(seed, name, rounds=1 if name == "local" else 3) for seed in range(seeds)),
        )
        for name in names
    ]
    rows = tuple(cell.row for cell in cells)
    return replace(build.table(), rows=rows, columns=(column,), cells=tuple(cells))


def equal(of: Expansion, store: Store) -> AtEqualCost:
    return at_equal_cost(fill(of, Shelf(store), requests_of(store)))


def test_the_dearer_row_is_read_where_it_had_spent_as_much(build: Build, store: Store) -> None:
    of = table(build, "fedavg", "ditto")
    for seed in (0, 1):
        store.write(run(build.spec(seed), (0.1, 0.2, 0.30 + seed / 10), **CHEAP))
        store.write(run(build.spec(seed, "ditto"), (0.4, 0.50 + seed / 5, 0.9), **DEAR))
    found = equal(of, store)
    at = {row: one for (row, _), one in found.cells["gradients"].items()}
    assert at["fedavg"] == ("35.00 ± 5.00", "3", False), "the cheapest row's whole run"
    assert at["ditto"] == ("60.00 ± 10.00", "2", True), "28 gradients by round 2, of 30"
    (budget,) = found.budgets["gradients"].values()
    assert (budget.most, budget.told) == (30.0, "30 gradients of a client (the whole run of Fedavg)")
    seconds = {row: one.rounds for (row, _), one in found.cells["seconds"].items()}
    assert seconds == {"fedavg": "3", "ditto": "1"}
    assert {one.rounds for one in found.cells["bytes"].values()} == {"3"}, "0.5 % more counts as equal"


def test_rows_that_were_not_scored_by_then_have_no_number(build: Build, store: Store) -> None:
    of = table(build, "fedavg", "ditto", "fedrep", seeds=1)
    store.write(run(build.spec(), (0.3,), **CHEAP))
    store.write(run(build.spec(0, "ditto"), (0.9,), **DEAR))
    assert equal(of, store).cells["gradients"] == {}, "one row alone compares with nothing"
    store.write(run(build.spec(0, "fedrep"), (0.6,), **CHEAP))
    at = {row: one.text for (row, _), one in equal(of, store).cells["gradients"].items()}
    assert at == {"fedavg": "30.00", "fedrep": "60.00"}
    best = {row for (row, _), one in equal(of, store).cells["gradients"].items() if one.best}
    assert best == set(), "Ditto, which has no number here, may be ahead"
    of = table(build, "fedavg", "fedrep", seeds=1)
    assert [row for (row, _), one in equal(of, store).cells["gradients"].items() if one.best] == ["fedrep"]


def test_what_has_one_round_or_costs_nothing_does_not_set_the_cost(build: Build, store: Store) -> None:
    of = table(build, "fedavg", "ditto", "local", seeds=1)
    store.write(run(build.spec(), (0.1, 0.2, 0.3), **CHEAP))
    store.write(run(build.spec(0, "ditto"), (0.4, 0.5, 0.9), **DEAR))
    store.write(run(build.spec(0, "local", rounds=1), (0.7,), **CHEAP | {"bytes_up": 0, "bytes_down": 0}))
    found = equal(of, store)
    for name in ("gradients", "bytes"):
        at = {row: (one.text, one.rounds) for (row, _), one in found.cells[name].items()}
        assert at["fedavg"] == ("30.00", "3") and at["local"] == ("70.00", "1"), name


def test_seconds_of_different_devices_and_unknown_costs_are_not_equal(build: Build, store: Store) -> None:
    of = table(build, "fedavg", "ditto", seeds=1)
    store.write(run(build.spec(), (0.1, 0.2, 0.3), **CHEAP))
    store.write(
        run(build.spec(0, "ditto"), (0.4, 0.5, 0.9), **DEAR | {"device": "cuda", "bytes_up": None, "bytes_down": None})
    )
    found = equal(of, store)
    assert found.cells["gradients"] and not found.cells["seconds"] and not found.cells["bytes"]


@pytest.mark.parametrize("done", [1, 2])
def test_an_unfinished_row_may_be_the_best(build: Build, store: Store, done: int) -> None:
    of = table(build, "fedavg", "ditto")
    for seed in (0, 1):
        store.write(run(build.spec(seed), (0.1, 0.2, 0.3), **CHEAP))
    for seed in range(done):
        store.write(run(build.spec(seed, "ditto"), (0.9, 0.9, 0.9), **DEAR))
    at = {row: one for (row, _), one in equal(of, store).cells["gradients"].items()}
    assert at["ditto"].best and not at["fedavg"].best and at["ditto"].text.endswith("(1/2)") == (done == 1)


def test_the_page_has_them_as_texts_and_the_curves_with_their_paces(build: Build, store: Store) -> None:
    of = table(build, "fedavg", "ditto", seeds=1)
    store.write(run(build.spec(), (0.1, 0.2, 0.3), **CHEAP))
    store.write(run(build.spec(0, "ditto"), (0.4, 0.5, 0.9), **DEAR))
    filled = fill(of, Shelf(store), requests_of(store))
    pool = Embedded()
    found = sheet_data(Sheet({"last": finished(filled)}, selection(), fills={"last": filled}), pool)
    assert found["equal"] == ["gradients", "seconds", "bytes"]
    most, told, short = found["columns"][0][3]["gradients"]
    assert (most, short) == (30.0, "30 gradients") and "the whole run of Fedavg" in pool.things[told]
    cell = found["readings"]["last"]["cells"]["1,0"]
    assert cell["equal"]["gradients"] == ["50.00", "2", 1]
    assert cell["curve"] == [[0, [1, 2, 3], [40.0, 50.0, 90.0]]]
    assert cell["paces"] == {"gradients": [14.0], "seconds": [2.0], "bytes": [1.005]}
