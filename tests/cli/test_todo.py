"""`results/todo.sh` names suites, columns, rows and options that exist."""

import shlex
from pathlib import Path

import pytest

TODO = Path(__file__).parents[2] / "results" / "todo.sh"
LINES = [line for line in TODO.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_list_of_runs_to_do_can_run(cli, line: str) -> None:
    program, verb, *arguments = shlex.split(line)
    result = cli(verb, *arguments, "--dry-run")
    assert program == "pflbench" and verb in ("run", "tune")
    assert result.code in (0, 1), result.err  # 1: data is missing here
