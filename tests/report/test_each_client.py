"""Distributions over clients, against numbers worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pflbench.report.figures.each_client import distributions
from pflbench.report.figures.pictures import foot_of
from pflbench.report.reading import Shelf
from pflbench.store import Store

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


def test_the_foot_says_how_many_clients_of_how_many_seeds(build: Build, store: Store) -> None:
    build.fill(store, seeds=2)
    drawing = distributions(build.table(seeds=3), Shelf(store))
    assert foot_of(drawing) == "demo · paper · n = 4 clients of 2 seeds, pooled"
    store.write(build.result(build.spec(2), 0.4))
    assert "n = 4–6 clients of 2–3 seeds, pooled" in foot_of(distributions(build.table(seeds=3), Shelf(store)))
    assert all(point.n is None for panel in drawing.panels for one in panel.series for point in one.points)


def test_one_score_for_all_is_no_distribution(personal: Personal, store: Store) -> None:
    table = personal.table("a-2")
    personal.fill(store, table)
    drawing = distributions(table, Shelf(store))
    assert [panel.title for panel in drawing.panels] == ["A 2 Clients PM"]
    note = "Left out, as one score on the whole test set is no client's: FedAvg, Ours in A 2 Clients GM."
    assert note in drawing.notes
    assert [len(s.points) for s in drawing.panels[0].series] == [4, 4]
