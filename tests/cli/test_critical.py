"""`pflbench plot --critical-difference`, on a suite of one's own with ten columns and made-up runs."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from cli_kit import SUITE

from pflbench.report.figures.marks import groups
from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

DATASETS = ("digits", "rotated-digits", "mnist", "rmnist", "fashion-mnist", "cifar10", "cifar100", "svhn", "usps")
METHODS = ("fedavg", "ditto", "fedrep", "fedper", "apfl")
DIRICHLET, SHARDS = '{ name = "dirichlet", alpha = 3.0, minimum = 5 }', '{ name = "shards", shards = 180 }'
COLUMN = """
[[column]]
id = "{dataset}-{clients}{kind}"
title = "{dataset}-{clients}{kind}"
clients = {clients}
training_clients = 58
dataset = {{ name = "{dataset}" }}
partition = {partition}
model = "cnn2"
rounds = 2
batch = 10
"""


def suite(folder: Path, datasets: Sequence[str]) -> Path:
    """A row for each method; a column for each of these datasets, digits dealt in another way, and MNIST again."""
    text = SUITE.partition("[[column]]")[0].replace('name = "tiny"', 'name = "ten"')
    for dataset, clients, partition, kind in (
        *((name, 60, DIRICHLET, "") for name in datasets),
        ("digits", 90, SHARDS, "-shards"),
        ("mnist", 80, DIRICHLET, ""),
    ):
        text += COLUMN.format(dataset=dataset, clients=clients, partition=partition, kind=kind)
    for method in METHODS:
        text += f'\n[[row]]\nid = "{method}"\ntitle = "{method}"\nmethod = "{method}"\nstage = "finetuned"\n'
    path = folder / "ten.toml"
    path.write_text(text)
    return path


def made_up(folder: Path, path: Path, rng: np.random.Generator) -> None:
    """Every run is done: methods are better by their place, and by chance."""
    store = Store(folder / "results")
    for run in expand(load(str(path))).runs:
        better = METHODS.index(run.method.name)
        correct = int(np.clip(rng.normal(500 + 60 * better, 80), 0, 1000))
        scores = tuple(Score("finetuned", 2, step, 58, correct, 1000, 1.0, correct / 1000) for step in (0, 1, 2))
        store.write(RunResult(run, scores, {"data_hash": run.dataset.name, "wall_seconds": 1.0}))


@pytest.fixture
def ten(folder: Path) -> Path:
    path = suite(folder, DATASETS)
    made_up(folder, path, np.random.default_rng(4))
    return path


def test_the_numbers_are_those_of_ranks_over_ten_columns(cli: Any, folder: Path, ten: Path) -> None:
    done = cli("plot", "ten.toml", "--critical-difference", "-o", "cd.csv")
    assert done.code == 0, done.err
    with (folder / "cd.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    means = {
        (line["row"], line["column"]): float(line["mean"])
        for line in csv.DictReader(cli("report", "-s", "ten.toml", "--format", "csv").out.splitlines())
    }
    columns = [name.removeprefix("rank in ") for name in rows[0] if name.startswith("rank in ")]
    assert len(columns) == 10 and len({line["series"] for line in rows}) == 5
    table = np.array([[means[name, column] for name in METHODS] for column in columns])
    ranks = dict(zip(METHODS, scipy.stats.rankdata(-table, axis=1).mean(0), strict=True))
    for place, line in enumerate(rows, 1):
        assert float(line["mean rank"]) == pytest.approx(ranks[line["series"]])
        assert float(line["place"]) == place and line["n"] == "10"
        assert float(line["interval from"]) <= float(line["mean rank"]) <= float(line["interval to"])
        # Demšar (2006), Table 5: q of 0.05 for five methods is 2.728.
        assert float(line["critical difference"]) == pytest.approx(2.728 * np.sqrt(5 * 6 / (6 * 10)), rel=1e-3)
    p = scipy.stats.friedmanchisquare(*table.T).pvalue
    assert ("p < 0.001" in done.out) == (p < 0.001) and "one of them counts: mnist-60, mnist-80" in done.out


@pytest.mark.parametrize("format", ["svg", "png", "pdf"])
def test_it_is_a_picture_with_every_name(cli: Any, folder: Path, ten: Path, format: str) -> None:
    for name in ("one", "two"):
        assert cli("plot", "ten.toml", "--critical-difference", "-o", f"{name}.{format}").code == 0
    assert (folder / f"one.{format}").read_bytes() == (folder / f"two.{format}").read_bytes()
    if format == "svg":
        drawn = " ".join(re.findall(r"<!-- (.*?) -->", (folder / "one.svg").read_text()))
        assert all(name in drawn for name in METHODS) and "critical difference 1.93" in drawn


def test_fewer_than_ten_columns_are_refused_with_what_counts_as_one(cli: Any, folder: Path) -> None:
    path = suite(folder, DATASETS[:4])
    made_up(folder, path, np.random.default_rng(4))
    done = cli("plot", "ten.toml", "--critical-difference", "-o", "cd.svg")
    assert done.code == 2 and not (folder / "cd.svg").exists()
    assert "takes 10 independent columns" in done.err and "ten has 5 of 6 columns" in " ".join(done.err.split())
    assert "of the same data dealt alike, so one column, are mnist-60, mnist-80." in " ".join(done.err.split())


def test_rows_without_every_column_are_left_out_and_two_are_too_few(cli: Any, folder: Path, ten: Path) -> None:
    store = Store(folder / "results")
    usps = [run.spec for run in store.list() if run.spec.dataset.name == "usps" and run.spec.method.name == "apfl"]
    store.path(usps[0].id).unlink()
    done = cli("plot", "ten.toml", "--critical-difference", "-o", "cd.csv")
    assert done.code == 0 and "Left out, as they lack some of these columns: apfl." in done.out
    few = cli("plot", "ten.toml", "--critical-difference", "-o", "cd.csv", "-m", "fedavg", "-m", "ditto")
    assert few.code == 2 and "the same 3 rows" in few.err
    both = cli("plot", "ten.toml", "--critical-difference", "--curve", "-o", "cd.csv")
    assert both.code == 2 and "One picture at a time, not --curve and --critical-difference." in both.err


@pytest.mark.parametrize(
    ("means", "difference", "found"),
    [
        ((1.0, 1.5, 2.0, 3.5), 1.1, [(0, 2)]),
        ((1.0, 2.0, 3.0, 4.0), 1.0, []),
        ((1.0, 1.9, 2.8, 4.0), 1.0, [(0, 1), (1, 2)]),
        ((1.0, 2.0), 5.0, [(0, 1)]),
    ],
)
def test_groups_are_the_largest_that_are_not_apart(
    means: Sequence[float], difference: float, found: list[tuple[int, int]]
) -> None:
    assert groups(means, difference) == found
