"""The suite that sets meta-learners beside each other: each does the same work."""

from __future__ import annotations

from shipped import load

from pflbench import names
from pflbench.engine.simulate import Setup, Simulation
from pflbench.running import build
from pflbench.suite.expand import expand
from pflbench.testing import tiny_features, tiny_federation, tiny_spec


def test_work_is_that_of_hessian_free_per_fedavg() -> None:
    """First-order and exact meta steps are as many, so they are less and more work."""
    expected = {"per-fedavg-first": 10, "per-fedavg-exact": 25}
    cells = {(cell.row.id, cell.runs[0].dataset.name): cell for cell in expand(load("meta-learning")).cells}
    for cell in cells.values():
        whole = cell.runs[0]
        method, query = whole.method, 0.0 if isinstance(whole.query, str) else whole.query
        rows = build.dataset(whole.dataset).examples / whole.clients * (1 - query)  # type: ignore[attr-defined]
        alike = {name: getattr(whole, name) for name in ("batch", "batches", "tail")}
        spec = tiny_spec(0, method, rounds=1, **alike)
        made = build.construct(names.locate("methods", method.name), method.hyper)
        (run,) = Simulation(
            [spec], [tiny_federation(0, [round(rows * 4 / 3)] * 8)], made, tiny_features(), Setup()
        ).run()
        gradients = run.costs["client_gradients"]
        assert gradients == expected.get(cell.row.id, 20), (cell.row.id, cell.column.id)
