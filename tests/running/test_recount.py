"""Costs are stored with a run; runs from before that get what their training would have counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_task import spec, task

from pflbench.result import RunResult
from pflbench.running.recount import TITLE, recounting
from pflbench.running.task import Environment, run_task
from pflbench.store import Store
from pflbench.store.packing import pack
from pflbench.store.upgrade import upgrade

KEYS = {"client_gradients", "floats_up", "bytes_up", "floats_down", "bytes_down"}


def trained(folder: Path) -> tuple[Store, RunResult]:
    """A store with a run as it is written today."""
    one = spec(rounds=3)
    place = Environment(folder / "results", folder)
    assert [done.status for done in run_task(task(one), place)] == ["done"]
    store = Store(place.results)
    return store, store.read(one.id)


def uncounted(run: RunResult) -> RunResult:
    """The run as an older version stored it."""
    kept = {k: v for k, v in run.provenance.items() if not any(k.startswith(key) for key in KEYS)}
    return replace(run, provenance=kept)


@pytest.mark.parametrize("packed", [False, True])
def test_an_old_run_gets_the_costs_that_its_training_would_have_counted(tmp_path: Path, packed: bool) -> None:
    store, run = trained(tmp_path)
    assert run.provenance.keys() >= KEYS
    store.write(uncounted(run))
    if packed:
        pack(store)
    assert not store.read(run.spec.id).provenance.keys() & KEYS
    steps = (recounting(tmp_path),)
    assert upgrade(store, steps) == {TITLE: 1}
    assert store.read(run.spec.id) == run
    assert upgrade(store, (recounting(tmp_path),)) == {}


def test_what_cannot_be_counted_here_stays_as_it_is(tmp_path: Path) -> None:
    _, run = trained(tmp_path)
    old, change = uncounted(run), recounting(tmp_path).change
    assert change(run) is None and change(old) == run
    assert change(replace(old, failure="no")) is None
    for other in (
        {"method": old.spec.method.model_copy(update={"version": "0"})},
        {"method": old.spec.method.model_copy(update={"name": "mine.py:Mine"})},
        {"dataset": old.spec.dataset.model_copy(update={"name": "cifar10"})},
    ):
        assert change(replace(old, spec=old.spec.model_copy(update=other))) is None
    assert change(replace(old, spec=spec(seed=7), provenance=old.provenance | {"data_hash": "another"})) is None
