"""Distributions over clients, and before against after personalization, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pflbench.errors import UsageError
from pflbench.report.figures.each_client import GAIN, LOSE, before_after, distributions
from pflbench.report.figures.panels import to_csv
from pflbench.report.figures.pictures import picture
from pflbench.report.reading import Shelf
from pflbench.result import Score
from pflbench.store import Store
from pflbench.suite.cells import Expansion

if TYPE_CHECKING:
    from conftest import Build, Personal


def test_sorted_accuracies_are_those_of_all_seeds_clients(build: Build, store: Store) -> None:
    build.fill(store, seeds=2)  # global: 20 and 30 percent, a client ten below and one ten above
    drawing = distributions(build.table(seeds=2), Shelf(store))
    first = drawing.panels[0]
    plain, tuned = first.series
    assert [p.y for p in plain.points] == pytest.approx([10, 20, 30, 40])
    assert [p.x for p in plain.points] == [12.5, 37.5, 62.5, 87.5]
    assert [p.y for p in tuned.points] == pytest.approx([55, 65, 75, 85])  # mean of steps 1 and 2, as the table reads
    assert (plain.label, tuned.label, drawing.y) == ("FedAvg", "FedAvg-FT", "accuracy (%)")
    assert sum(p.y or 0 for p in plain.points) / 4 == pytest.approx(25)  # the table's mean


def test_violins_hold_the_same_values(build: Build, store: Store) -> None:
    build.fill(store, seeds=2)
    curves, violins = (distributions(build.table(seeds=2), Shelf(store), kind) for kind in ("sorted", "violins"))
    for one, other in zip(curves.panels, violins.panels, strict=True):
        assert other.ticks == ("FedAvg", "FedAvg-FT")
        assert [[p.y for p in s.points] for s in one.series] == [[p.y for p in s.points] for s in other.series]
        assert [{p.x for p in s.points} for s in other.series] == [{0.0}, {1.0}]
    assert ",FedAvg\n" in to_csv(violins) and len(picture(violins, "png")) > 5000
    with pytest.raises(UsageError, match=r"Unknown kind of distribution 'violin'. Did you mean 'violins'"):
        distributions(build.table(), Shelf(store), "violin")


def test_one_score_for_all_is_no_distribution(personal: Personal, store: Store) -> None:
    table = personal.table("a-2")
    personal.fill(store, table)
    drawing = distributions(table, Shelf(store))
    assert [panel.title for panel in drawing.panels] == ["A 2 Clients PM"]
    note = "Left out, as one score on the whole test set is no client's: FedAvg, Ours in A 2 Clients GM."
    assert note in drawing.notes
    assert [len(s.points) for s in drawing.panels[0].series] == [4, 4]


def test_before_and_after_fine_tuning(build: Build, store: Store) -> None:
    table = build.table(seeds=1)
    spec = build.spec(0)
    result = build.result(spec, 0.2, (0.6, 0.7))
    lower = tuple(
        s._replace(accuracy=0.05) if (s.stage, s.step, s.client) == ("finetuned", 2, 2) else s for s in result.scores
    )
    store.write(replace(result, scores=lower))
    drawing = before_after(table, Shelf(store))
    (panel,) = drawing.panels
    (series,) = panel.series
    assert panel.square and series.label == "FedAvg-FT"
    assert [(p.x, p.y) for p in series.points] == [
        (pytest.approx(10), pytest.approx(5)),
        (pytest.approx(30), pytest.approx(80)),  # the last step alone, not the mean of those that the table reads
    ]
    assert series.numbers == {GAIN: 50, LOSE: 50} and drawing.beside == {"FedAvg-FT": "50 % gain"}
    assert "gain (%)" in to_csv(drawing).splitlines()[0] and b"FedAvg-FT: 50 % gain" in picture(drawing, "svg")


@pytest.fixture
def both(personal: Personal, store: Store) -> Expansion:
    """A row of personal models whose global one is scored on each client, too: 20 → 50, 40 → 30, 60 → 60 percent."""
    (column,) = personal.columns("a-3")
    cell = personal.cell("pfedvem", column, "personalized")
    run = personal.result(cell.runs[0], (0.5, 0.3, 0.6))
    before = [Score("global", 3, 0, client, 0, 10, 0.0, value) for client, value in enumerate((0.2, 0.4, 0.6))]
    store.write(replace(run, scores=(*(s for s in run.scores if s.stage == "personalized"), *before)))
    return personal.alone(replace(cell, runs=cell.runs[:1]))


def test_the_global_model_against_each_clients_own(both: Expansion, store: Store) -> None:
    (panel,) = before_after(both, Shelf(store)).panels
    (series,) = panel.series
    assert [(round(p.x), round(p.y or 0)) for p in series.points] == [(20, 50), (40, 30), (60, 60)]
    assert series.numbers == {GAIN: pytest.approx(100 / 3), LOSE: pytest.approx(100 / 3)}


def test_a_global_model_scored_on_a_test_set_is_no_before(personal: Personal, store: Store) -> None:
    table = personal.table("a-2")
    personal.fill(store, table)
    drawing = before_after(table, Shelf(store))
    assert drawing.panels == ()
    on_test = "their global model is scored on the whole test set, not on each client, so there is no before"
    assert f"Left out, as {on_test}: Ours." in drawing.notes
    assert "Left out, as their runs have no scores of a global model, so there is no before: Local." in drawing.notes
    assert "Left out, as they are shown before personalization alone: FedAvg." in drawing.notes


def test_models_that_are_learned_to_be_adapted_are_named(build: Build, store: Store, tmp_path: Path) -> None:
    """By what the class says, be it a built-in one, one that inherits it, or one that says nothing."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from pflbench.methods.cafeme import CAFeMe\nfrom pflbench.methods.fedavg import FedAvg\n"
        "class Meta(CAFeMe):\n    pass\nclass Plain(FedAvg):\n    pass\n",
        encoding="utf-8",
    )
    expected = {"fedavg": False, "cafeme": True, "per-fedavg": True, "ditto": False, "mine.py:Meta": True}
    for name, meta in {**expected, "mine.py:Plain": False}.items():
        table = build.table(seeds=1)
        spec = build.spec(0)
        spec = spec.model_copy(update={"method": spec.method.model_copy(update={"name": name})})
        cells = tuple(replace(cell, runs=(spec,)) for cell in table.cells if cell.stage == "finetuned")
        store.write(build.result(spec, 0.2, (0.6, 0.7)))
        places = {spec.id: {"methods": f"{tmp_path}/{name}"}} if name.startswith("mine") else {}
        notes = before_after(replace(table, cells=cells, locations=places), Shelf(store)).notes
        said = "FedAvg-FT: training lowers the loss after a client's own gradient steps and asks nothing of the model"
        assert any(note.startswith(said) for note in notes) is meta
