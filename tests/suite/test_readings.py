"""Suites of readings of pFedVEM and FedEC: each row or column changes what it says, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from pflbench.spec import RunSpec
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import load

TABLES = {
    "pfedvem-variants": "pfedvem-table1",
    "pfedvem-differs": "pfedvem-table1",
    "pfedvem-deviation": "pfedvem-table3",
    "pfedvem-filter": "pfedvem-table1",
    "fedec-baselines": "fedec-table2",
    "fedec-settings": "fedec-table2",
}
ROWS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "pfedvem-variants": {
        "local-sgd": ("local", {"optimizer": None, "momentum": 0.9}),
        "fedavg-adam": ("fedavg", {"optimizer": "adam", "momentum": None, "lr": 0.001}),
        "pfedbayes-stateless": ("pfedbayes", {"persistent": False}),
    },
    "pfedvem-differs": {
        "fedavg-fast": ("fedavg", {"lr": 0.01}),
        "fedprox-fast": ("fedprox", {"lr": 0.01}),
        "fedrep-long": ("fedrep", {"base_epochs": 10}),
        "ifca-fast": ("ifca", {"lr": 0.01}),
        "per-fedavg-short": ("per-fedavg", {"steps": 5}),
        "pfedme-epochs": ("pfedme", {"epochs": 5}),
        "pfedme-passes": ("pfedme", {"epochs": 20}),
        "pfedme-steps": ("pfedme", {"epochs": None}),
        "pfedbayes-fast": ("pfedbayes", {"lr": 0.01}),
        "pfedvem-fast": ("pfedvem", {"base_lr": 0.01}),
    },
    "pfedvem-deviation": {"deviation-prior": ("deviation", {"confidence": "deviation-prior"})},
    "pfedvem-filter": {},
    "fedec-baselines": {
        "lg-fedavg-first": ("lg-fedavg", {"private_layers": 3}),
        "apfl-adaptive": ("apfl", {"adaptive": True}),
        "fedrep-one": ("fedrep", {"one_optimizer": True}),
    },
    "fedec-settings": {},
}
"""By suite, the rows that its table does not have: which one they vary, and by what (None: it is left out)."""
COLUMNS: dict[str, dict[str, dict[str, Any]]] = {
    "pfedvem-filter": {"-filtered": {"query": "partition", "partition": "filtered-slicing"}},
    "fedec-settings": {
        "-plain": {"augment": "none"},
        "-no-dropout": {"model": "fedrep-cnn-wide-plain"},
        "femnist-150-3-200": {"rounds": 200},
    },
}
"""By suite, what a column changes whose id ends so."""


@pytest.fixture(scope="module")
def tables() -> dict[str, Expansion]:
    return {name: expand(load(name), seeds=[42]) for name in {*TABLES, *TABLES.values(), "pfedvem-table6"}}


def varied(suite: str, cell: Cell) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """Row and column of the table that a cell varies, and by which hyperparameters and other fields of its runs."""
    row, hyper = ROWS[suite].get(cell.row.id, (cell.row.id, {}))
    if cell.row.id == "lg-fedavg-first" and cell.column.id.startswith("femnist"):
        hyper = {"private_layers": 2}
    for end, changed in COLUMNS.get(suite, {}).items():
        if cell.column.id.endswith(end):
            return row, cell.column.id.removesuffix(end) or "femnist-150-3", hyper, changed
    return row, cell.column.id, hyper, {}


def fields(run: RunSpec) -> dict[str, Any]:
    return run.model_dump() | {"partition": run.partition.name, "method": run.method.name}


@pytest.mark.parametrize("suite", ["pfedvem-best", "pfedvem-readings"])
def test_another_reading_has_the_tables_runs_and_numbers(suite: str) -> None:
    both = [expand(load(name)) for name in ("pfedvem-table6", "pfedvem-table1")]
    table = {(c.row.id, c.column.id, c.stage): c for one in both for c in one.cells}
    for cell in expand(load(suite)).cells:
        model = table[cell.row.id, cell.column.id, cell.stage.replace("local", "personalized")]
        assert cell.runs == model.runs
        assert cell.reference and cell.reference == model.reference


@pytest.mark.parametrize("suite", TABLES)
def test_every_cell_is_the_tables_but_for_what_it_says(tables: dict[str, Expansion], suite: str) -> None:
    both = (tables["pfedvem-table6"], tables[TABLES[suite]])  # one column of the variants is Table 6's
    table = {(c.row.id, c.column.id, c.stage): c for one in both for c in one.cells}
    new = 0
    for cell in tables[suite].cells:
        row, column, hyper, changed = varied(suite, cell)
        model = table[row, column, cell.stage]
        for mine, theirs in zip(cell.runs, model.runs, strict=True):
            kept = theirs.method.hyper
            expected = {key: value for key, value in (kept | hyper).items() if value is not None}
            assert mine.method.hyper == expected
            assert fields(mine) == fields(theirs) | changed
            assert (mine.id == theirs.id) == (expected == kept and not changed)
            new += mine.id != theirs.id
        assert cell.reference and model.reference and cell.reference[:2] == model.reference[:2]
        assert cell.reference.suspect == model.reference.suspect
        assert cell.reference.inferred == (model.reference.inferred if cell.row.id == row else None)
    assert new


def test_what_each_suite_has(tables: dict[str, Expansion]) -> None:
    shown = {name: ([r.id for r in tables[name].rows], [c.id for c in tables[name].columns]) for name in TABLES}
    sizes = {name: (len(rows), len(columns)) for name, (rows, columns) in shown.items()}
    assert sizes == {
        "pfedvem-variants": (6, 13),
        "pfedvem-differs": (18, 4),
        "pfedvem-deviation": (3, 2),
        "pfedvem-filter": (8, 6),
        "fedec-baselines": (6, 6),
        "fedec-settings": (13, 14),
    }
    for name, table in TABLES.items():
        assert {*shown[name][0]} - {row.id for row in tables[table].rows} == {*ROWS[name]}


def told(table: Expansion, row: str, column: str, what: str) -> str:
    cell = next(c for c in table.cells if (c.row.id, c.column.id) == (row, column))
    (here,) = (d.here for d in table.departures_of(cell) if d.what == what)
    return here


def test_departures_tell_of_each_reading_what_it_is(tables: dict[str, Expansion]) -> None:
    variants, deviation, baselines = (tables[n] for n in ("pfedvem-variants", "pfedvem-deviation", "fedec-baselines"))
    for row, word in (("pfedbayes", "last over rounds"), ("pfedbayes-stateless", "anew in every round")):
        assert word in told(variants, row, "fashion-mnist-50", "pFedBayes' optimizer")
    for row, word in (("deviation", "in the server's mean alone"), ("deviation-prior", "as the prior's variance")):
        assert word in told(deviation, row, "cifar100-50", "where the deviation counts")
    for what, words in {
        "layers that LG-FedAvg shares": {"lg-fedavg": "the last two", "lg-fedavg-first": "the convolutions"},
        "APFL's alpha": {"apfl": "0.75 throughout", "apfl-adaptive": "each client's own"},
        "optimizers of FedRep's phases": {"fedrep": "a fresh one", "fedrep-one": "one for both"},
    }.items():
        for row, word in words.items():
            assert word in told(baselines, row, "femnist-150-3", what)


def test_departures_tell_of_each_setting_what_it_is(tables: dict[str, Expansion]) -> None:
    settings, filtered = tables["fedec-settings"], tables["pfedvem-filter"]
    for cell in settings.cells:
        run, here = cell.runs[0], {d.what: d.here for d in settings.departures_of(cell)}
        if run.dataset.name.startswith("cifar"):
            assert here["images in training"].startswith("cropped") == (run.augment == "crop-flip")
        if run.dataset.name == "cifar100":
            assert (here["dropout"] == "none") == run.model.endswith("plain")
        assert ("rounds" in here) == (run.rounds == 200)
        if cell.row.id == "l2gd" and run.dataset.name.startswith("cifar") and run.clients == 100:
            varied = cell.column.id.endswith(("-plain", "-no-dropout"))
            assert here["L2GD's rate"].startswith("a = 0.5, as with them") == varied
            assert cell.sources["a"] == "guess" or not varied
        if cell.row.id == "local":
            assert f"Local Only {run.rounds}" in here["epochs of the baselines"]
    for cell in filtered.cells:
        there = "test images of a client" in {d.what for d in filtered.departures_of(cell)}
        assert there == (cell.runs[0].query == "partition")


@pytest.mark.parametrize("suite", TABLES)
def test_smoke_and_quick_stay_small(suite: str) -> None:
    smoke, quick = (expand(load(suite), profile=profile) for profile in ("smoke", "quick"))
    assert {run.dataset.name for run in smoke.runs} == {"digits"} and smoke.seeds == quick.seeds == (42,)
    assert max(run.rounds for run in smoke.runs) <= 4 and max(run.rounds for run in quick.runs) <= 20
    twice = {cell.runs[0].rounds for cell in quick.cells if cell.column.id.endswith("-200")}
    assert suite != "fedec-settings" or twice == {20}
