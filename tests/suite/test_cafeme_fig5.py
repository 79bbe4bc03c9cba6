"""CAFeMe's Figure 5: Table 2's Meta-Dataset with fewer images for a client, and nothing else changed."""

from __future__ import annotations

import pytest
from shipped import load

from pflbench.data.datasets.meta_dataset import DigitTasks
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Natural
from pflbench.suite.expand import expand
from pflbench.suite.figure import Across

SIZES = [100, 200, 300, 400, 500, 600]
ROWS = ["fedavg-ft", "ifca-ft", "ditto", "fedrep-averaged", "per-fedavg", "cafeme"]


def test_it_is_a_line_at_the_sizes_for_the_six_fine_tuned_rows() -> None:
    document = load("cafeme-fig5").document()
    figure = document.figure
    assert isinstance(figure, Across) and (figure.mark, figure.at) == ("line", SIZES)
    table = expand(load("cafeme-fig5"))
    assert [row.id for row in table.rows] == ROWS and [c.title for c in table.columns] == [str(n) for n in SIZES]
    assert {cell.stage for cell in table.cells} == {"finetuned"}


def test_runs_are_table_2s_but_for_their_images() -> None:
    table2 = {(c.row.id, c.stage): c for c in expand(load("cafeme-table2")).cells if c.column.id == "meta-dataset"}
    for cell in expand(load("cafeme-fig5")).cells:
        theirs, size = table2[cell.row.id, cell.stage], int(cell.column.title)
        for mine, model in zip(cell.runs, theirs.runs, strict=True):
            assert mine.dataset.options == model.dataset.options | {"images": size}
            assert mine.model_copy(update={"dataset": model.dataset}) == model
            assert (mine.id == model.id) == (size == 600)
        assert cell.reading == theirs.reading
        printed = cell.reference and (cell.reference[:2], cell.reference.suspect)
        assert printed == (
            theirs.reference and (theirs.reference[:2], theirs.reference.suspect) if size == 600 else None
        )


def test_clients_have_as_many_minibatches_as_in_the_paper() -> None:
    """Of 30, from what is not for scoring, without the last short one; nobody has less than one."""
    full = []
    for size in SIZES:
        source = DigitTasks(tasks=4, images=size).load(None, 0)  # type: ignore[arg-type]  # they lie in no folder
        held = build(source, Natural(), clients=4, training_clients=3, query=0.2, seed=0).support
        full.append({len(rows) // 30 for rows in held})
    assert full == [{2}, {5}, {8}, {10}, {13}, {16}]


@pytest.mark.parametrize(("profile", "rounds"), [("quick", 3), ("smoke", 4)])
def test_profiles(profile: str, rounds: int) -> None:
    runs = [cell.runs[0] for cell in expand(load("cafeme-fig5"), profile=profile).cells]
    assert {run.rounds for run in runs} == {rounds}
    assert len({run.dataset.options["images"] for run in runs}) == len(SIZES)
    clusters = {run.method.hyper["clusters"] for run in runs if run.method.name == "ifca"}
    if profile == "quick":
        assert {run.dataset.options["sources"] for run in runs} == {"omniglot, cifar-fs, gtsrb"} and clusters == {3}
    else:
        assert {run.dataset.name for run in runs} == {"digit-tasks"} and clusters == {2}
