"""Several seeds, written points and the fine-tuning rate in the search of a suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.tuning import judged_by, searches, tuned_rows

from .samples import raw, write

POINTS = [{"lr": 0.1, "finetune": {"lr": 0.5}}, {"lr": 0.1, "finetune": {"lr": 0.05}}, {"lr": 0.2, "finetune.lr": 0.5}]


def fair(**keys: Any) -> dict[str, Any]:
    tune = {"columns": ["a"], "points": {"fedavg-ft": POINTS}}
    return raw() | {"tune": tune | {"grid": {"fedavg": {"lr": [1.0, 2.0]}}} | keys}


def test_a_trial_has_a_run_for_each_seed(tmp_path: Path) -> None:
    suite = load(write(tmp_path / "fair.toml", fair()))
    (search,) = searches(suite, "fedavg-ft", seeds=[41, 42])
    assert search.reading.stage == "finetuned"
    assert search.grid == {"lr": [0.1, 0.2], "finetune.lr": [0.5, 0.05]}
    assert [dict(trial.values) for trial in search.trials] == [
        {"lr": 0.1, "finetune.lr": 0.5}, {"lr": 0.1, "finetune.lr": 0.05}, {"lr": 0.2, "finetune.lr": 0.5},
    ]  # fmt: skip
    for trial in search.trials:
        assert [(run.seed, run.validation) for run in trial.runs] == [(41, 0.1), (42, 0.1)]
        sets = [f"fedavg.lr={trial.values['lr']}", f"finetune.lr={trial.values['finetune.lr']}"]
        runs = expand(suite, rows=["fedavg-ft"], columns=["a"], seeds=[41, 42], overrides=sets).runs
        assert trial.runs == tuple(run.model_copy(update={"validation": 0.1}) for run in runs)
        assert runs[0].scoring.finetune and runs[0].scoring.finetune.lr == trial.values["finetune.lr"]


def test_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    suite = load(write(tmp_path / "fair.toml", fair()))
    (plain,) = searches(suite, "fedavg", seeds=[9], grid=["finetune.lr=0.1,0.2"])
    assert [[run.seed for run in trial.runs] for trial in plain.trials] == [[9], [9]]
    assert plain.trials[0].run.rounds == 3
    assert plain.trials[1].values == {"finetune.lr": 0.2}
    (several,) = searches(suite, "fedavg", seeds=[7, 8])
    assert [run.seed for run in several.trials[0].runs] == [7, 8]
    (left,) = searches(suite, "fedavg-ft", overrides=["finetune.lr=0.3"])
    assert [dict(trial.values) for trial in left.trials] == [{"lr": 0.1}, {"lr": 0.2}]


def test_the_rows_that_a_suite_tunes(tmp_path: Path) -> None:
    assert tuned_rows(load(write(tmp_path / "fair.toml", fair()))) == ["fedavg", "fedavg-ft"]
    with pytest.raises(UsageError, match="Which method"):
        tuned_rows(load(write(tmp_path / "plain.toml", fair() | {"tune": {"columns": ["a"]}})))


def test_a_row_that_says_its_stage_is_judged_by_it() -> None:
    assert judged_by(["global", "personalized"]) == "personalized"
    assert judged_by(["global", "personalized"], "global") == "global"
    assert judged_by(["global"], "finetuned") == "global"


def test_fine_tuning_by_row(tmp_path: Path) -> None:
    table = fair()
    table["column"][0]["finetune"] |= {"fedavg": {"lr": 0.3}, "fedavg-ft": {"lr": {"value": 0.4, "source": "tuned"}}}
    table["row"][0]["stages"] = ["global", "finetuned"]
    cells = {
        cell.row.id: cell for cell in expand(load(write(tmp_path / "fair.toml", table)), columns=["a"]).cells
    }  # fmt: skip
    rates = {id: cell.runs[0].scoring.finetune for id, cell in cells.items()}
    assert {id: finetune and finetune.lr for id, finetune in rates.items()} == {
        "fedavg": 0.3, "fedavg-ft": 0.4, "cafeme": 0.2,
    }  # fmt: skip
    assert cells["fedavg-ft"].sources["finetune.lr"] == "tuned"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"halving": "12@3"}, "tune.halving: Unknown key"),
        (
            {"points": {"cafeme": [{"steps": 1}, {"order": "first"}]}},
            "tune.points.cafeme[1]: other keys than the first",
        ),
        ({"points": {"cafeme": [{"step": 1}, {"step": 2}]}}, "tune.points.cafeme: Unknown hyperparameter"),
        ({"points": {"cafme": [{"steps": 1}, {"steps": 2}]}}, "tune.points: Unknown method 'cafme'"),
        ({"grid": {"fedavg": {"finetune": {"rate": [1.0]}}}}, "tune.grid.fedavg: Unknown option"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path / "wrong.toml", fair(**change)))
    assert f"wrong.toml: {expected}" in str(caught.value)
