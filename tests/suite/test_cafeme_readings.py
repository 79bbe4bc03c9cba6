"""The readings of CAFeMe's Table 1: each row says what it reads otherwise and nothing else, and shares what is the same."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import load

from pflbench.suite.expand import Expansion, expand

TABLE = ("cifar10-shards", "cifar10-dirichlet", "rmnist-shards", "rmnist-dirichlet")
NETWORK = {"rmnist-shards-text-network": "rmnist-shards", "rmnist-dirichlet-text-network": "rmnist-dirichlet"}
SAME = ("fedavg", "fedavg-ft", "ifca", "ifca-ft", "ditto", "fedrep-averaged", "per-fedavg", "cafeme")
READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg-steps": ("fedavg", {"steps": 5}),
    "fedavg-steps-ft": ("fedavg-ft", {"steps": 5}),
    "ifca-steps": ("ifca", {"steps": 5}),
    "ifca-steps-ft": ("ifca-ft", {"steps": 5}),
    "ifca-one": ("ifca", {"clusters": 1}),
    "ifca-one-ft": ("ifca-ft", {"clusters": 1}),
    "ditto-stale": ("ditto", {"anchor": "stale"}),
    "ditto-reset": ("ditto", {"optimizer_state": "reset"}),
    "fedrep-local": ("fedrep-averaged", {"heads": "local", "head_first": 25}),
    "fedrep-reset": ("fedrep-averaged", {"optimizer_state": "reset"}),
    "per-fedavg-first": ("per-fedavg", {"order": "first"}),
    "per-fedavg-exact": ("per-fedavg", {"order": "exact"}),
    "cafeme-no-norm": ("cafeme", {"modulator_batch_norm": False}),
    "cafeme-context": ("cafeme", {"context": "personalization"}),
    "cafeme-labels": ("cafeme", {"context": "personalization", "labels": True}),
    "cafeme-hidden-gates": ("cafeme", {"extra_gate": False}),
    "cafeme-exact": ("cafeme", {"order": "exact"}),
    "cafeme-disjoint": ("cafeme", {"disjoint": True}),
    "cafeme-c0": ("cafeme", {"modulation": "c0"}),
    "cafeme-c2": ("cafeme", {"modulation": "c2"}),
    "cafeme-reset": ("cafeme", {"optimizer_state": "reset"}),
}
"""By row, the row of Table 1 that it reads otherwise, and what it sets."""


def runs(table: Expansion) -> dict[tuple[str, str], list[Any]]:
    """The specs of each cell, by row and column, seed after seed."""
    return {(cell.row.id, cell.column.id): list(cell.runs) for cell in table.cells}


@pytest.fixture(scope="module", params=["paper", "quick", "smoke"])
def both(request: pytest.FixtureRequest) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return tuple(runs(expand(load(name), profile=request.param)) for name in ("cafeme-readings", "cafeme-table1"))  # type: ignore[return-value]


def test_the_tables_own_rows_are_its_runs(both: Any) -> None:
    ours, table = both
    for row in SAME:
        for column in TABLE:
            assert [run.id for run in ours[row, column]] == [run.id for run in table[row, column]]


def test_a_reading_changes_what_it_says_and_nothing_else(both: Any) -> None:
    ours, _ = both
    assert {row for row, _ in ours} == {*SAME, *READINGS}
    for row, (parent, options) in READINGS.items():
        for column in (*TABLE, *NETWORK):
            for run, like in zip(ours[row, column], ours[parent, column], strict=True):
                read = like.method.model_copy(update={"hyper": {**like.method.hyper, **options}})
                assert run == like.model_copy(update={"method": read}) and run.id != like.id


def test_the_texts_network_is_all_that_its_columns_change(both: Any) -> None:
    ours, _ = both
    for row in (*SAME, *READINGS):
        for column, parent in NETWORK.items():
            for run, like in zip(ours[row, column], ours[row, parent], strict=True):
                assert run == like.model_copy(update={"model": "cnn2-paper"}) and run.id != like.id


def test_a_row_that_reads_nothing_otherwise_is_the_same_run() -> None:
    defaults = ["ditto.anchor=current", "ditto.optimizer_state=kept", "per-fedavg.order=hf", "ifca.clusters=4"]
    kept, said = (
        runs(expand(load("cafeme-readings"), columns=["rmnist-shards"], overrides=changed))
        for changed in ([], defaults)
    )
    for row in ("ditto-stale", "ditto-reset", "per-fedavg-exact", "ifca-one"):
        parent = READINGS[row][0]
        assert said[row, "rmnist-shards"] == kept[parent, "rmnist-shards"] != kept[row, "rmnist-shards"]


def test_readings_stand_beside_the_printed_number_of_what_they_read() -> None:
    ours, table = (
        {(cell.row.id, cell.column.id): cell.reference for cell in expand(load(name)).cells}
        for name in ("cafeme-readings", "cafeme-table1")
    )
    for (row, column), reference in ours.items():
        parent = READINGS[row][0] if row in READINGS else row
        assert reference == table[parent, NETWORK.get(column, column)] and reference is not None


def test_departures_tell_of_each_reading_what_the_code_has_otherwise() -> None:
    table = expand(load("cafeme-readings"), columns=["rmnist-shards"])
    cells = {cell.row.id: cell for cell in table.cells}
    for row, what, here in (
        ("fedavg-steps-ft", "local epochs", "five steps"),
        ("ifca-steps", "local epochs", "five steps"),
        ("cafeme-labels", "no labels in the context", "images and labels"),
        ("cafeme-labels", "whose context", "that of the last"),
        ("cafeme-context", "whose context", "that of the last"),
        ("cafeme-hidden-gates", "extra gate", "one for each"),
        ("cafeme-exact", "first order", "the exact gradient"),
    ):
        mine, parent = (
            next(one for one in table.departures_of(cells[id]) if one.what == what) for id in (row, READINGS[row][0])
        )
        assert mine.here.startswith(here) and mine.code == parent.here.split(";")[0] and mine.paper == parent.paper
    assert cells["cafeme-exact"].sources["order"] == "inferred"  # the text gives no order
    (network,) = expand(load("cafeme-readings"), rows=["fedavg"], columns=["rmnist-shards-text-network"]).cells
    assert network.sources["model"] == "inferred"  # nor kernels, padding and pooling
