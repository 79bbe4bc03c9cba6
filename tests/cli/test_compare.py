"""`pflbench compare`: folders, selectors, formats, and the end with 1."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import pflbench as pb
from pflbench.store import Store

HERE = ("-s", "tiny.toml", "--profile", "paper")


@pytest.fixture
def after(results: Path, folder: Path) -> Path:
    """The results, with FedAvg in the first column 10 points worse before fine-tuning, for every client and seed."""
    copy = Path(shutil.copytree(results, folder / "after"))
    before, store = Store(results), Store(copy)
    for run in store.list():
        if run.spec.method.name == "fedavg" and run.spec.partition.name == "shards":
            result = store.read(run.spec.id)
            for there, lost in ((before, 0.0), (store, 0.1)):
                scores = (
                    s._replace(accuracy=max(s.accuracy, 0.1) - lost) if s.stage == "global" else s
                    for s in result.scores
                )
                there.write(replace(result, scores=tuple(scores)))
    return copy


def lines(said: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(line["row"], line["column"]): line for line in csv.DictReader(io.StringIO(said))}


@pytest.mark.usefixtures("after")
def test_what_fell_ends_with_one(cli) -> None:
    result = cli("compare", "results", "after", *HERE, "--fail-if-drop", "1.0")
    assert result.code == 1 and "Worse: 1 cell" in result.out and result.out.count("-10.00") >= 1
    assert result.err == "Dropped by more than 1 points: tiny [paper], FedAvg, Shards.\n"
    assert cli("compare", "results", "after", *HERE, "--fail-if-drop", "10.5").code == 0
    assert cli("compare", "after", "results", *HERE, "--fail-if-drop", "1.0").code == 0
    assert cli("compare", "results", "after", *HERE).code == 0


@pytest.mark.usefixtures("after")
def test_every_cell_once_and_selectors(cli) -> None:
    found = lines(cli("compare", "results", "after", *HERE, "--format", "csv").out)
    assert {key: line["state"] for key, line in found.items()} == {
        ("FedAvg", "Shards"): "worse",
        **dict.fromkeys([("FedAvg", "Dirichlet"), ("FedAvg-FT", "Shards"), ("FedAvg-FT", "Dirichlet")], "same"),
        **dict.fromkeys([("Ditto", "Shards"), ("Ditto", "Dirichlet")], "same"),
    }
    assert list(lines(cli("compare", "results", "after", *HERE, "-m", "ditto", "--format", "csv").out)) == [
        ("Ditto", "Shards"),
        ("Ditto", "Dirichlet"),
    ]
    column = lines(cli("compare", "results", "after", *HERE, "--column", "dirichlet", "--format", "csv").out)
    assert {key[1] for key in column} == {"Dirichlet"}
    only = cli("compare", "results", "after", *HERE, "--only-changed", "--format", "csv").out
    assert list(lines(only)) == [("FedAvg", "Shards")]
    one_seed = ("-s", "tiny.toml", "--profile", "smoke", "--seeds", "0", "--format", "csv")
    smoke = lines(cli("compare", "results", "after", *one_seed).out)
    assert (smoke["FedAvg", "Shards"]["n"], smoke["FedAvg", "Shards"]["low"]) == ("1", "")


def test_all_common_seeds_count_whatever_the_suite_declares(cli, results: Path, after: Path) -> None:
    """Seeds 0 and 1 are declared, 5 and 6 stored in both folders, 7 in one alone."""
    for seed, folders in ((5, (results, after)), (6, (results, after)), (7, (results,))):
        for folder in folders:
            store = Store(folder)
            for run in store.list():
                spec = run.spec
                if spec.seed == 0 and spec.method.name == "fedavg" and spec.partition.name == "shards":
                    store.write(replace(store.read(spec.id), spec=spec.model_copy(update={"seed": seed})))
    found = lines(cli("compare", "results", "after", *HERE, "--format", "csv").out)
    assert (found["FedAvg", "Shards"]["seeds_a"], found["FedAvg", "Shards"]["seeds_b"]) == ("0 1 5 6", "0 1 5 6")
    assert found["FedAvg", "Shards"]["n"] == "4" and float(found["FedAvg", "Shards"]["difference"]) == -10
    assert found["FedAvg", "Dirichlet"]["seeds_a"] == "0 1" and found["Ditto", "Shards"]["seeds_a"] == "0 1"
    chosen = lines(cli("compare", "results", "after", *HERE, "--seeds", "0", "--format", "csv").out)
    assert chosen["FedAvg", "Shards"]["seeds_a"] == "0"


def test_a_new_version_of_a_method_is_held_against_its_old_one(cli, results: Path, folder: Path) -> None:
    """Only the older version's runs are in A, only today's in B: one line for the cell, and it says so."""
    old = Store(folder / "old")
    for run in Store(results).list():
        if run.spec.method.name == "ditto":
            method = run.spec.method.model_copy(update={"version": "0"})
            result = Store(results).read(run.spec.id)
            asked = {"asked": {"suite": "tiny", "profile": "paper"}}
            spec = run.spec.model_copy(update={"method": method})
            old.write(replace(result, spec=spec, provenance=result.provenance | asked))
    found = lines(cli("compare", "old", "results", *HERE, "-m", "ditto", "--format", "csv").out)
    assert [line["state"] for line in found.values()] == ["same", "same"]
    assert all("same scores, version 0 in A, 1 in B" in line["note"] for line in found.values()), found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere", "results"), "'nowhere' is no folder"),
        (("data", "results"), "'data' is no results folder"),
        (("packaged", "results"), "No reference runs came with this pflbench"),
        (("results", "results", "-s", "cafeme-table1"), "Neither 'results' nor 'results' has results of cafeme-table1"),
        (("results", "results", "-s", "tiny.toml", "-m", "nobody"), "Unknown method 'nobody'"),
        (("results", "results", "--format", "latex"), "Unknown format 'latex'"),
        (("results",), "Missing argument"),
    ],
)
def test_a_wrong_request(cli, results: Path, folder: Path, arguments: tuple[str, ...], said: str) -> None:
    (folder / "data").mkdir()
    result = cli("compare", *arguments)
    assert result.code == 2 and said in result.err and len(result.err.splitlines()) == 1


def test_the_same_from_python(results: Path, after: Path, cli) -> None:
    part = pb.select("tiny.toml", profile="paper")
    moved = pb.compare(results, "after", part)
    frame = moved.to_frame().set_index(["row", "column"])
    assert frame.state.value_counts().to_dict() == {"same": 5, "worse": 1}
    assert frame.difference["FedAvg", "Shards"] == pytest.approx(-10)
    assert moved.dropped(1.0) == ["tiny [paper], FedAvg, Shards"] and moved.dropped(11) == []
    assert "A: results" in moved.to_markdown().replace(str(results), "results")
    assert str(pb.compare("results", "after", part)) == cli("compare", "results", "after", *HERE).out
