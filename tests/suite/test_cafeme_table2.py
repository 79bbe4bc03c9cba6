"""CAFeMe's Table 2: what it asks for, as printed, with what the authors' code has for each column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shipped import load

from pflbench.data.federation import build
from pflbench.errors import DataMissing
from pflbench.running.build import dataset, partition
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand

PRINTED = {
    "FedAvg": (79.81, 2.21),
    "FedAvg-FT": (82.07, 1.92),
    "IFCA": (79.81, 2.04),
    "IFCA-FT": (82.56, 1.79),
    "Ditto": (80.41, 1.29),
    "FedRep": (78.10, 1.81),
    "Per-FedAvg": (80.26, 2.60),
    "CAFeMe": (82.76, 0.83),
}
"""The column FEMNIST."""
META = {
    "FedAvg": (10.58, 0.75),
    "FedAvg-FT": (57.78, 1.16),
    "IFCA": (9.74, 0.73),
    "IFCA-FT": (57.17, 1.44),
    "Ditto": (45.31, 1.44),
    "FedRep": (45.17, 1.90),
    "Per-FedAvg": (57.89, 1.09),
    "CAFeMe": (62.62, 1.33),
}
"""The column Meta-Dataset."""
PARTS = {"meta-dataset": None, "meta-dataset-part": "omniglot, cifar-fs, gtsrb"}


def femnist(profile: str = "paper") -> Expansion:
    return expand(load("cafeme-table2"), columns=["femnist"], profile=profile)


def test_femnist_reads_as_printed() -> None:
    table = femnist()
    assert {cell.row.title: cell.reference and cell.reference[:2] for cell in table.cells} == PRINTED
    assert [cell.row.title for cell in table.cells] == list(PRINTED)
    one = expand(load("cafeme-table1"))
    assert [(row.id, row.title, row.stages) for row in table.rows] == [(r.id, r.title, r.stages) for r in one.rows]
    assert (table.layout, table.seeds, table.spread) == (one.layout, one.seeds, one.spread)
    assert len(table.runs) == 30


def test_femnist_is_what_the_authors_code_has() -> None:
    for cell in femnist().cells:
        run, name = cell.runs[0], cell.row.method
        assert (run.dataset.name, run.dataset.options) == ("femnist", {"source": "leaf"})
        assert (run.partition.name, run.partition.options) == ("natural", {"minimum": 62})
        assert (run.clients, run.training_clients, run.cohort, run.query) == (100, 80, 5, 0.2)
        assert (run.rounds, run.batch, run.model, run.tail, run.weights) == (2000, 50, "cnn2", "drop", "uniform")
        tuning, hyper = run.scoring.finetune, run.method.hyper
        if cell.stage == "finetuned":
            assert tuning and (tuning.steps, tuning.decay, tuning.every) == (50, 0.8, 5)
            assert tuning.lr == (0.01 if name == "cafeme" else 0.001) and cell.reading.steps == (48, 49, 50)
        steps = {"fedavg": "epochs", "ifca": "epochs", "fedrep-averaged": "head_steps"}.get(name, "steps")
        assert hyper[steps] == 8 and hyper.get("clusters", 2) == 2
        rates = {key: hyper[key] for key in hyper if "lr" in key}
        assert rates.pop("inner_lr", 0.01) == 0.01 and set(rates.values()) == {0.001}


@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_of_table1_only_what_is_said_of_both_tables_is_said(profile: str) -> None:
    table = femnist(profile)
    said = " ".join([*map(str, table.notes), *(d.what + d.here for c in table.cells for d in table.departures_of(c))])
    assert not any(word in said for word in ("CIFAR", "RMNIST", "angle", "Dirichlet"))
    what = {d.what for cell in table.cells for d in table.departures_of(cell)}
    assert profile != "paper" or what >= {
        "batch size",
        "local steps",
        "local epochs",
        "FEMNIST's images",
        "which writers",
    }
    suspect = {cell.row.id for cell in table.cells if cell.reference and cell.reference.suspect}
    assert suspect == {row.id for row in table.rows} - {"per-fedavg", "cafeme"}


def test_profiles() -> None:
    quick, smoke = femnist("quick"), femnist("smoke")
    assert quick.seeds == (0,) and quick.columns[0].rounds < 2000 and quick.columns[0].dataset == "femnist"
    assert {run.scoring.first for run in quick.runs} == {8}
    assert (smoke.seeds, smoke.columns[0].rounds, smoke.columns[0].dataset) == ((0, 1), 4, "digits")
    for run in smoke.runs:  # every client has a whole batch
        source = dataset(run.dataset).load(Path(), run.seed)
        made = build(
            source,
            partition(run.partition),
            clients=run.clients,
            training_clients=run.training_clients,
            query=0.2,
            seed=run.seed,
        )
        assert min(map(len, made.support)) >= run.batch


def test_without_data_one_message_says_all(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as error:
        dataset(femnist().runs[0].dataset).load(tmp_path, 0)
    for text in ("femnist/data/train/*.json", "preprocess.sh", "GB", str(tmp_path / "femnist" / "data")):
        assert text in str(error.value)


# ---- Meta-Dataset


def meta(column: str = "meta-dataset", profile: str = "paper") -> Expansion:
    return expand(load("cafeme-table2"), columns=[column], profile=profile)


def test_meta_dataset_reads_as_printed_with_all_eight_sources_alone() -> None:
    assert {cell.row.title: cell.reference and cell.reference[:2] for cell in meta().cells} == META
    assert not any(cell.reference for cell in meta("meta-dataset-part").cells)
    suspect = {cell.row.id for cell in meta().cells if cell.reference and cell.reference.suspect}
    assert suspect == {row.id for row in meta().rows} - {"per-fedavg", "cafeme"}


@pytest.mark.parametrize(("column", "sources"), PARTS.items())
def test_meta_dataset_is_what_the_authors_code_has(column: str, sources: str | None) -> None:
    assert len(meta(column).runs) == 30
    for cell in meta(column).cells:
        run, name = cell.runs[0], cell.row.method
        options = {"sources": sources, "tasks": 100, "ways": 10, "images": 600}
        assert run.dataset.name == "meta-dataset"
        assert run.dataset.options == {key: value for key, value in options.items() if value is not None}
        assert (run.partition.name, run.partition.options) == ("natural", {"minimum": 1})
        assert (run.clients, run.training_clients, run.cohort, run.query) == (100, 80, 5, 0.2)
        assert (run.rounds, run.batch, run.model, run.tail, run.weights) == (2000, 30, "cnn3", "drop", "uniform")
        tuning, hyper = run.scoring.finetune, run.method.hyper
        if cell.stage == "finetuned":
            assert tuning and (tuning.steps, tuning.decay, tuning.every) == (50, 0.8, 5)
            assert tuning.lr == (0.05 if name == "cafeme" else 0.01) and cell.reading.steps == (48, 49, 50)
        steps = {"fedavg": "epochs", "ifca": "epochs", "fedrep-averaged": "head_steps"}.get(name, "steps")
        assert hyper[steps] == 5 and (name != "ifca" or hyper["clusters"] == (3 if sources else 8))
        rates = {key: hyper[key] for key in hyper if "lr" in key}
        assert rates.pop("inner_lr", 0.05) == 0.05 and set(rates.values()) == {0.001}


@pytest.mark.parametrize("column", PARTS)
@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_of_meta_dataset_only_what_concerns_it_is_said(column: str, profile: str) -> None:
    table = meta(column, profile)
    said = " ".join([*map(str, table.notes), *(d.what + d.here for c in table.cells for d in table.departures_of(c))])
    assert not any(word in said for word in ("CIFAR-10", "RMNIST", "angle", "Dirichlet", "writers with", "LEAF"))
    if profile == "paper":
        what = {d.what for cell in table.cells for d in table.departures_of(cell)}
        assert what >= {"local epochs", "FC100", "size of a task", "colors", "large network", "fine-tuning rate"}
        assert ("sources" in what) == (column == "meta-dataset-part")


@pytest.mark.parametrize("column", PARTS)
def test_profiles_of_meta_dataset(column: str) -> None:
    quick, smoke = meta(column, "quick"), meta(column, "smoke")
    assert quick.seeds == (0,) and quick.columns[0].rounds == 10 and quick.columns[0].dataset == "meta-dataset"
    assert (smoke.seeds, smoke.columns[0].rounds, smoke.columns[0].dataset) == ((0, 1), 4, "digit-tasks")
    run = smoke.runs[0]
    source = dataset(run.dataset).load(Path(), run.seed)
    made = build(source, partition(run.partition), clients=20, training_clients=15, query=0.2, seed=run.seed)
    assert {len(rows) for rows in made.support} == {80} and source.images.shape[1:] == (3, 32, 32)
    for support, query in zip(made.support, made.query, strict=True):  # a client is a task
        assert len(set(source.kind[np.concatenate([support, query])])) == 1  # type: ignore[index]
