"""The suites of pFedVEM's tables agree with each other, and cite the authors' code for what it has."""

from __future__ import annotations

import pytest
from shipped import load

from pflbench.spec import RunSpec
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand

TABLES = [1, 2, 3, 5, 6, 7]


@pytest.fixture(scope="module")
def tables() -> dict[int, Expansion]:
    return {n: expand(load(f"pfedvem-table{n}")) for n in TABLES}


def test_tables_agree_where_the_paper_prints_a_number_twice(tables: dict[int, Expansion]) -> None:
    def printed(n: int) -> dict[tuple[str, str, RunSpec], object]:
        return {(c.stage, c.row.method, c.runs[0]): c.reference for c in tables[n].cells if c.column.smallest is None}

    shared = {n: printed(1).keys() & printed(n).keys() for n in TABLES[1:]}
    assert {n: len(keys) for n, keys in shared.items()} == {2: 1, 3: 1, 5: 12, 6: 14, 7: 0}
    for n, keys in shared.items():
        assert all(printed(1)[key] == printed(n)[key] for key in keys)


def test_departures_say_which_hyperparameters_were_tuned_and_which_lie_outside_the_papers_grid(
    tables: dict[int, Expansion],
) -> None:
    for cell in tables[1].cells:
        told = [one for one in tables[1].departures_of(cell) if one.what == "hyperparameters"]
        if cell.row.id in ("local", "pfedvem") or (cell.row.id == "scaffold" and cell.column.dataset == "cifar100"):
            continue
        (departure,) = told
        hyper = cell.runs[0].method.hyper
        assert (departure.source == "tuned") == ("tuned" in {cell.sources.get(key) for key in hyper})
        outside = hyper.get("lr", 0.01) not in (0.01, 0.001) or hyper.get("batch", 10) not in (10, 50, 100)
        assert (departure.kind == "text") == outside, (cell.row.id, cell.column.id)


@pytest.mark.parametrize("n", TABLES)
def test_the_code_is_cited_only_for_what_it_has(tables: dict[int, Expansion], n: int) -> None:
    """It has pFedVEM alone, on CIFAR alone, and an unused loader of SUN397 that prepares photos as ours does."""
    for departure in tables[n].departures:
        if departure.source == "code" and departure.what != "SUN397's images":
            assert {column.partition("-")[0] for column in departure.columns} <= {"cifar10", "cifar100"}, departure
            assert departure.what == "cuts" or not {*departure.rows} - {"pfedvem", "uncertainty", "deviation"}
