"""Versions of a user's network, dataset and partition in one table: none is averaged or left out without a word."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pflbench.report.layout import lay_out
from pflbench.report.table import Table
from pflbench.spec import Named, RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Expansion

if TYPE_CHECKING:
    from conftest import Build


def own(run: RunSpec, **hashes: str) -> RunSpec:
    """The run with a network, dataset and partition of a user's; `hashes`: `network`, or `dataset_content` and alike."""

    def named(kind: str) -> Named:
        found = {key: hashes.get(f"{kind}_{key}", "v") for key in ("version", "content")}
        return Named(name=f"lab.py:{kind}", options=getattr(run, kind).options, **found)

    return run.model_copy(
        update={
            "dataset": named("dataset"),
            "partition": named("partition"),
            "model": "lab.py:net",
            "model_version": hashes.get("network", "v"),
        }
    )


def given(build: Build, *runs: RunSpec) -> Expansion:
    """A table with one cell, of these runs."""
    table = build.table()
    return replace(table, cells=(replace(table.places["fedavg", "digits-a"], runs=runs),))


def is_mixed(table: Table) -> bool:
    cell = table.rows[0].cells[0]
    return cell is not None and cell.mixed


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("network", "lab.py:net"),
        ("dataset_version", "lab.py:dataset"),
        ("dataset_content", "what is read by lab.py:dataset"),
        ("partition_version", "lab.py:partition"),
        ("partition_content", "what is read by lab.py:partition"),
    ],
)
def test_mixed_versions_of_a_users_own_are_never_silent(build: Build, store: Store, key: str, what: str) -> None:
    runs = [own(build.spec(seed), **({key: "w"} if seed == 2 else {})) for seed in range(3)]
    for run in runs:
        store.write(build.result(run, 0.5))
    table = lay_out(given(build, *runs), store)
    assert [line for line in table.footer if line.startswith("†")] == [
        f"† MIXED VERSIONS of {what} in Digits Dir 0.3: v in FedAvg (seeds 0, 1); w in FedAvg (seeds 2). These cells "
        "cannot be compared."
    ]
    assert is_mixed(table)


def test_what_each_seed_has_of_its_own_is_no_mixture(build: Build, store: Store) -> None:
    runs = [own(build.spec(seed), partition_content=f"p{seed}") for seed in range(3)]
    for run in runs:
        store.write(build.result(run, 0.5))
    assert not is_mixed(lay_out(given(build, *runs), store))
    two = own(build.spec(0, local_lr=0.2), partition_content="other")
    store.write(build.result(two, 0.5))
    assert is_mixed(lay_out(given(build, *runs, two), store))


def test_a_run_of_other_versions_is_told_once_if_it_is_finished(build: Build, store: Store) -> None:
    asked = [own(build.spec(seed), partition_content=f"p{seed}") for seed in range(2)]
    both = {"network": "w", "dataset_content": "w"}
    for seed in range(2):
        store.write(build.result(own(build.spec(seed), partition_content=f"p{seed}", **both), 0.5))
    store.write(build.failed(own(build.spec(0), partition_content="q0")))
    store.write(build.failed(own(build.spec(8), partition_content="p0")))
    store.write(build.result(own(build.spec(7), partition_content="p7"), 0.5))
    table = lay_out(given(build, *asked), store)
    assert [line for line in table.footer if line.startswith("Not shown")] == [
        "Not shown: 1 stored run(s) of fedavg with other seeds than the table's (7).",
        "Not shown: 2 stored run(s) made with another version of lab.py:net and what is read by lab.py:dataset.",
    ]
