"""The suites of FedEC's tables: what they ask for, and what they share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pflbench.engine.run import sample_cohort
from pflbench.errors import UsageError
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import searches

SUITES = ["table2", "variants", "readings", "femnist"]
ROWS = {
    "Local Only": ("local", "personalized"),
    "FedAvg": ("fedavg", "global"),
    "SCAFFOLD": ("scaffold", "global"),
    "pFedMe": ("pfedme", "personalized"),
    "LG-FedAvg": ("lg-fedavg", "personalized"),
    "L2GD": ("l2gd", "personalized"),
    "APFL": ("apfl", "personalized"),
    "FedPer": ("fedper", "personalized"),
    "Per-FedAvg": ("per-fedavg-split", "personalized"),
    "FedRep": ("fedrep", "personalized"),
    "FedEC-wo": ("fedec", "personalized"),
    "FedEC-l2": ("fedec", "personalized"),
    "FedEC": ("fedec", "personalized"),
}
COLUMNS = [
    ("CIFAR10", "(100,2)"),
    ("CIFAR10", "(100,5)"),
    ("CIFAR10", "(1000,2)"),
    ("CIFAR100", "(100,5)"),
    ("CIFAR100", "(100,20)"),
    ("FEMNIST", "(150,3)"),
]
ADAPTED = {"pfedme", "per-fedavg", "fedec-wo", "fedec-l2", "fedec"}
PRIVATE = {"lg-fedavg", "fedper", "fedrep"}


@pytest.fixture(scope="module")
def tables() -> dict[str, Expansion]:
    return {name: expand(load(f"fedec-{name}")) for name in SUITES}


@pytest.fixture(scope="module")
def table2(tables: dict[str, Expansion]) -> Expansion:
    return tables["table2"]


def means(table: Expansion) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {row.title: [] for row in table.rows}
    for cell in table.cells:
        assert cell.reference and cell.reference.spread is None
        found[cell.row.title].append(cell.reference.mean)
    return found


def test_every_row_and_column_as_printed(table2: Expansion) -> None:
    assert {row.title: (row.method, *row.stages) for row in table2.rows} == ROWS
    assert [row.title for row in table2.rows] == list(ROWS)
    assert [(c.group, c.title) for c in table2.columns] == COLUMNS
    for c in table2.columns:
        assert c.title.startswith(f"({c.clients},")
    assert (table2.layout.decimals, table2.layout.bold, table2.stages) == (2, "best-per-column", {})
    assert {cell.reading.mean for cell in table2.cells} == {"examples"}
    assert (table2.seeds, table2.spread.kind, table2.spread.ddof) == ((42, 43, 44, 45, 46), "std", 1)
    assert len(table2.cells) == 78 and len(table2.runs) == 390


def test_numbers_as_printed_agree_with_what_the_paper_says_of_them(table2: Expansion) -> None:
    printed = means(table2)
    assert (
        printed["FedEC"]
        == [92.35, 83.78, 92.11, 81.75, 59.1, 77.3]
        == list(map(max, zip(*printed.values(), strict=True)))
    )
    # The text's differences to FedEC-wo.
    gains = [a - b for a, b in zip(printed["FedEC"], printed["FedEC-wo"], strict=True)]
    assert gains == pytest.approx([1.32, 1.52, 1.24, 1.46, 1.03, 24.03])
    local = printed["Local Only"]
    for title in ("FedAvg", "SCAFFOLD"):
        assert all(a < b for a, b in zip(printed[title], local, strict=True))
    assert [a < b for a, b in zip(printed["LG-FedAvg"], local, strict=True)] == [True] * 5 + [False]
    assert [a < b for a, b in zip(printed["L2GD"], local, strict=True)] == [True] * 4 + [False] * 2
    short = {c.reference.text for c in table2.cells if c.reference and c.reference.text}
    assert short == {"67.2", "59.1", "77.3"} and not table2.shows_spread
    assert printed["Per-FedAvg"] == [82.27, 67.2, 67.36, 72.05, 52.49, 71.51] and printed["APFL"][4] == 55.44


def test_what_is_scored_beside_what_is_shown(table2: Expansion) -> None:
    for cell in table2.cells:
        kept = ("stored", "sampled") if cell.row.id in ADAPTED else ("stored",) if cell.row.id in PRIVATE else ()
        assert cell.runs[0].scoring.stages == (*cell.row.stages, *kept)


def test_every_hyperparameter_says_where_it_comes_from(tables: dict[str, Expansion]) -> None:
    for table in tables.values():
        for cell in table.cells:
            silent = cell.runs[0].method.hyper.keys() - cell.sources.keys()
            assert silent <= ({"alpha"} if cell.row.id == "fedec-wo" else set()), (cell.row.id, silent)


def test_m_fedec_is_one_row(table2: Expansion) -> None:
    suite = load("fedec-table2")
    assert [row.title for row in expand(suite, methods=["fedec"]).rows] == ["FedEC"]
    assert [row.title for row in expand(suite, methods=["fedec-l2"]).rows] == ["FedEC-l2"]


def test_suites_share_their_runs(tables: dict[str, Expansion]) -> None:
    ids = {name: {run.id for run in table.runs} for name, table in tables.items()}
    # Six columns, five seeds; of the variants and the readings, those that Table 2 does not have.
    assert len(ids["variants"] - ids["table2"]) == 7 * 6 * 5
    assert len(ids["readings"] - ids["table2"]) == 1 * 6 * 5
    assert len(ids["femnist"] - ids["table2"]) == 8 * 13 * 5
    assert len(ids["femnist"] & ids["table2"]) == 13 * 5


def test_released_forms(tables: dict[str, Expansion]) -> None:
    hyper = {cell.row.id: cell.runs[0].method.hyper for cell in tables["variants"].cells}
    changes = {
        "scaffold-released": ("scaffold", {"server_lr": 0.1, "momentum": 0.5, "weight_decay": 0.0001, "clip": 10.0}),
        "apfl-released": ("apfl", {"released": True}),
        "per-fedavg-small": ("per-fedavg", {"inner_lr": 0.0001}),
        **{f"{row}-server": (row, {"private_init": "server"}) for row in ("lg-fedavg", "apfl", "fedper", "fedrep")},
    }
    for row, (ours, changed) in changes.items():
        assert hyper[row] == hyper[ours] | changed
    printed = {(cell.row.id, cell.column.id): cell.reference for cell in tables["variants"].cells}
    for row, (ours, _) in changes.items():
        assert all(printed[row, c.id] == printed[ours, c.id] for c in tables["variants"].columns)


def test_readings_stand_beside_each_other(tables: dict[str, Expansion]) -> None:
    table = tables["readings"]
    assert list(table.stages) == ["global", "personalized", "stored", "sampled"]
    shown = {row.id: set(row.stages) for row in table.rows}
    assert shown == {
        "fedavg-adapted": {"global", "personalized", "stored"},
        **{row: {"personalized", "stored", "sampled"} for row in ADAPTED},
        **{row: {"personalized", "stored"} for row in PRIVATE},
    }
    # The paper's number stands beside what Table 2 shows, and there alone.
    ours = {(c.row.id, c.column.id, c.stage): c.reference for c in tables["table2"].cells}
    for cell in table.cells:
        row = "fedavg" if cell.row.id == "fedavg-adapted" else cell.row.id
        assert cell.reference == ours.get((row, cell.column.id, cell.stage))
    hyper = {cell.row.id: cell.runs[0].method.hyper for cell in table.cells}
    adapted, without = hyper["fedavg-adapted"], hyper["fedec-wo"]
    assert (adapted["personal_epochs"], adapted["personal_lr"]) == (without["epochs"], without["inner_lr"])


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
        ('{ like = "fedec-wo.epochs", value = 3 }', "it has the other one's value, not its own"),
    ):
        file.write_text(f"{text}hyper.fedavg.personal_epochs = {wrong}")
        with pytest.raises(UsageError, match=says):
            load(str(file))


def test_departures_of_the_variants_are_those_of_their_rows(tables: dict[str, Expansion]) -> None:
    table = tables["variants"]
    for cell in table.cells:
        here = {departure.what: departure.here for departure in table.departures_of(cell)}
        hyper, code = cell.runs[0].method.hyper, {d.what for d in table.departures_of(cell) if d.code}
        released = cell.row.id == "scaffold-released"
        if cell.row.id.startswith("scaffold"):
            assert f"server rate {hyper['server_lr']:g}" in here["SCAFFOLD"] and ("SCAFFOLD" in code) != released
            assert ("clipped" in here["SCAFFOLD"]) == released == ("clip" in hyper)
        if cell.row.id.startswith("per-fedavg"):
            assert f"inner rate {hyper['inner_lr']}" in here["Per-FedAvg"]
        if cell.runs[0].method.name in PRIVATE | {"apfl"}:
            server, start = hyper.get("private_init") == "server", "private parts at the start"
            assert here[start].startswith("the mean of the last cohort's") == server != (start in code)
        assert ("APFL's training" in here) == (hyper.get("released") is True)


def test_l2gd_on_femnist_has_the_released_rate(table2: Expansion) -> None:
    assert [note for note in table2.notes if "a = 1 on FEMNIST is the released code's" in note]
    cell = next(cell for cell in table2.cells if (cell.row.id, cell.column.id) == ("l2gd", "femnist-150-3"))
    assert (cell.runs[0].method.hyper["a"], cell.sources["a"]) == (1.0, "code")


def test_what_the_column_of_fedreps_code_does_not_have_of_it_is_told(tables: dict[str, Expansion]) -> None:
    def told(column: str) -> bool:
        notes = expand(load("fedec-femnist"), columns=[column]).notes
        return any("private parts start at the common initial model" in note for note in notes)

    assert told("nist-fedrep") and not told("nist-four")


def test_table1_counts_the_columns_of_table_2() -> None:
    document = load("fedec-table1").document()
    assert document.statistics is not None and not document.row
    printed = {id_: list(sizes.model_dump().values()) for id_, sizes in document.statistics.reference.items()}
    assert printed == {
        "cifar10": [60000, 50000, 10000, 10],
        "cifar100": [60000, 50000, 10000, 100],
        "femnist": [34674, 31123, 3551, 10],
    }
    for total, train, test, _ in printed.values():
        assert total == train + test
    assert [column.title for column in document.column] == ["CIFAR10", "CIFAR100", "FEMNIST"]


def test_the_search_goes_as_the_sheet_says() -> None:
    suite = load("fedec-table2")
    sizes = {row: {len(s.trials) for s in searches(suite, row)} for row in ("fedec-wo", "fedec-l2", "fedec")}
    assert sizes == {"fedec-wo": {8}, "fedec-l2": {4}, "fedec": {5}}
    found = searches(suite, "fedec-wo", full=True)
    assert [s.column.id for s in found] == ["cifar10-100-5", "femnist-150-3"] and len(found[0].trials) == 16
    for trial in found[0].trials:
        assert (trial.run.seed, trial.run.validation, trial.run.scoring.last) == (41, 0.1, 10)
        assert trial.run.method.hyper["constraint"] == "none"
    assert {s.reading.mean for s in found} == {"examples"}


@pytest.mark.parametrize("name", SUITES)
def test_smoke_stays_small_and_says_so(name: str) -> None:
    suite = load(f"fedec-{name}")
    smoke, quick = (expand(suite, profile=profile) for profile in ("smoke", "quick"))
    assert {run.dataset.name for run in smoke.runs} == {"digits"}
    assert max(run.rounds for run in smoke.runs) == 2 and max(run.clients for run in smoke.runs) <= 20
    assert {run.scoring.last for run in smoke.runs} == {2} and smoke.seeds == (42,)
    assert not {run.id for run in smoke.runs} & {run.id for run in expand(suite).runs}
    assert {(run.rounds, run.scoring.last, run.scoring.first) for run in quick.runs} == {(10, 1, 20)}
    if name == "table2":
        assert "nothing here compares" in smoke.notes[0]


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


def test_rows_that_seem_copied_are_suspect_where_they_do(table2: Expansion) -> None:
    copied = {"local", "fedavg", "scaffold", "lg-fedavg", "l2gd", "apfl", "fedper", "per-fedavg", "fedrep"}
    suspect = {
        (cell.row.id, cell.column.id)
        for cell in table2.cells
        if cell.reference and "copied" in (cell.reference.suspect or "")
    }
    cifar = {column.id for column in table2.columns} - {"femnist-150-3"}
    femnist = {("scaffold", "femnist-150-3"), ("per-fedavg", "femnist-150-3")}
    assert suspect == {(row, column) for row in copied for column in cifar} | femnist
