"""The project's own promises: README commands, citations, versions."""

import re
from pathlib import Path

import pytest

import pflbench
from pflbench.names import BUILT_IN

ROOT = Path(__file__).parents[1]


def test_ci_calls_the_readme_test_command_word_for_word():
    commands = re.findall(r"^    (python3 -m venv .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 2, "the README's first screen has one command to run and one to test"
    assert commands[1] in map(str.strip, (ROOT / ".ci" / "run").read_text().splitlines())


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
        assert "Departure" in text and "Special cases" in text, module
