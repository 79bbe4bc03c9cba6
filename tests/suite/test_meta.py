"""The suite that sets meta-learners beside each other: each does the same work."""

from __future__ import annotations

from collections.abc import Iterator

from shipped import load

from pflbench import names
from pflbench.running import build
from pflbench.running.estimate import MeanClient
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.expand import expand


def one_seed(table: Expansion) -> Iterator[tuple[Cell, float]]:
    """Each cell, and the gradients that a client takes in a round."""
    for cell in table.cells:
        run = cell.runs[0]
        examples = build.dataset(run.dataset).examples  # type: ignore[attr-defined]
        client = MeanClient(run, names.locate("methods", run.method.name), examples)
        yield cell, client.trains() / run.batch


def test_work_is_that_of_hessian_free_per_fedavg() -> None:
    """First-order and exact meta steps are as many, so they are less and more work."""
    expected = {"per-fedavg-first": 10, "per-fedavg-exact": 25}
    for cell, gradients in one_seed(expand(load("meta-learning"))):
        assert gradients == expected.get(cell.row.id, 20), (cell.row.id, cell.column.id)
