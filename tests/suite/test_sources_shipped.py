"""The suites that come with pflbench say where each value in effect comes from."""

from __future__ import annotations

import pytest

from pflbench.catalog import describe
from pflbench.suite.cells import Cell
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load

FIELDS = "model rounds clients training_clients cohort query arrival weights batches augment tail tiny_client".split()


def in_effect(cell: Cell) -> set[str]:
    """Names of all values that the cell's runs are made with, as `Cell.sources` calls them."""
    run, tuning = cell.runs[0], cell.runs[0].scoring.finetune
    batch = ["batch"] if describe(run.method.name).minibatches else []
    found = {*run.method.hyper, *FIELDS, *batch, "dataset", "partition"}
    found |= {f"dataset.{key}" for key in run.dataset.options} | {f"partition.{key}" for key in run.partition.options}
    if cell.stage == "finetuned" and tuning is not None:
        found |= {f"finetune.{key}" for key in ("steps", "lr", "decay", "every")}
    return found


def spoken_for(cell: Cell, name: str) -> bool:
    """Whether a value has a source; an option has its dataset's or its partition's unless it has its own."""
    whole, dot, _ = name.partition(".")
    return name in cell.sources or bool(dot and whole in ("dataset", "partition") and whole in cell.sources)


SUITES = [name for name in available() if load(name).document().row]


@pytest.mark.parametrize("name", SUITES)
def test_no_value_in_effect_is_without_a_source(name: str) -> None:
    cells = expand(load(name), seeds=[0]).cells
    missing = {
        (cell.row.id, cell.column.id, value)
        for cell in cells
        for value in in_effect(cell)
        if not spoken_for(cell, value)
    }
    assert cells and not missing


@pytest.mark.parametrize("name", SUITES)
def test_no_cell_departs_in_two_ways_in_one_matter(name: str) -> None:
    table = expand(load(name), seeds=[0])
    for cell in table.cells:
        matters = [departure.what for departure in table.departures_of(cell)]
        assert len(set(matters)) == len(matters), (cell.row.id, cell.column.id)
