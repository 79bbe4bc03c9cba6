"""The example of docs/code.md, a network, a dataset and a partition of one's own, does what is said beside it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "code.md"
CHAPTER = "## An example from beginning to end"


def test_the_example_of_an_own_network_dataset_and_partition(cli, folder: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8").split(CHAPTER)[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    for language, block in blocks:
        if language != "sh":
            file = folder / block.splitlines()[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block, encoding="utf-8")
    commands = [line for language, block in blocks if language == "sh" for line in block.splitlines()]
    assert len(commands) == 8
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        if program != "pflbench":
            subprocess.run([sys.executable if program == "python" else program, *arguments], check=True)
            continue
        result = cli(*arguments)
        assert result.code == 0, result.err
        assert command.partition("# ")[2] in " ".join(result.out.split())
