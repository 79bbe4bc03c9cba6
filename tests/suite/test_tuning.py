"""Grids: what a suite may say of them, and the trials they come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import Search, searches
from pflbench.suite.user_supplied import UserSupplied

from .samples import raw, staged, write

TRIALS = {"fedavg": 9, "fedprox": 3, "scaffold": 9, "fedrep": 3, "per-fedavg": 9, "pfedme": 3, "pfedbayes": 12}
GRID = {"lr": [0.1, 0.01], "epochs": {"value": [1, 3, 5], "source": "paper"}}
METHOD = """
from dataclasses import dataclass
from pflbench.methods.base import Method

@dataclass(frozen=True)
class Mine(Method):
    lr: float
    kind: str = "a"
    fast: bool = False
    batch: int | None = None
"""


def tuned(base: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    return (base or raw()) | {
        "tune": {"columns": ["b"], "grid": {"fedavg": {"lr": [0.1, 0.01]}}} | keys,
    }


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return load(write(tmp_path / "tuned.toml", tuned()))


@pytest.fixture(scope="module")
def table1() -> Suite:
    return load("pfedvem-table1")


def values(search: Search) -> list[tuple[Any, ...]]:
    return [tuple(trial.values.values()) for trial in search.trials]


def test_the_searches_of_a_shipped_suite(table1: Suite) -> None:
    found = {method: searches(table1, method) for method in (*TRIALS, "pfedvem")}
    assert {method: len(search.trials) for method, (search, *_) in found.items()} == TRIALS | {"pfedvem": 9}
    assert [s.column.id for s in found["pfedme"]] == [
        f"{d}-100" for d in ("fashion-mnist", "cifar10", "cifar100", "sun397")
    ]
    assert {method: search.reading.stage for method, (search, *_) in found.items()} == {
        **dict.fromkeys(("fedavg", "fedprox", "scaffold"), "global"),
        **dict.fromkeys(("fedrep", "per-fedavg", "pfedme", "pfedbayes", "pfedvem"), "personalized"),
    }
    assert all(trial.run.seed == 41 for some in found.values() for search in some for trial in search.trials)
    assert values(found["fedavg"][2])[:4] == [(0.01, 10), (0.01, 50), (0.01, 100), (0.001, 10)]
    hyper = [trial.run.method.hyper for trial in found["fedavg"][2].trials]
    assert [(h["lr"], h["batch"], h["epochs"]) for h in hyper[:2]] == [(0.01, 10, 5), (0.01, 50, 5)]


def test_a_trial_is_the_tables_run_with_a_part_held_out(tmp_path: Path) -> None:
    whole = suite = load(write(tmp_path / "whole.toml", tuned(grid={"fedavg": GRID})))
    (search,) = searches(whole, "fedavg")
    assert (search.column.id, search.reading.stage, search.reading.steps, search.guest) == ("b", "global", None, False)
    assert list(search.grid) == ["lr", "epochs"]
    assert values(search) == [(lr, epochs) for lr in (0.1, 0.01) for epochs in (1, 3, 5)]
    for trial in search.trials:
        sets = [f"fedavg.{key}={value}" for key, value in trial.values.items()]
        (run,) = expand(suite, rows=["fedavg"], columns=["b"], seeds=[41], overrides=sets).runs
        assert trial.run == run.model_copy(update={"validation": 0.1})
        assert trial.run.setting() != run.setting()  # so that no report shows it


def test_options_reach_the_trials(suite: Suite) -> None:
    (search,) = searches(
        suite, "fedavg-ft", columns=["a"], seeds=[7], rounds=2, precision="fp64", profile="smoke",
        overrides=["fedavg.epochs=9", "finetune.steps=6"],
    )  # fmt: skip
    assert (search.column.id, search.reading.stage, search.reading.steps) == ("a", "finetuned", (5,))
    assert values(search) == [(0.1,), (0.01,)]  # what is set is not varied
    run = search.trials[0].run
    assert (run.seed, run.rounds, run.precision, run.method.hyper["epochs"]) == (7, 2, "fp64", 9)
    assert run.scoring.finetune and run.scoring.finetune.steps == 6


def test_personal_models_before_the_global_one(tmp_path: Path) -> None:
    suite = load(write(tmp_path / "staged.toml", staged()))
    (both,) = searches(suite, "ditto", columns=["b"], grid=["lam=0.5,1"])
    assert (both.reading.stage, both.column.smallest, both.selected.entry.hyper) == ("personalized", 3, {})
    (strong,) = searches(suite, "strong", columns=["a"], grid=["lam=0.5,1"], seeds=[9])
    assert strong.selected.entry.hyper == {"lam": 2.0} and [t.run.method.hyper["lam"] for t in strong.trials] == [
        0.5,
        1.0,
    ]


def test_own_methods_and_own_grids(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    grid = ["lr = 1, 1e-5", "kind=a,b", "fast=true,false", "batch=none,20"]
    suite = replace(suite, supplied=UserSupplied(imports=True))
    (search,) = searches(suite, f"{tmp_path / 'mine.py'}:Mine", grid=grid)
    assert (search.guest, search.name, search.reading.stage) == (True, "mine.py:Mine", "finetuned")
    assert search.selected.location == f"{tmp_path / 'mine.py'}:Mine"
    assert len(search.trials) == 16 and search.trials[0].values == {"lr": 1.0, "kind": "a", "fast": True, "batch": None}
    assert search.trials[0].run.method.hyper == {"lr": 1.0, "kind": "a", "fast": True}
    assert search.trials[-1].run.method.hyper == {"lr": 1e-5, "kind": "b", "fast": False, "batch": 20}


def test_a_row_with_a_method_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    table = tuned(grid={"mine.py:Mine": {"lr": [1, 2]}})
    table["row"].append({"id": "mine", "title": "Mine", "method": "mine.py:Mine", "stage": "global"})
    table["hyper"]["mine.py:Mine"] = {"lr": 3.0}
    suite = load(write(tmp_path / "tuned.toml", table))
    by_id, by_reference = (searches(suite, name)[0] for name in ("mine", f"{tmp_path / 'mine.py'}:Mine"))
    assert by_id == by_reference and not by_id.guest and by_id.name == "mine.py:Mine"
    assert [trial.run.method.hyper["lr"] for trial in by_id.trials] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("fedavgg", {}, "Unknown method 'fedavgg'. Did you mean 'fedavg'"),
        ("cafeme", {}, "tuned.toml has no grid for cafeme. Give one with --grid key=value,value."),
        ("fedavg", {"columns": ["c"]}, "Unknown column 'c'"),
        ("fedavg", {"seeds": [0]}, "Nothing is chosen on seed 0, which the suite reports"),
        ("fedavg", {"seeds": [1], "profile": "smoke"}, "Nothing is chosen on seed 1, which the suite reports"),
        ("fedavg", {"overrides": ["fedavg.lr=1"]}, "There is nothing to tune: --set fixes all of it."),
        ("fedavg", {"grid": ["lr"]}, "--grid lr: Write key=value,value"),
        ("fedavg", {"grid": ["lr="]}, "--grid lr=: Write key=value,value"),
        ("fedavg", {"grid": ["rl=1"]}, "--grid rl=1: Unknown hyperparameter of fedavg 'rl'. Did you mean 'lr'?"),
        ("fedavg", {"grid": ["lr=1,x"]}, "--grid lr=1,x: fedavg.lr must be float, not 'x'."),
        ("fedavg", {"grid": ["lr=1", "lr=2"]}, "--grid lr=2: Write key=value,value, each key once."),
        (
            "fedavg",
            {"grid": ["lr=1"], "overrides": ["fedavg.lr=2"]},
            "There is nothing to tune: --set fixes all of it.",
        ),
        ("fedavg", {"overrides": ["cafeme.steps=2"]}, "--set cafeme.steps=2: Unknown selected method"),
    ],
)
def test_what_cannot_be_tuned(suite: Suite, method: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        searches(suite, method, **options)
    assert expected in str(caught.value)


def test_rows_that_leave_it_open(tmp_path: Path) -> None:
    table = tuned(grid={"fedavg": GRID})
    table["row"][0]["id"] = "plain"
    table["reference"] = {}
    del table["tune"]["columns"]
    suite = load(write(tmp_path / "tuned.toml", table))
    for options, expected in (
        ({"columns": ["a"]}, "fedavg has several rows: name one, plain or fedavg-ft."),
        ({}, "tuned.toml does not say which columns it tunes: name one with --column."),
    ):
        with pytest.raises(UsageError, match=expected):
            searches(suite, "fedavg", **options)  # type: ignore[arg-type]
    assert len(searches(suite, "plain", columns=["a"])[0].trials) == 6
    grid = load(write(tmp_path / "staged.toml", staged()))
    with pytest.raises(UsageError, match="nothing to tune: in row local each client chooses lr and batch for itself"):
        searches(grid, "local", columns=["a"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"column": ["a"]}, "tune.column: Unknown key"),
        ({"columns": ["c"]}, "tune.columns: Unknown column 'c'"),
        ({"seed": -1}, "tune.seed: "),
        ({"validation": 1.0}, "tune.validation: "),
        ({"grid": {"fedavg": {}}}, "tune.grid.fedavg: "),
        ({"grid": {"fedavg": {"lr": []}}}, "tune.grid.fedavg.lr: "),
        (
            {"grid": {"fedavg": GRID | {"rate": [1.0]}}},
            "tune.grid.fedavg: Unknown hyperparameter of fedavg 'rate'",
        ),
        ({"grid": {"fedavg": {"lr": ["x"]}}}, "tune.grid.fedavg: fedavg.lr must be float, not 'x'."),
        ({"grid": {"fedavg": GRID, "ditto": {"lam": [1.0]}}}, "tune.grid: Unknown method 'ditto'."),
        ({"read": {"fedavgg": "last-10"}}, "tune.read: Unknown method 'fedavgg'. Did you mean 'fedavg' or"),
        ({"read": {"fedavg": "best"}}, "tune.read.fedavg: "),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path / "wrong.toml", tuned(**change)))
    assert f"wrong.toml: {expected}" in str(caught.value)


def test_a_file_takes_the_search_over(tmp_path: Path) -> None:
    base = tuned(
        columns=["a", "b"],
        seed=5,
        grid={"fedavg": {"lr": [0.1, 0.01]}, "cafeme": {"steps": [1, 2]}},
    )
    write(tmp_path / "base.toml", base)
    child = {
        "suite": {"extends": "base.toml", "name": "child", "title": "Child"},
        "column": [{"id": "c", "like": "a"}, {"id": "b", "like": "b"}],
        "row": [{"id": "fedavg", "like": "fedavg"}, {"id": "fedavg-ft", "like": "fedavg-ft"}],
    }
    (search,) = searches(load(write(tmp_path / "child.toml", child)), "fedavg")
    assert (search.column.id, search.trials[0].run.seed, len(search.trials)) == ("b", 5, 2)
    assert [t.run for t in search.trials] == [
        t.run for t in searches(load(str(tmp_path / "base.toml")), "fedavg", columns=["b"])[0].trials
    ]
    own = child | {"tune": {"columns": ["c"], "grid": {"fedavg": {"lr": [1.0, 2.0, 3.0]}}}}
    (search,) = searches(load(write(tmp_path / "child.toml", own)), "fedavg")
    assert (search.column.id, search.trials[0].run.seed, len(search.trials)) == ("c", 5, 3)


def test_a_row_may_have_a_grid_of_its_own(tmp_path: Path) -> None:
    table = tuned(grid={"fedavg": GRID, "fedavg-ft": {"lr": [0.5, 0.25, 0.125]}})
    suite = load(write(tmp_path / "own.toml", table))
    (own,) = searches(suite, "fedavg-ft")
    assert [trial.values for trial in own.trials] == [{"lr": lr} for lr in (0.5, 0.25, 0.125)]
    (method,) = searches(suite, "fedavg")
    assert len(method.trials) == 6
    # A suite that extends this one has the grids of the rows that it has.
    heirs = {
        "suite": {"extends": "own.toml", "name": "heir", "title": "Heir"},
        "column": [{"id": "b", "like": "b"}],
        "row": [{"id": "plain", "like": "fedavg"}],
        "evaluation": {"report": {"steps": [5]}},
    }
    del table["evaluation"]["finetune"], table["evaluation"]["report"], table["row"][1:]
    del heirs["evaluation"], table["tune"]["grid"]["fedavg-ft"]
    for column in table["column"]:
        del column["finetune"]
    table["row"].append({"id": "second", "title": "S", "method": "fedavg", "stage": "global"})
    table["hyper"] = {}
    table["tune"]["grid"]["second"] = {"lr": [0.5]}
    write(tmp_path / "own.toml", table)
    heir = load(write(tmp_path / "heir.toml", heirs))
    assert set(heir.document().tune.grid) == {"fedavg"}


def test_the_suite_says_which_scored_rounds_choose(tmp_path: Path) -> None:
    suite = load(write(tmp_path / "tuned.toml", tuned(read={"fedavg": "last-10"})))
    (ten,), (last,) = searches(suite, "fedavg"), searches(load(write(tmp_path / "last.toml", tuned())), "fedavg")
    assert (ten.reading.read_as, last.reading.read_as) == ("last-10", "last")
    assert [trial.run for trial in ten.trials] == [trial.run for trial in last.trials]


def test_a_search_knows_how_its_table_averages_clients(tmp_path: Path) -> None:
    table = tuned()
    table["evaluation"]["mean"] = "examples"
    (found,) = searches(load(write(tmp_path / "tuned.toml", table)), "fedavg", grid=["lr=0.1,0.2"])
    assert found.reading.mean == "examples"
