"""CAFeMe's Table 1 by its text, and by its authors' code with its accidents: what they change, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from shipped import load

from pflbench.spec import RunSpec
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand

HYPER = "method.hyper."
FINETUNE = "scoring.finetune.lr"
TEXT: dict[str, dict[str, Any]] = {
    "fedavg": {f"{HYPER}steps": 5},
    "ifca": {f"{HYPER}steps": 5},
    "ditto": {f"{HYPER}optimizer": "sgd"},
    "fedrep-averaged": {f"{HYPER}heads": "local", f"{HYPER}optimizer": "sgd"},
    "per-fedavg": {},
    "cafeme": {
        f"{HYPER}order": "exact",
        f"{HYPER}context": "personalization",
        f"{HYPER}labels": True,
        f"{HYPER}extra_gate": False,
        f"{HYPER}disjoint": True,
    },
}
"""What the text says of each method, where the table has it otherwise."""
QUIRKS: dict[str, dict[str, Any]] = {
    "ifca": {f"{HYPER}clusters": 1},
    "ditto": {f"{HYPER}anchor": "stale"},
}
BEFORE = {"fedavg": ["per-fedavg"], "ifca": ["per-fedavg", "fedavg"]}
SEEDS = {"cifar10-dirichlet": [0, 2, 3, 4, 5], "rmnist-dirichlet": [0, 1, 2, 5, 6]}
ONE = {(cell.row.id, cell.column.id): cell for cell in expand(load("cafeme-table1")).cells}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: v for name, one in value.items() for key, v in flat(one, f"{path}.{name}".strip(".")).items()}


def differing(run: RunSpec, other: RunSpec) -> dict[str, Any]:
    """What the first has otherwise than the second, by its path."""
    mine, theirs = (flat(one.model_dump(exclude={"seed", "after"})) for one in (run, other))
    return {key: mine.get(key) for key in mine | theirs if mine.get(key) != theirs.get(key)}


def whole(name: str) -> Expansion:
    table = expand(load(name))
    assert [(row.id, row.title) for row in table.rows] == [
        (row.id, row.title) for row in expand(load("cafeme-table1")).rows
    ]
    assert {(cell.row.id, cell.column.id) for cell in table.cells} == ONE.keys()
    return table


def test_by_the_text() -> None:
    for cell in whole("cafeme-paper-text").cells:
        other = ONE[cell.row.id, cell.column.id]
        expected = {"batches": "reshuffled"} | TEXT[cell.row.method]
        if cell.column.id.startswith("cifar10"):
            expected["batch"] = 30
        else:
            expected |= {"model": "cnn2-paper", "dataset.options.degrees": 200 / 9}
        if cell.row.method == "cafeme":
            assert other.runs[0].scoring.finetune and cell.runs[0].scoring.finetune
            baselines = ONE["ditto", cell.column.id].runs[0].scoring.finetune
            assert baselines
            expected[FINETUNE] = baselines.lr
        assert differing(cell.runs[0], other.runs[0]) == expected, (cell.row.id, cell.column.id)
        assert not cell.runs[0].after and [run.seed for run in cell.runs] == [0, 1, 2, 3, 4]
        assert cell.reading.steps == ((50,) if cell.stage == "finetuned" else None)
        assert cell.reference == other.reference and cell.sources["batches"] == "paper"
        small = cell.column.id.endswith("dirichlet")
        assert cell.rests_on == ({"tiny_client": "guess"} if small else {})


def test_by_the_code_with_its_accidents() -> None:
    for cell in whole("cafeme-authors-quirks").cells:
        other, names = ONE[cell.row.id, cell.column.id], BEFORE.get(cell.row.method, [])
        expected = {"draws": "per-method"} | QUIRKS.get(cell.row.method, {})
        if cell.row.method == "cafeme" and cell.column.id.startswith("rmnist"):
            expected[f"{HYPER}modulator_batch_norm"] = False
        assert differing(cell.runs[0], other.runs[0]) == expected
        assert [run.seed for run in cell.runs] == SEEDS.get(cell.column.id, [0, 1, 2, 3, 4])
        for run in cell.runs:
            assert [(link.method.name, link.rounds) for link in run.after] == [(name, 1000) for name in names]
            assert all(link.drawn_for == (link.method.name,) for link in run.links)
        assert cell.reading == other.reading and cell.reference and other.reference
        assert cell.reference[:2] == other.reference[:2] and cell.rests_on == {}
        suspect = cell.row.method in ("ditto", "fedrep-averaged")
        assert (cell.reference.suspect is not None) == suspect


@pytest.mark.parametrize("name", ["cafeme-paper-text", "cafeme-authors-quirks"])
def test_departures_are_each_told_once_and_new(name: str) -> None:
    table, one = whole(name), expand(load("cafeme-table1"))
    for cell in table.cells:
        mine = {what.what: what for what in table.departures_of(cell)}
        assert len(mine) == len(table.departures_of(cell)), (cell.row.id, cell.column.id)
        theirs = {what.what: what for what in one.departures_of(ONE[cell.row.id, cell.column.id])}
        lost = theirs.keys() - mine.keys()
        assert not lost, lost
        by_sgd = name == "cafeme-paper-text" and cell.row.method in ("ditto", "fedrep-averaged")
        assert ("Adam" in mine and mine["Adam"].here == "SGD") == by_sgd
    if name == "cafeme-paper-text":
        text = {what.what for cell in table.cells for what in table.departures_of(cell) if what.kind == "text"}
        # Where the text is still not followed.
        assert text == {"Adam", "Ditto's evaluation", "large network", "Dirichlet division"}
        guessed = {
            cell.row.id for cell in table.cells for what in table.departures_of(cell) if "in training" in what.what
        }
        assert guessed == {"cafeme"}  # which context its outer loss takes


@pytest.mark.parametrize("name", ["cafeme-paper-text", "cafeme-authors-quirks"])
def test_the_small_forms_are_the_tables(name: str) -> None:
    for profile in ("quick", "smoke"):
        theirs = {column.id: column.rounds for column in expand(load("cafeme-table1"), profile=profile).columns}
        assert {c.id: c.rounds for c in expand(load(name), profile=profile).columns} == theirs
