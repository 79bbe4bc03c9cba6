"""`import pflbench`: the same as the command line, from Python."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import pflbench
from pflbench import notebook, trust
from pflbench.errors import UsageError
from pflbench.names import load
from pflbench.result import RunResult, Score
from pflbench.running.events import Event
from pflbench.running.task import Done
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
    printed = script("\n".join(("print('once')", *blocks)))
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
    with pytest.raises(UsageError, match="Unknown: job"):
        pflbench.run(pflbench.select("cafeme-table1"), job=2)
    with pytest.raises(UsageError, match="Which suite"):
        pflbench.plan(pflbench.Selection())
    with pytest.raises(UsageError, match="No results of cafeme-table1"):
        pflbench.table(pflbench.select("cafeme-table1"))
    with pytest.raises(UsageError, match="columns: a list of them"):
        pflbench.select("cafeme-table1", columns="rmnist-shards")


def test_a_plan_of_statistics_says_what_run_would_count() -> None:
    part = pflbench.select("fedec-table1", profile="smoke", columns=["cifar10"])
    assert "CIFAR10: to be counted." in str(pflbench.plan(part))
    assert pflbench.run(part).good
    assert "1797 images" in str(pflbench.plan(part)) and "counted before" in str(pflbench.plan(part))


def test_a_plan_measures_unless_told_not_to() -> None:
    part = pflbench.select("cafeme-table1", columns=["rmnist-shards"], methods=["fedavg"], profile="smoke")
    assert "time unknown" in str(pflbench.plan(part, measure=False))
    heard: list[Event] = []
    assert " measured\n" in str(pflbench.plan(part, on_event=heard.append))
    assert [str(event).startswith("Measuring on one core") for event in heard] == [True]


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


CELL = """
import math
from math import tau as turn
import pflbench.methods.fedavg as base

FACTOR = 2
TABLE = (1, ("a", None))

def double(x):
    return FACTOR * x

class Helper:
    kind = TABLE

def unused(): ...

class Mine(base.FedAvg):
    helper = Helper

    def value(self, x):
        local = [double(math.floor(x + turn)) for _ in range(1)]
        return local, len(self.helper.kind), sum
"""


def made(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reference of `Mine` as a notebook defines it: its source is known by the cell's name only."""
    file = f"<cell {len(linecache.cache)}>"
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(keepends=True), file))
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(text, file, "exec"), vars(main))
    return notebook.reference(vars(main)["Mine"])


def test_a_class_of_a_cell_becomes_a_file_with_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(CELL, monkeypatch)
    trust.grant(first)
    cls = load(first)
    assert cls().value(0.5) == ([12], 2, sum)
    text = Path(first.rpartition(":")[0]).read_text(encoding="utf-8")
    assert "unused" not in text and "import math as math" in text
    assert made(CELL, monkeypatch) == first, "the same class is the same file"
    assert made(CELL.replace("FACTOR = 2", "FACTOR = 3"), monkeypatch) != first
    assert made(CELL.replace("FACTOR * x", "x * FACTOR"), monkeypatch) != first


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import torch\nW = torch.ones(3)\nclass Mine:\n    def f(self):\n        return W", "uses 'W', a Tensor"),
        ("class Mine:\n    def f(self):\n        return nothing", "uses 'nothing', which is defined nowhere"),
    ],
)
def test_what_a_file_cannot_have_is_named(text: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=problem):
        made(text, monkeypatch)


def test_a_class_is_checked_like_any_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", {name: checks.CHECKS[name] for name in ("draws are stable",)})
    text = "from dataclasses import dataclass\nfrom pflbench.methods.fedavg import FedAvg\n@dataclass(frozen=True)\n"
    text += "class Mine(FedAvg):\n    def draws(self, round):\n        return ({},)"
    for takes, fine in (("*super().draws(round), object()", False), ("*super().draws(round),", True)):
        made(text.replace("({},)", f"({takes})"), monkeypatch)
        (finding,) = pflbench.check(vars(sys.modules["__main__"])["Mine"])
        assert (finding.problem is None) == fine, finding


def test_a_class_without_source_or_inside_a_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner: ...

    with pytest.raises(UsageError, match="is defined inside something else"):
        notebook.reference(Inner)
    bare = type("Bare", (), {"__module__": "__main__"})
    with pytest.raises(UsageError, match="source of Bare cannot be found"):
        notebook.reference(bare)


def test_a_class_of_a_module_is_in_its_file() -> None:
    from pflbench.methods.fedavg import FedAvg

    assert notebook.reference(FedAvg).endswith("pflbench/methods/fedavg.py:FedAvg")


def test_an_outcome_and_a_finding_say_what_happened() -> None:
    spec, left = tiny_spec(0, rounds=3), tiny_spec(1, rounds=3)
    names = dict.fromkeys((spec.id, left.id), "shards · foo")
    outcome = Outcome([spec], ["No data."], {left: "raised"}, names, [Done(spec, "failed", "diverged in round 1")])
    assert not outcome.good and str(outcome).splitlines() == [
        "No data.",
        "shards · foo · seed 0 · 3 rounds: diverged in round 1",
        "1 run that failed before was left alone; --redo failed tries again.",
        "  shards · foo · seed 1 · 3 rounds: raised",
        "0 runs finished, 1 failed.",
    ]
    assert str(Finding("purity", "it writes", ("it is slow",))) == "FAIL purity\n     it is slow\n     it writes"
