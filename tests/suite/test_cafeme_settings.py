"""Other readings of the settings of CAFeMe's tables: each column changes what its title says, and nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shipped import load

from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Shards
from pflbench.data.source import Source
from pflbench.engine.batches import support_streams
from pflbench.engine.run import arrived, sample_cohort
from pflbench.methods.base import Draw
from pflbench.report.table_facts import seed_line as seeds_line
from pflbench.running.federations import holdings
from pflbench.spec import RunSpec
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.document import parse
from pflbench.suite.expand import expand
from pflbench.suite.scoped import Note
from pflbench.testing import tiny_federation, tiny_spec

from .samples import raw

RATE = "scoring.finetune.lr"
BASELINES = ("fedavg", "ifca", "ditto", "fedrep-averaged", "per-fedavg")
EIGHT = "aircraft, birds, dtd, gtsrb, flowers, omniglot, mini-imagenet, "
CHANGES: dict[str, dict[str, Any]] = {
    "cifar10-shards-batch": {"batch": 30},
    "cifar10-dirichlet-batch": {"batch": 30},
    "cifar10-shards-low": {RATE: 0.01},
    "cifar10-shards-high": {RATE: 0.05},
    "cifar10-dirichlet-seeds": {},
    "rmnist-shards-low": {RATE: 0.001},
    "rmnist-shards-high": {RATE: 0.01},
    "rmnist-shards-reshuffled": {"batches": "reshuffled"},
    "rmnist-shards-angles": {"dataset.options.degrees": 200 / 9},
    "rmnist-shards-last": {},
    "rmnist-shards-redrawn": {"draws": "per-method"},
    "rmnist-dirichlet-seeds": {},
    "femnist-batch": {"batch": 30},
    "femnist-steps": {f"method.hyper.{key}": 5 for key in ("steps", "epochs", "head_steps")},
    "femnist-low": {RATE: 0.001},
    "femnist-high": {RATE: 0.01},
    "femnist-seeds": {},
    "meta-dataset-fc100": {"dataset.options.sources": f"{EIGHT}fc100"},
    "meta-dataset-swapped": {"dataset.options.swapped": "aircraft, birds, dtd, gtsrb, flowers"},
    "meta-dataset-low": {RATE: 0.01},
    "meta-dataset-high": {RATE: 0.05},
    "meta-dataset-seeds": {},
}
"""What each column has in its runs that the table has otherwise, if its methods have it at all."""
SEEDS = {
    "cifar10-dirichlet-seeds": (0, 2, 3, 4, 5),
    "rmnist-dirichlet-seeds": (0, 1, 2, 5, 6),
    "femnist-seeds": (0, 1, 3, 4),
    "meta-dataset-seeds": (0, 2, 3, 4),
}
TABLES = {"cafeme-readings-settings": "cafeme-table1", "cafeme-readings-table2": "cafeme-table2"}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: v for name, one in value.items() for key, v in flat(one, f"{path}.{name}".strip(".")).items()}


def differing(run: RunSpec, other: RunSpec) -> dict[str, Any]:
    """What the first has otherwise than the second, by its path."""
    mine, theirs = flat(run.model_dump(exclude={"seed"})), flat(other.model_dump(exclude={"seed"}))
    return {key: mine.get(key) for key in mine | theirs if mine.get(key) != theirs.get(key)}


@cache
def pairs() -> list[tuple[Cell, Cell]]:
    """Every cell of the readings, with that of the table."""
    found = []
    for name, of in TABLES.items():
        theirs = {(cell.row.id, cell.column.id): cell for cell in expand(load(of)).cells}
        for cell in expand(load(name)).cells:
            likes = [column for _, column in theirs if cell.column.id.startswith(f"{column}-")]
            found.append((cell, theirs[cell.row.id, max(likes, key=len)]))
    return found


def test_each_reading_changes_what_its_title_says_and_nothing_else() -> None:
    found: dict[str, dict[str, Any]] = {}
    for cell, other in pairs():
        id = cell.column.id
        changes = differing(cell.runs[0], other.runs[0])
        assert changes.items() <= CHANGES[id].items(), (id, cell.row.id, changes)
        found[id] = found.get(id, {}) | changes
        if RATE in CHANGES[id]:
            both = cell.row.method == "cafeme", id.endswith("-low")
            assert (RATE in changes) == (both[0] == both[1])
        elif id != "femnist-steps":
            assert changes == CHANGES[id]
        assert cell.reference and other.reference and cell.reference[:2] == other.reference[:2]
        assert [run.seed for run in cell.runs] == list(SEEDS.get(id, range(5)))
    assert found == CHANGES


def test_a_reading_that_changes_no_setting_is_the_same_run() -> None:
    same = {id for id, changes in CHANGES.items() if not changes}
    for cell, other in pairs():
        there = {run.seed: run.id for run in other.runs}
        equal = {run.seed for run in cell.runs if run.id == there.get(run.seed)}
        if cell.column.id in same:
            assert equal == {run.seed for run in cell.runs} & set(range(5))
        last = cell.column.id == "rmnist-shards-last" and cell.stage == "finetuned"
        assert cell.reading.steps == ((50,) if last else other.reading.steps)


def test_one_rate_is_one_rate() -> None:
    for cell, _ in pairs():
        rule = cell.runs[0].scoring.finetune
        assert rule is not None
        if (rate := CHANGES[cell.column.id].get(RATE)) is not None:
            assert rule.lr == rate


def test_departures_and_notes_tell_what_is_so() -> None:
    for name in TABLES:
        table = expand(load(name))
        for cell in table.cells:
            whats = [one.what for one in table.departures_of(cell)]
            assert len(set(whats)) == len(whats), (cell.column.id, whats)
            notes = " ".join(note.text for note in table.layer.found(Note, cell.row, cell.column.id))
            equal, finetuned = RATE in CHANGES[cell.column.id], cell.stage == "finetuned"
            assert ("times that of the other rows" in notes) == (finetuned and not equal)
            (rate,) = [one for one in table.departures_of(cell) if one.what == "fine-tuning rate"] or [None]
            assert (rate is not None) == finetuned and (rate is None or rate.grave != equal)
    explained = {c.column.id: c for c in expand(load("cafeme-readings-settings"), rows=["cafeme"]).cells}
    whole = expand(load("cafeme-readings-settings"))

    def here(column: str, what: str) -> list[str]:
        return [one.here for one in whole.departures_of(explained[column]) if one.what == what]

    assert here("cifar10-shards-batch", "batch size") == ["30"] and here("cifar10-shards-low", "batch size") == [
        "50 on CIFAR-10"
    ]
    assert here("rmnist-shards-angles", "angles") == ["0 to 200 degrees in steps of 200/9"]
    assert "fresh order" in here("rmnist-shards-reshuffled", "static minibatches")[0]
    assert here("rmnist-shards-last", "score after fine-tuning") == ["after 50 steps"]
    assert explained["cifar10-dirichlet-seeds"].rests_on == {} and explained["rmnist-shards-low"].rests_on == {}


def test_a_columns_seeds_stand_in_place_of_the_suites() -> None:
    table = raw()
    table["column"][1]["seeds"] = [0, 5, 7]

    def found(profile: str = "paper", **part: Any) -> dict[str, list[int]]:
        made = expand(parse(table, Path("tiny.toml")), profile=profile, **part)
        assert made.seeds == tuple(dict.fromkeys(run.seed for cell in made.cells for run in cell.runs))
        return {cell.column.id: [run.seed for run in cell.runs] for cell in made.cells}

    assert found() == {"a": [0, 1], "b": [0, 5, 7]}
    assert found(seeds=[3]) == {"a": [3], "b": [3]}
    assert found("smoke") == {"a": [0], "b": [0]}
    table["profile"]["smoke"]["column"]["b"]["seeds"] = [5]
    assert found("smoke") == {"a": [0], "b": [5]}


def test_a_table_says_which_seeds_its_columns_have() -> None:
    table = expand(load("cafeme-readings-settings"), columns=["rmnist-shards-low", "rmnist-dirichlet-seeds"])
    said = seeds_line(table.cells, [], None)
    assert said == "Seeds: 0–4 (n = 5: RMNIST Shards, rate 0.001), 0–2, 5, 6 (n = 5: RMNIST Dirichlet, authors' seeds)."
    assert seeds_line(table.cells[:8], [], None) == "Seeds: 0–4 (n = 5)."


def drawn(method: str, draws: str, **fields: Any) -> list[np.ndarray]:
    """Cohorts, arrivals and single minibatches of a method's runs, and its split of a pool."""
    spec = tiny_spec(0, method, draws=draws, batches="reshuffled", arrival=0.5, **fields)
    training = tiny_federation(0).training
    cohorts = [sample_cohort(spec, training, index) for index in range(20)]
    there = [arrived(spec, cohort, index) for index, cohort in enumerate([np.arange(6)] * 20)]
    batches = support_streams(tiny_federation(0), spec)[3].draw([Draw(steps=3)], 0, "round", 4)[0][0]
    labels = np.arange(60) % 3
    source = Source(tiny_federation(0).x[:60], labels, None, 3, "x")
    common = {"clients": 6, "training_clients": 4, "query": 0.3, "seed": 0, "validation": 0.1}
    made = build(source, Shards(shards=12), drawn_for=spec.drawn_for, **common)  # type: ignore[arg-type]
    assert made.training.tolist() == build(source, Shards(shards=12), **common).training.tolist()  # type: ignore[arg-type]
    held = [np.sort(np.concatenate(one)) for one in zip(made.support, made.query, strict=True)]
    assert len(held) == 6
    return [np.concatenate(part) for part in (cohorts, there, batches, made.support, made.query)]


def test_each_method_draws_splits_cohorts_and_minibatches_of_its_own() -> None:
    shared, same = drawn("fedavg", "shared"), drawn("ifca", "shared")
    own, other, again = drawn("fedavg", "per-method"), drawn("ifca", "per-method"), drawn("fedavg", "per-method")
    for a, b, c, d, e in zip(shared, same, own, other, again, strict=True):
        assert np.array_equal(a, b) and np.array_equal(c, e)
        assert not np.array_equal(a, c) and not np.array_equal(c, d) and not np.array_equal(a, d)


def test_who_looks_at_a_split_of_ones_own_is_told_whose_it_is() -> None:
    for draws, says in (("shared", "query = 0.25."), ("per-method", "query = 0.25; the split is fedavg's own.")):
        told = holdings(tiny_federation(0), tiny_spec(0, "fedavg", draws=draws), "").settings
        assert told.endswith(says)


def test_what_is_drawn_for_a_method_is_left_out_of_older_ids() -> None:
    assert "draws" not in tiny_spec().canonical() and "after" not in tiny_spec().canonical()
    assert tiny_spec().id != tiny_spec(draws="per-method").id
    assert tiny_spec().setting() != tiny_spec(draws="per-method").setting()


@pytest.mark.parametrize("name", TABLES)
def test_the_small_forms_are_the_tables(name: str) -> None:
    for profile in ("quick", "smoke"):
        theirs: Expansion = expand(load(TABLES[name]), profile=profile)
        rounds = {column.id: column.rounds for column in theirs.columns}
        for column in expand(load(name), profile=profile).columns:
            like = max((id for id in rounds if column.id.startswith(f"{id}-")), key=len)
            assert column.rounds == rounds[like]
