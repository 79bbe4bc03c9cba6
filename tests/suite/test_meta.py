"""The suite that sets meta-learners beside each other: same setting, same work, and its figure's runs are its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shipped import load

from pflbench import names
from pflbench.running import build
from pflbench.running.estimate import MeanClient
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand

ROWS = ["reptile", "fo-maml", "per-fedavg-first", "per-fedavg", "per-fedavg-exact"]
COLUMNS = ["cifar10-shards", "cifar10-dirichlet", "rmnist-shards", "rmnist-dirichlet"]


@pytest.fixture(scope="module")
def table() -> Expansion:
    return expand(load("meta-learning"))


def one_seed(table: Expansion) -> Iterator[tuple[Cell, float]]:
    """Each cell, and the gradients that a client takes in a round."""
    for cell in table.cells:
        run = cell.runs[0]
        examples = build.dataset(run.dataset).examples  # type: ignore[attr-defined]
        client = MeanClient(run, names.locate("methods", run.method.name), examples)
        yield cell, client.trains() / run.batch


def test_five_methods_in_four_settings_without_a_paper(table: Expansion) -> None:
    shown = [f"{column}{steps}" for column in COLUMNS for steps in ("-0", "-1", "-10", "")]
    assert [row.id for row in table.rows] == ROWS and [column.id for column in table.columns] == shown
    assert len(table.cells) == 80 and not any(cell.reference for cell in table.cells)
    assert len(table.runs) == 5 * 4 * 5 and table.layout.costs  # columns of one setting share their runs
    assert table.paper == "none" and table.seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_some_steps_and_the_last_are_shown(profile: str) -> None:
    for cell in expand(load("meta-learning"), profile=profile).cells:
        tuning, (steps,) = cell.runs[0].scoring.finetune, cell.reading.steps
        assert tuning and cell.stage == "finetuned" and steps <= tuning.steps
        assert steps == int(cell.column.title.split()[0].replace("all", str(tuning.steps)))


@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_the_setting_is_cafemes(profile: str) -> None:
    """All but the method, and Hessian-free Per-FedAvg's runs are those of CAFeMe's table."""
    theirs = expand(load("cafeme-table1"), profile=profile)
    settings = {cell.column.id: {run.setting() for run in cell.runs} for cell in theirs.cells}
    shared = {run.id for cell in theirs.cells if cell.row.id == "per-fedavg" for run in cell.runs}
    for cell in expand(load("meta-learning"), profile=profile).cells:
        assert {run.setting() for run in cell.runs} == settings["-".join(cell.column.id.split("-")[:2])]
        assert ({run.id for run in cell.runs} <= shared) == (cell.row.id == "per-fedavg")


def test_work_is_that_of_hessian_free_per_fedavg(table: Expansion) -> None:
    """First-order and exact meta steps are as many, so they are less and more work."""
    expected = {"per-fedavg-first": 10, "per-fedavg-exact": 25}
    for cell, gradients in one_seed(table):
        assert gradients == expected.get(cell.row.id, 20), (cell.row.id, cell.column.id)


def test_every_rate_has_a_source(table: Expansion) -> None:
    for cell in table.cells:
        rates = {"inner_lr", "outer_lr"} & cell.runs[0].method.hyper.keys()
        assert len(rates) == 2 and all(cell.sources[rate] for rate in rates)


def test_the_figures_runs_are_the_tables() -> None:
    figure, suite = load("meta-learning-steps"), load("meta-learning")
    for profile in suite.profiles:
        one, other = (expand(s, profile=profile) for s in (figure, suite))
        assert {run.id for run in one.runs} == {run.id for run in other.runs}
    found = figure.document().figure
    assert found is not None and found.kind == "steps"
