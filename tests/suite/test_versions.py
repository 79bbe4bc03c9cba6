"""Versions of user-supplied code and data that are shown where they are not on this machine."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from pflbench.report.reading import readable
from pflbench.spec import Named, RunSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.user_supplied import Recorded, UserSupplied, majority
from pflbench.testing import tiny_spec


def spec(net: str, arrays: str, seed: int, method: str = "fedavg", version: str = "1") -> RunSpec:
    dataset = Named(name="lab.py:Npz", version="d", content=arrays)
    given = {"dataset": dataset, "partition": Named(name="dirichlet"), "model": "nets.py:net", "model_version": net}
    return tiny_spec(seed, method, version=version, **given)


SPLIT = {spec("A", arrays, seed): True for arrays in ("1", "2") for seed in (0, 1)}
"""Four runs with one network, of which a table shows two."""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({spec("B", "3", seed): True for seed in range(3)}, "B"),
        ({spec("B", "3", seed): seed < 1 for seed in range(9)}, "A"),  # failed runs do not count
        ({spec("B", "3", 0, "own.py:M", str(v)): True for v in range(3)}, "A"),  # nor do other versions of a method
        ({spec("B", "3", 0, name): True for name in ("a", "b", "c")}, "B"),
    ],
)
def test_the_versions_are_those_of_most_finished_runs_of_one_table(more: dict[RunSpec, bool], expected: str) -> None:
    runs = list((SPLIT | more).items())
    for order in (runs, runs[::-1], sorted(runs, key=lambda one: one[0].id)):
        assert majority(dict(order), lambda run: str(run.model_version)) == expected


def read(runs: dict[RunSpec, bool], seed: int) -> str | None:
    return majority(runs, lambda run: run.dataset.content, seed)


def test_all_seeds_have_the_same_data_unless_it_is_made_from_the_seed() -> None:
    edited = {spec("A", arrays, seed): True for arrays, seed in [("1", 0), ("1", 1), ("1", 2), ("2", 2), ("2", 3)]}
    assert {read(edited, seed) for seed in range(4)} == {"1"}
    seeded = {spec("A", str(seed), seed): True for seed in range(3)}
    assert [read(seeded, seed) for seed in range(4)] == ["0", "1", "2", None]
    assert read({spec("A", "1", 0): True}, 0) == "1"


def test_a_tie_is_broken_alike_whatever_the_order() -> None:
    assert {read(dict(order), 0) for order in itertools.permutations(SPLIT.items())} == {"1"}


@pytest.fixture
def files() -> UserSupplied:
    """Access to stored runs of a network and data that are on no machine: `other` requested most of them."""
    runs = {spec("A", "1", seed): Recorded(True, "mine", "row", "col") for seed in range(2)}
    runs |= {spec("B", "2", seed): Recorded(True, "other", "row", "col") for seed in range(4)}
    runs |= {spec("C", "3", seed): Recorded(False, "unfinished", "row", "col") for seed in range(4)}
    return UserSupplied(stored=lambda: runs | {spec("B", "2", 9): Recorded(True)})


@pytest.mark.parametrize(
    ("suite", "column", "expected"),
    [("mine", "col", "A"), ("mine", "else", "B"), ("mine", "", "B"), ("unfinished", "col", "B"), ("other", "col", "B")],
)
def test_runs_that_a_column_requested_decide_before_the_majority(
    files: UserSupplied, suite: str, column: str, expected: str
) -> None:
    assert files.anew(suite).options("models", "nets.py:net", column).version == expected


@pytest.mark.parametrize(("suite", "expected"), [("mine", "1"), ("other", "2"), ("unfinished", "2")])
def test_the_content_is_that_of_runs_that_a_column_requested(files: UserSupplied, suite: str, expected: str) -> None:
    run = spec("net", "", 0)
    settings = {key: getattr(run, key) for key in ("dataset", "partition", "clients", "model_version")}
    found = replace(files, root=Path("nowhere")).anew(suite).contents(settings, {}, 0, "col")
    assert found["dataset"].content == expected


def test_a_file_of_data_is_no_code_that_another_run_could_stand_for() -> None:
    run, known = spec("A", "1", 0), spec("B", "1", 0)
    supplied = UserSupplied(equals=lambda: {known.id: {known.id: known}})
    assert supplied.standing_for(run, {"datasets.file": "/lab/mine.npz"}) is run


def test_the_majority_of_the_committed_runs_is_their_content(tmp_path: Path) -> None:
    """Of FEMNIST, whose files are read; without data, the runs tell it, recorded or not."""
    store = Store(Path(__file__).parents[2] / "results")
    runs = {run.spec: run.failure is None for run in store.list() if run.spec.dataset.content}
    contents = {run.dataset.content for run in runs}
    assert len(contents) == 1 and majority(runs, lambda run: run.dataset.content, 0) in contents
    supplied = readable(store, tmp_path)
    unrecorded = replace(supplied, stored=lambda: {run: Recorded(done) for run, done in runs.items()})
    for access in (supplied, unrecorded):
        table = expand(load("cafeme-table2", access), profile="quick", columns=["femnist"])
        assert {run.dataset.content for run in table.runs} == contents
        assert set(table.runs) & set(runs)
