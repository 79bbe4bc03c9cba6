"""`tools/speed/many_runs.py` makes up results that a report shows."""

import runpy
from pathlib import Path

import pytest

from pflbench.store import Store

SCRIPT = Path(__file__).parents[2] / "tools" / "speed" / "many_runs.py"

pytestmark = pytest.mark.slow


def test_it_makes_up_packed_runs_and_measures_a_report(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    results, output = tmp_path / "results", tmp_path / "report.csv"
    store = Store(results)
    assert script["make"](store, 7) == 7 == len(store.list()) and not store.indexed(store.runs)
    assert all(store.read(run.spec.id).scores for run in store.list())
    one = store.read(store.list()[0].spec.id)
    assert script["invented"](one.spec, one.provenance) == one
    cpu, memory, size = script["measure"](results, "csv", output)
    assert 0 < cpu < 600 and 10 < memory < 1000 and size == len(output.read_bytes()) > 0
