"""The project's own promises: README commands, citations, versions."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml

import pflbench
from pflbench.names import BUILT_IN

ROOT = Path(__file__).parents[1]


def test_ci_calls_the_readme_test_command_word_for_word():
    commands = re.findall(r"^    (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 2, "the README's first screen has one command to run and one to test"
    assert commands[1] in map(str.strip, (ROOT / ".ci" / "run").read_text().splitlines())


TOOL = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && touch "$3/bin/activate"; fi
echo "${0##*/} $*; home: $(ls -A "$HOME"); cache: $XDG_CACHE_HOME; settings: $(env | grep -c ^PFLBENCH_)" >> "$CALLS"
echo " 0 to do"
"""
"""In the place of each program that CI calls: it notes what it is called with and where."""


def test_ci_tests_with_an_empty_home_and_then_what_needs_data(tmp_path: Path) -> None:
    tools, home, tests, calls = (tmp_path / name for name in ("tools", "home", "tests", "calls"))
    for folder in (tools, home, tests, tmp_path / ".ci"):
        folder.mkdir()
    for name in ("python3", "pip", "pytest", "ruff", "mypy", "pflbench", "chromium"):
        (tools / name).write_text(TOOL)
        (tools / name).chmod(0o755)
    (tmp_path / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (home / "mine").touch()
    (tests / "test_a.py").write_text("pytest.mark.slow; pytest.mark.data")
    own = {"HOME": str(home), "XDG_CACHE_HOME": "mine", "PFLBENCH_DATA_DIR": str(tests), "CALLS": str(calls)}
    command = ["bash", str(tmp_path / ".ci" / "run")]
    subprocess.run(command, env=os.environ | own | {"PATH": f"{tools}:{os.environ['PATH']}"}, check=True)
    found = [line for line in calls.read_text().splitlines() if line.startswith("pytest")]
    fast, slow, data = found[:3]
    for line, arguments in ((fast, ""), (slow, "-m slow tests/test_a.py")):
        assert line.startswith(f"pytest {arguments}; home: ; cache: /") and line.endswith("settings: 0"), line
    assert data == "pytest -m data tests/test_a.py; home: mine; cache: mine; settings: 1"


@pytest.mark.parametrize("method", BUILT_IN["methods"])
def test_every_method_is_cited(method):
    assert re.search(rf"^    notes: {re.escape(method)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


def test_the_citation_names_this_version():
    assert f"\nversion: {pflbench.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_has_its_numbers():
    assert "### Numbers" in (ROOT / "CHANGELOG.md").read_text()


def test_sources_are_what_a_reader_can_look_up():
    """Papers, their sections, and released code; not the notes that were taken of them."""
    for path in [*(ROOT / "pflbench").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.toml")]:
        assert not re.search(r"\bsheet (§|section)|of the sheet\b", path.read_text(encoding="utf-8")), path


def test_every_method_says_its_departures_and_special_cases():
    for reference in BUILT_IN["methods"].values():
        module = reference.split(":")[0].split(".")[-1]
        text = (ROOT / "pflbench" / "methods" / f"{module}.py").read_text().split('"""')[1]
        assert "Departure" in text and "Special case" in text, module


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def rights(workflow: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """What the token of a job may do; nothing said is everything."""
    return job.get("permissions", workflow.get("permissions", {"everything": "write"}))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_their_version_is_said(path: Path) -> None:
    used = re.findall(r"uses: *(.*)", path.read_text())
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in used)


def test_one_commit_for_each_action() -> None:
    used = {one for path in WORKFLOWS for one in re.findall(r"uses: *(.*)", path.read_text())}
    assert len(used) == len({one.split("@")[0] for one in used})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_job_that_runs_anything_can_only_read(path: Path) -> None:
    """Reports read packs, pip runs code of others, and tests run everything: none of it is near a token that writes."""
    workflow = yaml.safe_load(path.read_text())
    for job in workflow["jobs"].values():
        runs = [step for step in job["steps"] if "run" in step]
        if runs:
            assert rights(workflow, job) == {"contents": "read"}
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_only_the_job_that_deploys_the_site_can() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())
    can = {name: rights(workflow, job) for name, job in workflow["jobs"].items()}
    assert can == {"build": {"contents": "read"}, "deploy": {"pages": "write", "id-token": "write"}}
    assert [step["uses"].split("@")[0] for step in workflow["jobs"]["deploy"]["steps"]] == ["actions/deploy-pages"]


def test_ci_tests_the_oldest_python_with_the_lowest_versions() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["lowest"]
    (python,) = [step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {})]
    assert project["requires-python"] == f">={python}"
    assert any("--resolution lowest-direct '.[dev]'" in step.get("run", "") for step in job["steps"])
    assert [one for one in project["dependencies"] if not re.search(r">=\d", one)] == []


def test_the_security_policy_names_what_is_code_and_where_to_report() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    assert text.count("| **code** |") == 2 and "Report a vulnerability" in text
