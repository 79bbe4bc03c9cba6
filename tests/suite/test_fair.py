"""The fair suites: no row's local update costs more gradients than the table's own method's, nor a unit less; tuning."""

from __future__ import annotations

import pytest
from shipped import load

from pflbench import names
from pflbench.engine import objective
from pflbench.engine.simulate import Simulation
from pflbench.running.build import construct
from pflbench.spec import RunSpec, Scoring
from pflbench.suite.expand import expand
from pflbench.suite.tuning import searches, tuned_rows
from pflbench.testing import tiny_features, tiny_federation, tiny_network, tiny_spec

TABLES = {
    "cafeme-table1-fair": "cafeme",
    "fedec-table2-fair": "fedec",
    "pfedvem-table1-fair": "pfedvem",
    "pfllib-2025-fair": "ditto",
}
"""The row whose gradients are the budget."""
SHARED = {"fashion-mnist": 60_000, "cifar10": 50_000, "cifar100": 50_000, "sun397": 12_000}
ROWS = {"cifar10-1000-2": 50, "femnist-150-3": 200} | {
    f"{name}-{clients}": rows // clients for name, rows in SHARED.items() for clients in (50, 100, 200)
}
"""Training rows of a client, where they are not 500; where clients differ the mean, on FEMNIST about that."""
HEADS_COUNT = {"fedec-table2-fair"}
"""Where heads count as if no features were computed once: the images of most columns are augmented."""
ALIKE = {
    *("cifar10-100-5", "cifar100-100-20", "cifar10-200", "cifar10-50", "cifar100-50", "fashion-mnist-50"),
    *("fashion-mnist-pathological", "cifar100-pathological", "cifar100-practical"),
}
"""Columns in which another one's methods do the same to as many images."""
UNTUNED = {
    "cafeme-table1-fair": {"local"},
    "fedec-table2-fair": {"local-ft"},
    "pfedvem-table1-fair": {"local"},
    "pfllib-2025-fair": set(),
}
"""Rows without a rate of their own."""
NOT_COUNTED = {"local", "local-ft"}
"""Rows without a federation, or with all clients in every round."""


def gradients(run: RunSpec, rows: int, free_heads: bool = True) -> float:
    """Minibatch gradients of a local update of a client with so many rows; passes without a gradient are free.

    `free_heads`: so are those of heads on features that are computed once. Else images are augmented, so that none are.
    """
    keys = ("batch", "batches", "tail")
    same = {"scoring": Scoring(), "cohort": 1, "augment": "none" if free_heads else "crop-flip"} | {
        key: getattr(run, key) for key in keys
    }
    spec = tiny_spec(rounds=100 if run.method.name == "l2gd" else 1).model_copy(update=same)
    method = construct(names.locate("methods", run.method.name), run.method.hyper)
    federation = tiny_federation(0, (4 * rows // 3,) * 8)
    assert len(federation.support[0]) == rows
    network = tiny_network() if run.model in ("cnn2", "cnn3") else tiny_features()
    simulation = Simulation([spec], [federation], method, network)
    simulation.train()
    (run,) = simulation.runs
    run.check()
    found = run.tally.means()
    return found.get("client_gradients_most", found["client_gradients"])


def unit(run: RunSpec, rows: int) -> float:
    """What the least costs that the row's local update can be made longer by, in minibatch gradients."""
    hyper = run.method.hyper
    step, epoch = (hyper.get("batch") or run.batch) / run.batch, rows / run.batch
    units = {
        "ditto": 2 * step,
        "per-fedavg": 4 * step,
        "pfedme": hyper.get("inner_steps", 0) * step,
        **dict.fromkeys(("apfl", "apfl-apart", "feddbe", "fedproto", "gpfl", "fedcp", "fedala"), 2 * epoch),
        "pfedbayes": epoch,
    }
    by_epochs = (hyper.get("epochs") is not None and hyper.get("steps") is None) or "base_epochs" in hyper
    return units.get(run.method.name) or (epoch if by_epochs else step)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_the_budget_of_the_tables_own_method(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "FORWARD", 0.0)
    suite = load(name)
    chosen = [column.id for column in suite.document().column if column.id not in ALIKE]
    cells = [cell for cell in expand(suite, seeds=[47], columns=chosen).cells if cell.row.id not in NOT_COUNTED]
    spent = {
        (c.row.id, c.column.id): gradients(c.runs[0], ROWS.get(c.column.id, 500), name not in HEADS_COUNT)
        for c in cells
    }  # fmt: skip
    for cell in cells:
        most, least = spent[TABLES[name], cell.column.id], unit(cell.runs[0], ROWS.get(cell.column.id, 500))
        assert most - least < spent[cell.row.id, cell.column.id] <= most, (cell.row.id, cell.column.id)


def test_what_ifca_chooses_by_is_named_and_not_counted() -> None:
    (cell,) = expand(load("cafeme-table1-fair"), rows=["ifca"], columns=["rmnist-shards"]).cells
    assert gradients(cell.runs[0], 480) == pytest.approx(11 + 4 * 16 / 3, abs=1e-3)
    assert any("IFCA's clients also make forward passes" in note for note in expand(load("cafeme-table1-fair")).notes)


def test_the_quick_profile_declares_the_seeds_that_its_table_is_read_with() -> None:
    """All of them stand in `report` and on the page without `--seeds`."""
    suite = load("cafeme-table1-fair")
    assert expand(suite, profile="quick").seeds == (0, 1, 2, 3, 4, 5)
    assert expand(suite).seeds == expand(load("cafeme-table1")).seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_the_same_number_of_trials(name: str) -> None:
    suite, profile, trials = load(name), "quick", 12 if name in ("pfedvem-table1-fair", "pfllib-2025-fair") else 20
    sizes = {}
    for row in tuned_rows(suite):
        for search in searches(suite, row, profile=profile):
            sizes[row] = len(search.trials)
            assert {run.seed for trial in search.trials for run in trial.runs} == {41}
    assert set(sizes.values()) == {trials}
    assert set(sizes) == {row.id for row in suite.document().row} - UNTUNED[name]
