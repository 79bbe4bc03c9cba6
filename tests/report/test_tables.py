"""Which tables have results, and which was run last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.report.tables import latest, with_results
from pflbench.result import RunResult, Score
from pflbench.selection import Selection
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.user_supplied import UserSupplied


def test_runs_that_do_not_say_when_they_ended_are_older_than_all_others(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def made(suite: str, **provenance: Any) -> None:
        run = expand(load(suite), profile="smoke").runs[0]
        asked = {"suite": suite, "profile": "smoke"}
        store.write(
            RunResult(run, (Score("global", 1, 0, 0, 1, 2, 1.0, 0.5),), {"data_hash": "d", "asked": asked} | provenance)
        )

    def last() -> str | None:
        found = latest(store, UserSupplied(tmp_path))
        return None if found is None else found.suite

    assert last() is None
    made("fedec-table2")
    assert last() == "fedec-table2"
    made("cafeme-table1", finished="2026-11-22T10:00:00.000+00:00")
    made("pfedvem-table1", finished="2026-11-22T09:00:00.000+00:00")
    made("pfedvem-table6")
    assert last() == "cafeme-table1"


def test_a_suite_that_became_another_one_is_not_what_was_run_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = expand(load("fedec-table2"), profile="smoke").runs[0]
    store.write(
        RunResult(
            run,
            (Score("global", 1, 0, 0, 1, 2, 1.0, 0.5),),
            {"data_hash": "d", "asked": {"suite": "cafeme-table1", "profile": "smoke"}},
        )
    )
    assert latest(store, UserSupplied(tmp_path)) is None


def test_a_named_suite_without_any_run_still_says_what_is_unknown(tmp_path: Path) -> None:
    """None of its profiles can have a result, and those that cannot are not expanded."""
    own, part = UserSupplied(tmp_path), Selection(suites=("cafeme-table1",))
    assert with_results(part, Store(tmp_path), own) == []
    with pytest.raises(UsageError, match="Unknown column 'rmnist-shard'"):
        with_results(part.but(columns=["rmnist-shard"]), Store(tmp_path), own)
