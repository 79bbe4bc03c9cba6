"""PFLlib's leaderboard as a suite: rows, columns, settings and printed numbers."""

from __future__ import annotations

import pytest
from shipped import load

from pflbench.data.partitions.pfllib import PFLlib
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand

ROWS = 19
COLUMNS = {
    "fashion-mnist-pathological": {"kind": "pathological", "classes": 2},
    "cifar100-pathological": {"kind": "pathological", "classes": 10},
    "fashion-mnist-practical": {"alpha": 0.1},
    "cifar100-practical": {"alpha": 0.1},
}
PRINTED = {
    "fedavg": (80.41, 25.98, 85.85, 31.89),
    "fedala": (99.57, 67.83, 97.66, 55.92),
    "feddbe": (99.74, 73.38, 97.69, 64.39),
    "fedproto": (99.49, 69.18, 97.40, 52.70),
}
"""Some of the page's numbers, in the order of the columns."""


@pytest.fixture(scope="module")
def table() -> Expansion:
    return expand(load("pfllib-2025"))


def of(table: Expansion, row: str, column: str = "fashion-mnist-practical") -> Cell:
    return table.places[row, column]


def test_every_row_stands_in_every_column_with_three_seeds_on_one_split(table: Expansion) -> None:
    assert len(table.cells) == ROWS * len(COLUMNS) and {len(cell.runs) for cell in table.cells} == {3}
    assert [column.id for column in table.columns] == list(COLUMNS)
    for cell in table.cells:
        for run in cell.runs:
            options = {**run.partition.options}
            assert options.items() >= COLUMNS[cell.column.id].items()
            assert PFLlib(**options).split_seed == 1 and PFLlib(**options).minimum == 40
            assert (run.rounds, run.clients, run.cohort, run.batch) == (2000, 20, 20, 10)
            assert (run.batches, run.tail, run.weights, run.query) == ("static", "drop", "examples", "partition")


def test_rows_show_the_model_that_the_page_names_at_its_moment(table: Expansion) -> None:
    shown = {cell.row.id: cell.stage for cell in table.cells}
    assert {row for row, stage in shown.items() if stage == "global"} == {"fedavg", "fedprox"}
    before = {cell.row.id for cell in table.cells if cell.runs[0].scoring.moment == "before-aggregation"}
    assert before == {"pfedme"}, "only pFedMe's personal model is gone after the aggregation"


def test_every_round_is_scored_but_fedbabus_last_one_alone(table: Expansion) -> None:
    assert {cell.row.id: cell.every for cell in table.cells} == {
        row.id: None if row.id == "fedbabu" else 1 for row in table.rows
    }
    assert table.paper_round == "best"


def test_all_rows_but_local_have_the_pages_numbers(table: Expansion) -> None:
    for row, numbers in PRINTED.items():
        found = [of(table, row, column).reference for column in COLUMNS]
        assert tuple(one.mean for one in found if one) == numbers
    assert {cell.row.id for cell in table.cells if cell.reference is None} == {"local"}
    reference = of(table, "fedala").reference
    assert reference is not None and reference.spread == 0.02


def test_a_value_of_a_script_is_a_guess_for_other_datasets_than_the_scripts(table: Expansion) -> None:
    for column in COLUMNS:
        cell = of(table, "fedcp", column)
        assert cell.runs[0].method.hyper["lam"] == 5.0 and cell.sources["lam"] == "guess", "the script is MNIST's"
        assert [one.source for one in table.departures_of(cell) if one.what == "hyperparameters"] == ["guess"]
        fitting = "code" if column.startswith("fashion-mnist") else "guess"
        assert of(table, "feddbe", column).sources["kappa"] == fitting


def test_the_tables_of_concentrations_and_of_the_leaderboard_share_a_column(table: Expansion) -> None:
    other = expand(load("pfllib-2025-heterogeneity"))
    for row in table.rows:
        assert of(other, row.id, "cifar100-01").runs == of(table, row.id, "cifar100-practical").runs
    assert other.paper_round == "best" and expand(load("pfllib-2025-reshuffled")).paper_round == "last"
    assert {cell.reference for cell in other.cells if cell.column.id == "cifar100-01"} == {
        cell.reference for cell in table.cells if cell.column.id == "cifar100-practical"
    }
    (suspect,) = [cell for cell in other.cells if (cell.row.id, cell.column.id) == ("fedavg", "cifar100-05")]
    assert suspect.reference is not None and "wrong figure" in str(suspect.reference.suspect)


def test_the_other_order_of_minibatches_changes_nothing_else(table: Expansion) -> None:
    for cell in expand(load("pfllib-2025-reshuffled")).cells:
        runs = [run.model_copy(update={"batches": "static"}) for run in cell.runs]
        assert tuple(runs) == of(table, cell.row.id, cell.column.id).runs


def test_the_smoke_profile_is_the_embedded_digits_at_the_sizes_of_the_networks() -> None:
    small = expand(load("pfllib-2025"), profile="smoke")
    assert {run.dataset.name for run in small.runs} == {"digits"}
    assert {run.partition.options["minimum"] for run in small.runs} == {10}
    assert {run.dataset.options["size"] for run in small.runs} == {28, 32}


def test_other_splits_differ_in_their_seed_alone_and_the_first_is_the_leaderboards(table: Expansion) -> None:
    other = expand(load("pfllib-2025-readings"))
    for row in table.rows:
        first = of(table, row.id).runs
        assert of(other, row.id).runs == first
        for seed in (2, 3, 4):
            for mine, theirs in zip(of(other, row.id, f"fashion-mnist-practical-{seed}").runs, first, strict=True):
                options = {**theirs.partition.options, "split_seed": seed}
                assert mine == theirs.model_copy(
                    update={"partition": theirs.partition.model_copy(update={"options": options})}
                )
    assert of(other, "feddistill-mse").runs[0].method.hyper["term"] == "mse"
    assert of(other, "fedproto-1").runs[0].method.hyper["lam"] == 1.0
