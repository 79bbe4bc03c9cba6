"""Verbs that train nothing start without torch: they are asked for often, and torch takes seconds to import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

PROGRAM = """
import sys
from pflbench.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    print("EXIT", end.code or 0)
print("TORCH", "torch" in sys.modules)
"""


def start(*arguments: str, cwd: Path) -> tuple[int, str]:
    """The verb's exit code and what it printed; fails if torch was imported."""
    printed = run_light(PROGRAM, *arguments, cwd=cwd)
    ((code, torch),) = re.findall(r"^EXIT (\w+)\nTORCH (\w+)\n", printed, re.MULTILINE)
    assert torch == "False", f"pflbench {' '.join(arguments)} imports torch"
    return int(code), printed


def run_light(program: str, *arguments: str, cwd: Path) -> str:
    """What a Python program prints, its errors last, that finds this pflbench and none of the user's settings."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PFLBENCH_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


LIGHT = (
    *("--help", "--version", "run --help", "ls methods", "ls suites", "tune --help", "plot --help", "status", "pack"),
    *("ls runs", "rm --help", "scores --help", "data status --data-dir nowhere"),
)


def test_verbs_start_without_torch(tmp_path: Path) -> None:
    """One after the other in one process: a verb that imports torch is the first after which it is there."""
    program = (
        f"import shlex\nfor verb in {LIGHT}:\n{indent(PROGRAM.replace('sys.argv[1:]', 'shlex.split(verb)'), '    ')}"
    )
    done = run_light(program, cwd=tmp_path)
    ends = re.findall(r"EXIT (\w+)\nTORCH (\w+)\n", done)
    assert dict(zip(LIGHT, ends, strict=True)) == dict.fromkeys(LIGHT, ("0", "False")), done


def test_reports_never_import_torch() -> None:
    """Every module of the report, with all that it imports: a table is read from the store and the suite alone."""
    program = (
        "import importlib, pkgutil, sys, pflbench.report as report\n"
        "for module in pkgutil.walk_packages(report.__path__, 'pflbench.report.'): importlib.import_module(module.name)\n"
        "print('torch' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_report_without_results_starts_without_torch(tmp_path: Path) -> None:
    code, printed = start("report", "--fresh", cwd=tmp_path)
    assert code == 2 and "No results" in printed


def test_a_report_of_stored_runs_starts_without_torch(tmp_path: Path) -> None:
    suite = load("cafeme-table1")
    spec = expand(suite, profile="smoke").runs[0]
    tuned = spec.scoring.finetune
    moments = [("global", 0), *(("finetuned", t) for t in range(tuned.steps + 1 if tuned else 0))]
    scores = tuple(Score(stage, spec.rounds, t, 0, 5, 10, 1.0, 0.5) for stage, t in moments)
    Store(tmp_path / "results").write(RunResult(spec, scores, {"data_hash": "d"}))
    code, printed = start("report", "--profile", "smoke", cwd=tmp_path)
    assert code == 0 and "50" in printed
    code, printed = start(
        "explain", suite.called, "fedavg", suite.document().column[0].id, "--no-data", "--full", cwd=tmp_path
    )
    assert code == 0 and "What speaks for and against the number" in printed
    code, printed = start("scores", "-o", "scores.csv", cwd=tmp_path)
    assert code == 0 and "Written" in printed
    code, printed = start("rm", spec.id, "--yes", "--results", "elsewhere", cwd=tmp_path)
    assert code == 2
    code, printed = start("status", cwd=tmp_path)
    assert code == 0 and "1 done" in printed
