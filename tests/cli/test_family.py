"""Tables of one paper share runs; a table does not show the rows of its relatives as guests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXTENSION = """
[suite]
name = "ablation"
title = "Ablation"
extends = "tiny.toml"

[[column]]
id = "shards"
like = "shards"

[[row]]
id = "ditto"
like = "ditto"

[[row]]
id = "strong"
like = "ditto"
title = "Strong pull"
hyper = { lam = 10.0 }
"""


Cli = Callable[..., Any]


@pytest.fixture
def family(folder: Path, cli: Cli) -> Cli:
    """Both suites were run; and a third file is not finished."""
    (folder / "ablation.toml").write_text(EXTENSION)
    (folder / "broken.toml").write_text("[suite")
    asked = ("-s", "tiny.toml", "-s", "ablation.toml", "--column", "shards", "--profile", "smoke")
    assert cli("run", *asked).code == 0
    return cli


@pytest.mark.parametrize("name", ["tiny", "ablation"])
def test_rows_of_related_suites_are_no_guests(name: str, family: Cli) -> None:
    code, table, _ = family("report", "-s", f"{name}.toml", "--profile", "smoke")
    assert code == 0 and "Ditto" in table
    assert ("Strong pull" in table) == (name == "ablation")
    assert "not in the suite" not in table and "Not shown" not in table


def test_a_strangers_rows_are_guests(family: Cli) -> None:
    asked = ("-s", "tiny.toml", "--profile", "smoke")
    assert family("run", *asked, "--column", "shards", "-m", "ditto", "--set", "ditto.lam=3").code == 0
    assert "not in the suite" in family("report", *asked).out


def test_a_table_that_only_borrows_another_papers_runs_waits_to_be_asked_for(cli: Cli) -> None:
    column = ("--profile", "smoke", "--column", "rmnist-shards", "--seeds", "0")
    assert cli("run", "-s", "cafeme-table1", *column, "-m", "per-fedavg").code == 0
    assert "Federated meta-learning" not in cli("report", "--seeds", "0").out
    assert "Federated meta-learning" in cli("report", "-s", "meta-learning", "--seeds", "0").out
    assert cli("run", "-s", "meta-learning", *column, "-m", "per-fedavg-first").code == 0
    assert "Federated meta-learning" in cli("report", "--seeds", "0").out
