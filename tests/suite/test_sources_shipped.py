"""The suites that come with pflbench say where each value in effect comes from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from shipped import load, with_rows

from pflbench.catalog import describe
from pflbench.report.explain import explain_cell
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand

FIELDS = "model rounds clients training_clients cohort query arrival weights batches augment tail tiny_client".split()


def in_effect(cell: Cell) -> set[str]:
    """Names of all values that the cell's runs are made with, as `Cell.sources` calls them."""
    run, tuning = cell.runs[0], cell.runs[0].scoring.finetune
    batch = ["batch"] if describe(run.method.name).minibatches else []
    found = {*run.method.hyper, *FIELDS, *batch, "dataset", "partition"}
    if run.batches == "reshuffled" and run.tail == "drop":
        found.remove("tail")  # passes that are drawn anew keep it
    found |= {f"dataset.{key}" for key in run.dataset.options} | {f"partition.{key}" for key in run.partition.options}
    if cell.stage == "finetuned" and tuning is not None:
        found |= {f"finetune.{key}" for key in ("steps", "lr", "decay", "every")}
    return found


def spoken_for(cell: Cell, name: str) -> bool:
    """Whether a value has a source; an option has its dataset's or its partition's unless it has its own."""
    whole, dot, _ = name.partition(".")
    return name in cell.sources or bool(dot and whole in ("dataset", "partition") and whole in cell.sources)


SUITES = with_rows()


@cache
def table_of(name: str) -> Expansion:
    """A shipped suite's table of one seed."""
    return expand(load(name), seeds=[0])


@pytest.mark.parametrize("name", SUITES)
def test_no_value_in_effect_is_without_a_source(name: str) -> None:
    cells = table_of(name).cells
    missing = {
        (cell.row.id, cell.column.id, value)
        for cell in cells
        for value in in_effect(cell)
        if not spoken_for(cell, value)
    }
    assert cells and not missing


@pytest.mark.parametrize("name", SUITES)
def test_no_cell_departs_in_two_ways_in_one_matter(name: str) -> None:
    table = table_of(name)
    for cell in table.cells:
        matters = [departure.what for departure in table.departures_of(cell)]
        assert len(set(matters)) == len(matters), (cell.row.id, cell.column.id)


def test_nothing_is_said_of_a_tail_that_is_kept_whatever_the_value_says(tmp_path: Path) -> None:
    cells = [
        (name, cell) for name in ("cafeme-paper-text", "cafeme-readings-settings") for cell in expand(load(name)).cells
    ]
    for name, cell in cells:
        anew = cell.runs[0].batches == "reshuffled"
        assert anew == (name == "cafeme-paper-text" or cell.column.id == "rmnist-shards-reshuffled")
        assert cell.runs[0].tail == "drop" and cell.runs[0].keeps_tail == anew == ("tail" not in cell.sources)
    for column, told in (("rmnist-shards-reshuffled", False), ("rmnist-shards-low", True)):
        found = explain_cell("cafeme-readings-settings", "cafeme", column, Store(tmp_path))
        assert ("tail" in {given.name for given in found.settings}) == told
