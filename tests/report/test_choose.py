from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_kit import with_cells

from pflbench.errors import PflbenchError
from pflbench.report.cells import choose_points
from pflbench.report.layout import lay_out
from pflbench.report.reading import Rounds, Scored
from pflbench.report.render import render
from pflbench.report.table import CellValue, Table
from pflbench.report.text import cell as text
from pflbench.store import Store
from pflbench.suite.cells import Choice, Expansion

if TYPE_CHECKING:
    from conftest import Personal

RATES = (0.1, 0.2)
TESTS = {0.1: [0.2, 0.9], 0.2: [0.6, 0.5]}


def points(*values: Sequence[Sequence[float]]) -> list[Rounds]:
    """One round of each, `values[point][step][client]`."""
    return [(Scored(tuple(range(len(one[0]))), np.array(one), np.full(len(one[0]), 10.0)),) for one in values]


def test_each_client_has_its_own_point() -> None:
    tests = points([[0.1, 0.2, 0.3]], [[0.4, 0.5, 0.6]])
    by = points([[1.0, 0.5, 0.0]], [[0.9, 0.5, 0.1]])  # client 1: a tie, hence the first point
    (chosen,) = choose_points(tests, by)
    assert chosen.values.tolist() == [[0.1, 0.2, 0.6]]


def test_steps_are_chosen_by_their_mean() -> None:
    tests = points([[0.1], [0.2]], [[0.3], [0.4]])
    by = points([[1.0], [0.0]], [[0.4], [0.7]])
    (chosen,) = choose_points(tests, by)
    assert chosen.values.tolist() == [[0.3], [0.4]]


def test_rounds_are_chosen_by_their_mean_and_kept_apart() -> None:
    tests = [points([[0.1, 0.1]])[0] + points([[0.2, 0.2]])[0], points([[0.5, 0.5]])[0] + points([[0.7, 0.7]])[0]]
    # The second point is better for client 0 in the first round alone, for client 1 on the whole.
    by = [points([[0.3, 0.3]])[0] + points([[0.9, 0.1]])[0], points([[0.5, 0.5]])[0] + points([[0.1, 0.0]])[0]]
    assert [one.values.tolist() for one in choose_points(tests, by)] == [[[0.1, 0.5]], [[0.2, 0.7]]]


def test_rounds_that_score_others_cannot_be_chosen_from() -> None:
    fickle = points([[0.1, 0.2]])[0] + points([[0.1]])[0]
    with pytest.raises(PflbenchError, match="same clients"):
        choose_points([fickle, fickle], [fickle, fickle])


def test_points_that_score_others_cannot_be_chosen_between() -> None:
    one, other = points([[0.1, 0.2]], [[0.3]])
    with pytest.raises(PflbenchError, match="same clients"):
        choose_points([one, other], [one, one])


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=5))
def test_choosing_by_the_scores_themselves_is_the_best_there_is(grid: list[list[int]]) -> None:
    tests = points(*[[row] for row in grid])
    (chosen,) = choose_points(tests, tests)
    assert chosen.values.tolist() == [[max(column) for column in zip(*grid, strict=True)]]


@pytest.fixture
def table(personal: Personal) -> Expansion:
    """Local with a grid of two rates in the table's only column."""
    table = personal.table("a-2")

    def run(seed: int, lr: float, validation: float = 0.0):  # type: ignore[no-untyped-def]
        stages = ("personalized",)
        return personal.spec(seed, "local", stages=stages, rounds=1, validation=validation, lr=lr)

    choices = tuple(tuple(Choice(run(seed, lr), run(seed, lr, 0.1)) for lr in RATES) for seed in (0, 1))
    cell = table.places["local", "a-2/personalized"]
    return with_cells(table, replace(cell, runs=tuple(p[0].run for p in choices), choices=choices))


def put(personal: Personal, store: Store, table: Expansion, seed: int, held_out: dict[float, list[float]]) -> None:
    """The seed's runs, with these validation accuracies."""
    for run, validation in table.places["local", "a-2/personalized"].choices[seed]:
        lr = run.method.hyper["lr"]
        store.write(personal.result(run, TESTS[lr]))
        store.write(personal.result(validation, held_out[lr]))


def local(table: Table) -> CellValue:
    found = table.rows[0].cells[0]
    assert found
    return found


def test_a_cell_of_choices(personal: Personal, store: Store, table: Expansion) -> None:
    put(personal, store, table, 0, {0.1: [0.5, 0.5], 0.2: [0.4, 0.6]})  # 0.1 and 0.2: test accuracies 0.2 and 0.5
    put(personal, store, table, 1, {0.1: [0.5, 0.5], 0.2: [0.6, 0.5]})  # 0.2 and 0.1 (a tie): 0.6 and 0.9
    found = local(lay_out(table, store))
    assert (found.done, found.expected, [len(ids) for ids in found.runs.values()]) == (2, 2, [4, 4])
    assert found.seeds == pytest.approx({0: 35.0, 1: 75.0})
    assert (found.mean, found.spread) == (pytest.approx(55), pytest.approx(20))
    assert found.on_test and found.on_test.mean == pytest.approx(75)
    foot = lay_out(table, store).footer
    assert (
        "Local: each client has the one of 2 grid points that is best for it (ties: the first) on 10 % of its "
        "support, left out of separate trainings."
    ) in foot
    assert (
        "Local with points chosen on the test scores (closest to the paper's wording, optimistic): 75.0 ± 0.0 "
        "(A 2 Clients PM)."
    ) in foot
    assert "Rounds: 3 (Local: 1)." in foot
    assert "Runs of the suite: 8 of 12 done, 0 failed." in foot
    ids = {run for several in found.runs.values() for run in several}
    assert ids <= set(render(lay_out(table, store), "csv").replace(",", " ").split())


def test_points_of_the_grid_with_other_settings_are_no_rows(personal: Personal, store: Store, table: Expansion) -> None:
    """An older grid of the row: each of its points says something beside the others only. Another rate is a row."""
    put(personal, store, table, 0, {0.1: [1, 1], 0.2: [0, 0]})
    for lr in (*RATES, 0.7):
        older = personal.spec(0, "local", stages=("personalized",), rounds=1, lr=lr, momentum=0.5)
        store.write(personal.result(older, TESTS[RATES[0]]))
    assert [row.title for row in lay_out(table, store).extra] == ["local (lr=0.7, momentum=0.5)"]


def test_a_seed_needs_every_run(personal: Personal, store: Store, table: Expansion) -> None:
    put(personal, store, table, 0, {0.1: [1, 1], 0.2: [0, 0]})
    put(personal, store, table, 1, {0.1: [1, 1], 0.2: [0, 0]})
    missing = table.places["local", "a-2/personalized"].choices[1][1].validation
    (store.runs / f"{missing.id}.parquet").unlink()
    assert text(local(lay_out(table, store)), 1) == "55.0 (1/2)"
    store.write(replace(personal.result(missing), scores=(), failure="diverged"))
    assert text(local(lay_out(table, store)), 1) == "55.0 (1/2, 1 failed)"
    assert lay_out(table, store).footer[0] == "Failed: Local × A 2 Clients, seed 1: diverged"


def test_nothing_done_has_no_footnote(store: Store, table: Expansion) -> None:
    shown = lay_out(table, store)
    assert text(local(shown), 1) == "0/2"
    assert not any("optimistic" in line for line in shown.footer)


def test_grid_points_are_no_rows_of_their_own(personal: Personal, store: Store, table: Expansion) -> None:
    put(personal, store, table, 0, {0.1: [1, 1], 0.2: [0, 0]})
    other = personal.spec(0, "local", stages=("personalized",), rounds=1, lr=0.3)
    store.write(personal.result(other, [0.5, 0.7]))
    (extra,) = lay_out(table, store).extra
    assert extra.title == "local (lr=0.3)"
    assert [text(cell, 1) for cell in extra.cells] == ["60.0 (1/2)", "–"]
    store.write(personal.result(personal.spec(7, "local", stages=("personalized",), rounds=1, lr=0.2), [0, 0]))
    assert any(
        line.endswith("of local with other seeds than the table's (7).") for line in lay_out(table, store).footer
    )


def test_rounds_of_one_row_admit_no_other_method(personal: Personal, store: Store, table: Expansion) -> None:
    store.write(personal.result(personal.spec(0, "lab/foo.py:Foo", rounds=1), [0.5, 0.5], 0.5))
    assert lay_out(table, store).extra == ()
