"""Which versions of the user's own are shown where they are not on this machine."""

import itertools

import pytest

from pflbench.spec import Named, RunSpec
from pflbench.suite.own import most_read, of_most
from pflbench.testing import tiny_spec


def spec(net: str, arrays: str, seed: int, method: str = "fedavg", version: str = "1") -> RunSpec:
    dataset = Named(name="lab.py:Npz", version="d", content=arrays)
    return tiny_spec(seed, method, version=version, dataset=dataset, model="nets.py:net", model_version=net)


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
        assert of_most(dict(order), lambda run: str(run.model_version)) == expected


def read(runs: dict[RunSpec, bool], seed: int) -> str | None:
    return most_read(runs, seed).get("dataset")


def test_all_seeds_have_the_same_data_unless_it_is_made_from_the_seed() -> None:
    edited = {spec("A", arrays, seed): True for arrays, seed in [("1", 0), ("1", 1), ("1", 2), ("2", 2), ("2", 3)]}
    assert {read(edited, seed) for seed in range(4)} == {"1"}
    seeded = {spec("A", str(seed), seed): True for seed in range(3)}
    assert [read(seeded, seed) for seed in range(4)] == ["0", "1", "2", None]
    assert read({spec("A", "1", 0): True}, 0) == "1"


def test_a_tie_is_broken_alike_whatever_the_order() -> None:
    assert {read(dict(order), 0) for order in itertools.permutations(SPLIT.items())} == {"1"}
