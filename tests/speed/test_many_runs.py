"""`benchmarks/speed/many_runs.py` makes up results that a report shows."""

import runpy
from pathlib import Path

from pflbench.store import Store
from pflbench.suite.load import folder


def test_it_makes_up_packed_runs_and_measures_a_report(tmp_path: Path) -> None:
    script = runpy.run_path(str(folder() / "speed" / "many_runs.py"))
    store = Store(tmp_path)
    assert script["make"](store, 7) == 7 == len(store.list()) and not store.singles.all()
    assert all(store.read(run.spec.id).scores for run in store.list())
    cpu, seconds, memory = script["measure"](tmp_path)
    assert 0 < cpu and 0 < seconds < 600 and 10 < memory < 1000
