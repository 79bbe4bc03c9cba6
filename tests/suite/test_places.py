"""Where an expanded suite's cells stand in its table, and what they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pflbench.suite.cells import ColumnHead, Derived, Expansion, Reading, Reference
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SUITE = """
[suite]
name = "stages"
title = "Stages"
paper = "none"
protocol = "code"
seeds = [0, 1]
spread = { kind = "sem" }

[federation]
clients = 4
query = 0.25

[evaluation]
clients = "all"
average = "examples"

[layout]
decimals = 1
stages = { personalized = "PM", global = "GM" }
blocks = "group"

[[column]]
id = "small"
group = "Digits"
title = "Small"
dataset = { name = "digits" }
partition = { name = "dirichlet", alpha = 1.0 }
model = "cnn2"
rounds = 3
batch = 10
subset = { smallest = 2 }

[[column]]
id = "all"
like = "small"
title = "All"
subset = { smallest = 4 }

[[derived]]
id = "diff"
title = "Diff."
columns = ["small", "all"]

[[row]]
id = "both"
title = "Both"
method = "fedavg"
stages = ["personalized", "global"]
hyper = { personal_epochs = 1 }

[[row]]
id = "tuned"
title = "Tuned"
method = "fedavg"
stages = ["personalized"]
hyper = { personal_epochs = 1 }
rounds = 1
grid = { lr = [0.1, 0.2, 0.3] }
validation = 0.1

[reference.both]
small = { personalized = [50.0, 0.5], global = [40.0] }
diff = { global = [-2.0] }
"""


@pytest.fixture
def table(tmp_path: Path) -> Expansion:
    path = tmp_path / "stages.toml"
    path.write_text(SUITE)
    return expand(load(str(path)))


def test_a_column_stands_once_per_stage(table: Expansion) -> None:
    small = table.columns[0]
    assert table.heads[:2] == (ColumnHead(small, "personalized", "PM"), ColumnHead(small, "global", "GM"))
    assert [head.id for head in table.heads[:2]] == ["small/personalized", "small/global"]
    assert [head.name for head in table.heads[2:]] == ["Digits All PM", "Digits All GM"]
    assert table.layout.blocks == "group"


def test_cells_know_stage_subset_and_reference(table: Expansion) -> None:
    assert set(table.places) == {
        (row, f"{column}/{stage}")
        for column in ("small", "all")
        for row, stage in (("both", "personalized"), ("both", "global"), ("tuned", "personalized"))
    }
    cell = table.places["both", "small/personalized"]
    assert (cell.reading, cell.reference) == (Reading("personalized", None, 2), Reference(50.0, 0.5))
    assert table.places["both", "small/global"].reference == Reference(40.0)
    assert table.places["both", "all/global"].reference is None
    assert [run.seed for run in cell.needed] == [0, 1] and cell.has_scores


def test_cells_know_their_choices(table: Expansion) -> None:
    cell = table.places["tuned", "small/personalized"]
    assert [[point.run.method.hyper["lr"] for point in points] for points in cell.choices] == [[0.1, 0.2, 0.3]] * 2
    assert {point.validation.validation for points in cell.choices for point in points} == {0.1}
    assert [len(runs) for runs in cell.by_seed] == [6, 6]
    assert {run.id for one in table.cells for run in one.needed} == {run.id for run in table.runs}


def test_differences(table: Expansion) -> None:
    assert table.derived == (
        Derived("diff", "Diff.", "columns", ("small", "all"), {("both", "global"): Reference(-2.0)}),
    )


def test_what_rests_on_no_printed_value_is_known(table: Expansion) -> None:
    cell = table.cells[0]
    told = type(cell)(cell.row, cell.column, cell.reading, cell.runs, sources={"lr": "guess", "steps": "paper"})
    assert told.rests_on == {"lr": "guess"}


def test_without_stages_a_column_stands_once() -> None:
    table = expand(load("cafeme-table1"))
    assert [head.id for head in table.heads] == [head.column.id for head in table.heads]
    assert {head.stage for head in table.heads} == {None} and table.layout.blocks == "none"
