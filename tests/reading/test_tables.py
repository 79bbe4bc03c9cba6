"""Which table was run last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pflbench.reading.tables import latest
from pflbench.result import RunResult
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.own import Own


def test_runs_that_do_not_say_when_they_ended_are_older_than_all_others(tmp_path: Path) -> None:
    table = expand(load("cafeme-table1"), profile="smoke")
    store = Store(tmp_path)

    def made(number: int, suite: str, **provenance: Any) -> None:
        asked = {"suite": suite, "profile": "smoke"}
        store.write(RunResult(table.runs[number], (), {"data_hash": "d", "asked": asked} | provenance))

    def last() -> str | None:
        found = latest(store, Own(tmp_path))
        return None if found is None else found.suite

    assert last() is None
    made(0, "fedec-table2")
    assert last() == "fedec-table2"
    made(1, "cafeme-table1", finished="2026-11-22T10:00:00.000+00:00")
    made(2, "pfedvem-table1", finished="2026-11-22T09:00:00.000+00:00")
    made(3, "pfedvem-table6")
    assert last() == "cafeme-table1"
