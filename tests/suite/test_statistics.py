"""Suites of statistics: what they may say, and that they train nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.document import parse
from pflbench.suite.expand import expand
from pflbench.suite.load import load

from .samples import raw, write

SIZES = {"total": 10, "train": 8, "test": 2, "classes": 3}


def table(**changes: Any) -> dict[str, Any]:
    found = {key: raw()[key] for key in ("suite", "federation")}
    found["evaluation"] = {"clients": "all", "average": "examples"}
    found["column"] = [raw()["column"][0] | {"hyper": {}, "finetune": {}}]
    return found | {"row": [], "statistics": {"reference": {"a": SIZES}}} | changes


def test_what_the_paper_printed(tmp_path: Path) -> None:
    suite = load(write(tmp_path / "s.toml", table()))
    statistics = suite.document().statistics
    assert statistics is not None and statistics.reference["a"].model_dump() == SIZES
    assert load(write(tmp_path / "s.toml", table(statistics={}))).document().statistics is not None


def test_nothing_is_trained_and_every_column_is_counted_with_every_seed(tmp_path: Path) -> None:
    found = expand(load(write(tmp_path / "s.toml", table())))
    (counted,) = found.counted
    assert (found.runs, found.cells, [run.seed for run in counted.federations]) == ((), (), list(found.seeds))
    assert counted.column.id == "a" and counted.printed is not None and counted.printed.model_dump() == SIZES


def test_columns_are_checked(tmp_path: Path) -> None:
    wrong = table()
    wrong["column"][0]["partition"] = {"name": "shards", "shrads": 20}
    with pytest.raises(UsageError, match="shrads"):
        load(write(tmp_path / "s.toml", wrong))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": [raw()["row"][0]]}, "row: statistics, histograms and classes train nothing"),
        (
            {"statistics": {"reference": {"aa": SIZES}}},
            "statistics.reference: Unknown column 'aa'. Did you mean 'a'?",
        ),
        ({"statistics": {"reference": {"a": SIZES | {"total": 0}}}}, "statistics.reference.a.total: "),
        ({"statistics": {"refrence": {}}}, "statistics.refrence: Unknown key"),
        ({"statistics": {"reference": {"a": {"total": 1, "train": 1, "test": 1}}}}, "reference.a.classes: missing"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(table(**changes), Path("s.toml"))
    assert message in str(caught.value)
