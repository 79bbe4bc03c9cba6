"""A table read again in other rounds equals the one that is read in them from the start, and shares what is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from table_kit import row

from pflbench.report.html.data import Embedded, Sheet, sheet_data
from pflbench.report.layout import Filled, fill, finished, reread
from pflbench.report.reading import Shelf
from pflbench.result import RunResult, Score
from pflbench.selection import selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Cell, Choice, Expansion, ReadAs, Reading

if TYPE_CHECKING:
    from conftest import Build

OTHERS: tuple[ReadAs, ...] = ("last-10", "best")


def run(spec: RunSpec, *after: float) -> RunResult:
    """Two clients apart; `after` each of the rounds up to the last the accuracy, the earlier ones not scored."""
    rounds = enumerate(after, spec.rounds - len(after) + 1)
    scores = [Score("global", n, 0, c, 0, 10, 0.0, value + c / 100) for n, value in rounds for c in (2, 3)]
    return RunResult(spec, tuple(scores), {"device": "cpu", "data_hash": "d1", "commit": "c"})


@pytest.fixture
def of(build: Build, store: Store) -> Expansion:
    """FedAvg is scored in three rounds, Ditto in the last one, and Local's clients choose between two runs."""
    column = build.table().columns[0]

    def cell(name: str, choices: bool = False) -> Cell:
        runs = tuple(build.spec(seed, name) for seed in (0, 1))
        points = tuple(tuple(Choice(one, one) for one in (run, lower(run))) for run in runs)
        return Cell(row(name, name.title()), column, Reading("global"), runs, choices=points if choices else ())

    cells = cell("fedavg"), cell("ditto"), cell("local", choices=True)
    for seed in (0, 1):
        store.write(run(build.spec(seed), 0.1, 0.7 + seed / 10, 0.3))
        store.write(run(build.spec(seed, "ditto"), 0.4 + seed / 10))
        store.write(run(build.spec(seed, "local"), 0.9, 0.2, 0.5))
        store.write(run(lower(build.spec(seed, "local")), 0.1, 0.3, 0.45))
    return replace(build.table(), rows=tuple(one.row for one in cells), columns=(column,), cells=cells)


def lower(spec: RunSpec) -> RunSpec:
    """The same with another rate."""
    hyper = {**spec.method.hyper, "lr": 0.001}
    return spec.model_copy(update={"method": spec.method.model_copy(update={"hyper": hyper})})


def filled(of: Expansion, store: Store, read_as: ReadAs = "last") -> Filled:
    return fill(of, Shelf(store), requests_of(store), read_as)


@pytest.mark.parametrize("read_as", OTHERS)
def test_it_is_the_table_that_is_read_so_from_the_start(of: Expansion, store: Store, read_as: ReadAs) -> None:
    first = filled(of, store)
    slow, quick = filled(of, store, read_as), reread(first, read_as)
    assert quick.grid == slow.grid != first.grid and quick.fairness == slow.fairness != first.fairness
    assert finished(quick) == finished(slow) and quick.cells == slow.cells
    assert all(quick.against(one) == slow.against(one) for one in ("fedavg", "ditto", "local"))


def test_only_what_is_read_differently_is_made_again(of: Expansion, store: Store) -> None:
    first = filled(of, store)
    for read_as in OTHERS:
        again = reread(first, read_as)
        same = {row for (row, column), done in again.found.items() if done is first.found[row, column]}
        assert same == {"ditto"}


def test_the_page_says_of_each_reading_what_it_says_of_it_alone(of: Expansion, store: Store) -> None:
    part = selection(suites=["fedec-table2"])
    fills: dict[ReadAs, Filled] = {"last": filled(of, store)}
    fills |= {one: reread(fills["last"], one) for one in OTHERS}
    slow: dict[ReadAs, Filled] = {one: filled(of, store, one) for one in fills}
    found = [
        (pool.things, sheet_data(Sheet({a: finished(b) for a, b in some.items()}, part, fills=some), pool))
        for some in (fills, slow)
        for pool in [Embedded()]
    ]
    assert found[0] == found[1]
