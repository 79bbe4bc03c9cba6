"""The tutorials of the documentation, command by command."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    ((?:pflbench|python) .*)$", text, re.MULTILINE)]


def files(text: str) -> dict[str, str]:
    """Blocks of code whose first line names their file."""
    blocks = re.findall(r"^```(?:python|toml)\n# (\S+\.(?:py|toml))\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_of_a_tutorial_works(cli: Any, folder: Path, tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    for name, content in files(text).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    found = commands(text)
    assert found
    shown = []
    for program, *words in found:
        if program == "python":
            subprocess.run([sys.executable, *words], check=True)
        else:
            shown.append(cli(*words))
            assert shown[-1].code == 0, (words, shown[-1].err)
    if tutorial.stem == "method":
        against = shown[-2].out
        assert "Mine" in against and "Against FedAvg" in against and "2 seeds" in against
    if tutorial.stem == "dataset":
        _, _, _, against, _, ditto, _, stripes = (one.out for one in shown)
        assert "Against FedAvg" in against and "3 seeds" in against
        assert "| ditto" in ditto and "Stripes" in stripes and "FedRep" in stripes
    if tutorial.stem == "from-pfllib":
        clients, _, _, _, _, against, best = (one.out for one in shown)
        assert "6 clients, nobody held out" in clients and "digits" in against
        numbers = dict(re.findall(r"^(fedavg|fedala|ALA) +│ (.*?) *$", against, re.MULTILINE))
        assert numbers["ALA"] == numbers["fedala"] != numbers["fedavg"]
        assert "+0.00 (+0.00 to +0.00)" in against and "The best round minus the last round" in best
