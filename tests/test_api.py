"""`import pflbench`: the same as the command line, from Python."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pflbench
from pflbench.errors import UsageError
from pflbench.result import RunResult, Score
from pflbench.running.job import Done
from pflbench.running.training import Outcome
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load as load_suite
from pflbench.testing import Finding, checks, tiny_spec

DOCUMENT = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def script(text: str, *options: str) -> str:
    """What a script prints that runs in a Python of its own."""
    Path("script.py").write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, *options, "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_page_on_python_does_what_it_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    files = {match[1]: block for block in blocks if (match := re.match(r"# (\w+\.py)\n", block))}
    for name, block in files.items():
        Path(name).write_text(block, encoding="utf-8")
    printed = script("\n".join(("print('once')", *(block for block in blocks if block not in files.values()))))
    assert printed.count("once\n") == 1, "workers do not run the script again"
    assert "CAFeMe, Table 1" in printed and "4 runs to do" in printed and "| FedAvg" in printed
    assert "\\caption{CAFeMe, Table 1" in printed and "\\end{table}" in printed
    assert "│ Cautious" in printed or "Cautious " in printed.rpartition("Table 1")[2]


def test_the_package_is_light_and_names_what_it_offers() -> None:
    heavy = "{m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'pydantic', 'typer'}"
    assert script(f"import sys, pflbench\nprint({heavy}, 'run' in dir(pflbench))") == "set() True\n"
    assert script("import sys, pflbench as pb\npb.select('cafeme-table1')\nprint('torch' in sys.modules)") == "False\n"
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        pflbench.runn  # noqa: B018


def test_a_selection_is_checked_at_once() -> None:
    with pytest.raises(UsageError, match="Did you mean 'fedavg'"):
        pflbench.select("cafeme-table1", methods=["fedvg"])
    with pytest.raises(UsageError, match=r"Unknown argument 'job'\. Did you mean 'jobs'"):
        pflbench.run(pflbench.select("cafeme-table1"), job=2)
    with pytest.raises(UsageError, match="Which suite"):
        pflbench.plan(pflbench.Selection())
    with pytest.raises(UsageError, match="No results of cafeme-table1"):
        pflbench.table(pflbench.select("cafeme-table1"))


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"method": ["fedavg"]}, "Unknown argument 'method'. Did you mean 'methods'"),
        ({"columns": "rmnist-shards"}, "`columns` is 'rmnist-shards'; expected a list"),
        ({"methods": "fedavg"}, "`methods` is 'fedavg'; expected a list"),
        ({"seeds": 3}, "`seeds` is 3; expected a list"),
        ({"seeds": ["a"]}, "`seeds` has 'a'; expected a whole number"),
        ({"seeds": [-1]}, "`seeds` has -1; expected a whole number"),
        ({"rounds": "x"}, "`rounds` has 'x'; expected a whole number"),
        ({"rounds": 0}, "At least one round"),
        ({"profile": 3}, "`profile` has 3; expected a text"),
    ],
)
def test_a_wrong_choice_is_named(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        pflbench.select("cafeme-table1", **choices)


def test_seeds_of_numpy_are_numbers() -> None:
    assert repr(pflbench.select("cafeme-table1", seeds=np.arange(2)).seeds) == "(0, 1)"


def test_a_suites_name_is_a_selection() -> None:
    with pytest.raises(UsageError, match="No results of cafeme-table1"):
        pflbench.table("cafeme-table1", fresh=True)
    with pytest.raises(UsageError, match="No finished run"):
        pflbench.scores("cafeme-table1")
    counted = pflbench.plan("fedec-table1")
    assert str(counted) == str(pflbench.plan(pflbench.select("fedec-table1")))
    calls: list[Callable[[Any], object]] = [pflbench.run, pflbench.plan, pflbench.table, pflbench.scores]
    for call in calls:
        with pytest.raises(UsageError, match="Did you mean 'cafeme-table1'"):
            call("cafeme-tabel1")
        with pytest.raises(UsageError, match=r"3 is no selection. Pass `pb.select"):
            call(3)


@pytest.mark.parametrize(
    "how", [{"jobs": "x"}, {"jobs": 0}, {"evaluate_every": "x"}, {"shard": 3}, {"memory_limit": "x"}]
)
def test_a_wrong_value_of_an_execution_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        pflbench.run("cafeme-table1", **how)


def test_a_plan_of_statistics_says_what_run_would_count() -> None:
    part = pflbench.select("fedec-table1", profile="smoke", columns=["cifar10"])
    assert "CIFAR10: to be counted." in str(pflbench.plan(part))
    assert pflbench.run(part).good
    assert "1797 images" in str(pflbench.plan(part)) and "counted before" in str(pflbench.plan(part))


def test_a_plan_says_that_a_time_is_unknown(tmp_path: Path) -> None:
    part = pflbench.select("cafeme-table1", columns=["rmnist-shards"], methods=["fedavg"], profile="smoke", seeds=[99])
    assert "for the 0 of known time" in str(pflbench.plan(part, tmp_path))


def test_a_table_without_results_is_an_error_though_others_have_some() -> None:
    part = pflbench.select("cafeme-table1", profile="smoke")
    spec = expand(load_suite("cafeme-table1"), part).runs[0]
    tuned = spec.scoring.finetune
    moments = [("global", 0), *(("finetuned", step) for step in range(tuned.steps + 1 if tuned else 0))]
    scores = tuple(Score(stage, spec.rounds, step, 0, 5, 10, 1.0, 0.5) for stage, step in moments)
    Store(Path("results")).write(RunResult(spec, scores, {}))
    assert pflbench.table(part).content.has_results
    with pytest.raises(UsageError, match="No results of cafeme-table1"):
        pflbench.table(pflbench.select("cafeme-table1", profile="quick"))


MINE = """
from dataclasses import dataclass
from pflbench.methods.fedavg import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    def draws(self, round):
        return ({},)
"""


@pytest.mark.parametrize(
    ("takes", "fine"), [("*super().draws(round), object()", False), ("*super().draws(round),", True)]
)
def test_a_class_of_a_file_is_checked_like_any_method(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, takes: str, fine: bool
) -> None:
    monkeypatch.setattr(checks, "CHECKS", {"purity": checks.purity})
    (tmp_path / "mine.py").write_text(MINE.replace("({},)", f"({takes})"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    module = importlib.import_module("mine")
    (finding,) = pflbench.check(module.Mine)
    assert (finding.problem is None) == fine, finding
    part = pflbench.select("cafeme-table1", methods=[module.Mine])
    assert part.methods == (f"{tmp_path / 'mine.py'}:Mine",)


def test_a_class_of_a_package_is_selected_as_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {"__init__": "", "rates": "LR = 0.1\n", "m": "from .rates import LR\n" + MINE}.items():
        (tmp_path / "mypack").mkdir(exist_ok=True)
        (tmp_path / "mypack" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    cls = importlib.import_module("mypack.m").Mine
    assert pflbench.select("cafeme-table1", methods=[cls]).methods == ("mypack.m:Mine",)


def test_a_class_outside_a_file_is_refused_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner: ...

    cell = type("Cell", (), {"__module__": "__main__"})
    for one in (Inner, cell, 3):
        with pytest.raises(UsageError, match=r"Write the class to a file, such as mine\.py"):
            pflbench.select("cafeme-table1", methods=[one])  # type: ignore[list-item]


def test_an_outcome_and_a_finding_say_what_happened() -> None:
    spec, left = tiny_spec(0, rounds=3), tiny_spec(1, rounds=3)
    names = dict.fromkeys((spec.id, left.id), "shards · foo")
    outcome = Outcome([spec], ["No data."], {left: "raised"}, names, [Done(spec, "failed", "diverged in round 1")])
    assert not outcome.good and str(outcome).splitlines() == [
        "No data.",
        "shards · foo · seed 0 · 3 rounds: diverged in round 1",
        "shards · foo · seed 1 · 3 rounds: failed before (--redo failed tries again): raised",
        "0 runs finished, 1 failed, 0 not started, 0 by others.",
    ]
    assert str(Finding("purity", "it writes")) == "FAIL purity: it writes"
