"""Rules that FedEC's suites use: one method in several rows, values that follow another row's, values by a row's id."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pflbench.engine.run import sample_cohort
from pflbench.errors import UsageError
from pflbench.suite.expand import expand
from pflbench.suite.load import load


def test_m_fedec_is_one_row() -> None:
    suite = load("fedec-table2")
    assert [row.title for row in expand(suite, methods=["fedec"]).rows] == ["FedEC"]
    assert [row.title for row in expand(suite, methods=["fedec-l2"]).rows] == ["FedEC-l2"]


def test_adaptation_follows_fedec_wo_in_every_column(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("""
[suite]
extends = "fedec-readings"
name = "mine"
title = "Mine"

[[column]]
id = "c"
like = "cifar10-100-2"
hyper.fedec.epochs = { value = 5, source = "tuned" }
hyper.fedec-wo.inner_lr = { value = 0.05, source = "tuned" }
""")
    cells = {cell.row.id: cell for cell in expand(load(str(file))).cells}
    adapted = cells["fedavg-adapted"]
    assert (adapted.runs[0].method.hyper["personal_epochs"], adapted.sources["personal_epochs"]) == (5, "tuned")
    assert (adapted.runs[0].method.hyper["personal_lr"], adapted.sources["personal_lr"]) == (0.05, "tuned")
    assert cells["fedec"].runs[0].method.hyper["inner_lr"] == 0.01
    text = file.read_text()
    for wrong, says in (
        ('{ like = "fedec-w.epochs" }', "Unknown row 'fedec-w'. Did you mean 'fedec-wo'"),
        ('{ like = "fedec-wo.batch" }', "the suite file gives fedec-wo no batch of its own"),
        ("{ like = 3 }", "personal_epochs"),
    ):
        file.write_text(f"{text}hyper.fedavg.personal_epochs = {wrong}")
        with pytest.raises(UsageError, match=says):
            load(str(file))


def test_in_smoke_some_client_is_drawn_twice_in_every_column() -> None:
    """Else nobody has a memory, and the three FedEC rows would be the same."""
    for cell in expand(load("fedec-table2"), profile="smoke").cells:
        run = cell.runs[0]
        drawn = np.concatenate([sample_cohort(run, np.ones(run.clients, bool), i) for i in range(run.rounds)])
        assert np.bincount(drawn).max() > 1, cell.column.id


def test_a_columns_values_may_go_by_a_rows_id_and_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("""
[suite]
extends = "fedec-table2"
name = "mine"
title = "Mine"

[[column]]
id = "cifar10-100-2"
like = "cifar10-100-2"

[column.hyper]
fedec-l2 = { alpha = { value = 0.5, source = "tuned" } }
fedec = { alpha = { value = 2.0, source = "tuned" } }
""")
    cells = {cell.row.id: cell for cell in expand(load(str(file))).cells}
    assert {row: cells[row].runs[0].method.hyper["alpha"] for row in ("fedec-wo", "fedec-l2", "fedec")} == {
        "fedec-wo": 1.0,
        "fedec-l2": 0.5,
        "fedec": 2.0,
    }
    assert cells["fedec-l2"].sources["alpha"] == "tuned"
    assert cells["fedec-wo"].runs == next(c for c in expand(load("fedec-table2")).cells if c.row.id == "fedec-wo").runs
    file.write_text(file.read_text().replace("fedec-l2 =", "fedec-12 ="))
    with pytest.raises(UsageError, match=r"column\[0\].hyper: Unknown method 'fedec-12'. Did you mean 'fedec-l2'"):
        load(str(file))
