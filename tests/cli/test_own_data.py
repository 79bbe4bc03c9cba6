"""What docs/data.md says of a user's own images works as it stands, from making them to the table."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

CHAPTER = (
    (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8").split("\n## Your own images\n")[1]
)
CHAPTER = CHAPTER.split("\n## ")[0]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", CHAPTER, re.DOTALL)
COMMANDS = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


@pytest.fixture
def lab(folder: Path) -> Path:
    for language, block in BLOCKS:
        if language != "sh":
            file = folder / block.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            quick = block.replace("rounds = 10", "rounds = 1").replace("batch = 10\n", "batch = 100\n")
            file.write_text(quick, encoding="utf-8")
    return folder


def test_each_form_is_made_run_and_reported(cli, lab: Path) -> None:
    assert len(COMMANDS) == 13
    for command in COMMANDS:
        program, *arguments = shlex.split(command, comments=True)
        if program == "rm":
            for file in lab.glob(arguments[0]):
                file.unlink()
        elif program == "python":
            subprocess.run([sys.executable, *arguments], check=True)
        else:
            result = cli(*arguments)
            assert result.code == 0, result.err
            assert command.partition("# ")[2] in " ".join(result.out.split())
