"""Defaults of a suite file, and the smallest complete one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import load

from .samples import raw, write

DOCS = Path(__file__).parents[2] / "docs" / "suites.md"


def smallest() -> str:
    """The shortest suite in the docs."""
    found = re.search(r"```toml\n(suite.seeds.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def table(folder: Path, content: dict[str, Any], name: str = "s.toml") -> Expansion:
    return expand(load(write(folder / name, content)))


def test_the_smallest_suite_in_the_docs_is_complete(tmp_path: Path) -> None:
    text = smallest()
    assert len(text.splitlines()) <= 12
    path = tmp_path / "My_own.toml"
    path.write_text(text, encoding="utf-8")
    found = expand(load(str(path)))
    (column,), (row,), (cell,) = found.columns, found.rows, found.cells
    assert (found.suite, found.title, found.paper, found.protocol) == ("my-own", "my-own", "none", "the suite's own")
    assert (column.title, row.id, row.title, row.stages) == (column.id, "fedavg", "fedavg", ("global",))
    run = cell.runs[0]
    assert (run.query, run.scoring.average, run.scoring.clients, found.spread.kind) == (0.2, "examples", "all", "std")


def test_a_parents_word_is_stronger_than_a_default(tmp_path: Path) -> None:
    base = raw()
    del base["federation"]["query"], base["evaluation"]["average"], base["row"][0]["id"]
    base["federation"]["query"] = 0.5
    write(tmp_path / "base.toml", base)
    child = {"suite": {"extends": "base.toml"}, "column": [{"id": "a", "like": "a"}], "row": [{"like": "cafeme"}]}
    child["row"] = [{"id": "mine", "like": "cafeme"}, {"method": "ditto"}]
    found = table(tmp_path, child, "child.toml")
    assert (found.suite, found.title, found.protocol) == ("child", "child", "code")
    assert [(row.id, row.title, row.stages) for row in found.rows] == [
        ("mine", "CAFeMe", ("finetuned",)),
        ("ditto", "ditto", ("global",)),
    ]
    assert {run.query for run in found.runs} == {0.5}


def test_a_row_of_a_method_that_personalizes_is_scored_so_by_default(tmp_path: Path) -> None:
    content = raw() | {"row": [{"method": "ditto"}], "evaluation": {}, "hyper": {}, "reference": {}}
    for column in content["column"]:
        column |= {"finetune": {}, "hyper": {}}
    assert table(tmp_path, content).rows[0].stages == ("global",)  # of clients that never train
    del content["federation"]["training_clients"]
    assert table(tmp_path, content).rows[0].stages == ("personalized",)
