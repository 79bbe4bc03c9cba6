from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shipped import load

from pflbench.suite.cells import Expansion, Shortfall
from pflbench.suite.document import parse
from pflbench.suite.expand import expand

from .samples import raw


def small(**changes: Any) -> Expansion:
    """The tiny suite (three rounds, two seeds, ten clients) under a profile that sets this."""
    table = raw()
    table["profile"] = {"small": changes}
    return expand(parse(table, Path("tiny.toml")), profile="small" if changes else "paper")


def test_the_whole_lacks_nothing() -> None:
    assert small().shortfall == Shortfall()
    assert not small().shortfall.counts and not small().shortfall.runs
    same = parse(raw(), Path("tiny.toml"))
    assert expand(same, rounds=3, seeds=(0, 1)).shortfall == Shortfall()


def test_what_the_command_line_leaves_out_is_counted() -> None:
    suite = parse(raw(), Path("tiny.toml"))
    short = expand(suite, rounds=1, seeds=(0,), columns=["b"]).shortfall
    assert short.counts == ("1 of 3 rounds", "1 of 2 seeds", "1 of 2 columns")
    assert short.runs == "1 of 3 rounds"
    assert expand(suite, seeds=(0, 1, 2)).shortfall == Shortfall()  # more is not less
    more = expand(suite, rounds=5).shortfall  # but other rounds are another protocol
    assert (more.kind, more.runs) == ("other rounds than the protocol's", "5 instead of 3 rounds")
    assert short.kind == "less than the whole protocol"
    several = expand(suite, profile="smoke").shortfall
    assert several.counts == ("1 of 3, 2 of 3 rounds", "1 of 2 seeds")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": [0]}, ""),
        ({"notes": ["Quick."]}, ""),
        ({"federation": {"clients": 9}}, "9 of 10 clients"),
        ({"federation": {"cohort": 1}}, "other cohort"),
        ({"federation": {"query": 0.5}}, "other query"),
        ({"evaluation": {"first": 1}}, "other evaluation.first"),
        ({"evaluation": {"finetune": {"steps": 2}, "report": {"steps": [2]}}}, "other evaluation.finetune"),
        ({"evaluation": {"average": "examples"}}, "other evaluation.average"),
        ({"evaluation": {"finetune": {"decay": 0.5}}}, "other evaluation.finetune"),
        ({"hyper": {"fedavg": {"lr": 0.5}}}, "other hyper"),
        ({"column": {"a": {"hyper": {"fedavg": {"epochs": 1}}}}}, "other hyper"),
        ({"column": {"a": {"batch": 5}, "b": {"partition": {"shards": 30}}}}, "other batch, partition"),
        ({"column": {"a": {"model": "cnn3"}}}, "other model"),
        ({"column": {"a": {"finetune": {"lr": 0.3}}}}, "other finetune"),
        ({"column": {"a": {"dataset": {"degrees": 30}}}}, "other dataset"),
        ({"column": {"*": {"dataset": {"name": "digits"}}}}, "digits for rotated-digits"),
    ],
)
def test_every_change_of_a_profile_is_named(changes: dict[str, Any], said: str) -> None:
    table = raw()
    if "*" in changes.get("column", {}):
        for column in table["column"]:
            column["dataset"] = {"name": "rotated-digits"}
    table["profile"] = {"small": changes}
    suite = parse(table, Path("tiny.toml"))
    paper, changed = expand(suite), expand(suite, profile="small")
    assert changed.shortfall.runs == said
    other = {run.id for run in changed.runs} - {run.id for run in paper.runs}
    assert bool(other) == bool(said)  # what trains otherwise is told, and nothing else


def test_columns_are_called_what_they_are() -> None:
    table = load("cafeme-table1")
    before, after = (expand(table, profile=profile).columns[2] for profile in ("quick", "smoke"))
    assert (before.group, before.replacement, before.called) == ("RMNIST", "", "rmnist-shards")
    assert (after.group, after.replacement) == ("rotated-digits for RMNIST", "rotated-digits")
    assert after.called == "rmnist-shards (on rotated-digits)"
    said = expand(table, profile="smoke").shortfall.runs
    assert "digits for cifar10, rotated-digits for rmnist; 20 of 100 clients" in said


def test_a_column_without_a_group_is_called_by_its_dataset() -> None:
    table = raw()
    for column in table["column"]:
        column["dataset"] = {"name": "rotated-digits"}
    table["profile"] = {"small": {"column": {"a": {"dataset": {"name": "digits"}}}}}
    columns = expand(parse(table, Path("tiny.toml")), profile="small").columns
    assert [column.group for column in columns] == ["digits for rotated-digits", ""]
