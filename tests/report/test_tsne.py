"""Figures of features that move: the number that says how far, and panels laid out by t-SNE."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from table_kit import row

from pflbench.errors import UsageError
from pflbench.report.figures.make import draw_runs
from pflbench.report.figures.panels import Drawing, to_csv
from pflbench.report.figures.pictures import METADATA, picture
from pflbench.report.figures.tsne import FLUCTUATION, embed, features, fluctuation
from pflbench.report.reading import Shelf
from pflbench.result import Metric, RunResult
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, Reading
from pflbench.suite.figure import Tsne

if TYPE_CHECKING:
    from conftest import Personal

FIGURE = Tsne(kind="tsne", rounds=[4, 8, 99], perplexity=2, seed=0)
FOUR = FIGURE.model_copy(update={"rounds": [4]})
ROUNDS = 8
Walk = Callable[[int, int], tuple[float, ...]]
"""Features of a client after a round."""


# The number


def test_fluctuation_in_closed_form() -> None:
    v = np.array([3.0, -4.0, 12.0])
    assert fluctuation(np.tile(v, (5, 1))) == 0
    assert fluctuation(np.array([v, -v, v, -v])) == pytest.approx(2)
    assert fluctuation(np.array([k * v for k in (1, 2, 3, 4)])) == pytest.approx(1 / 2.5)
    angles = 0.3 * np.arange(9)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert fluctuation(circle) == pytest.approx(2 * math.sin(0.15))


def test_where_fluctuation_is_no_number() -> None:
    assert fluctuation(np.ones((1, 3))) is None  # nothing moved yet
    assert fluctuation(np.zeros((4, 3))) is None  # nothing to measure a move by


@given(arrays(np.float64, (4, 3), elements=st.floats(-9, 9).map(lambda x: round(x, 3))), st.floats(0.01, 100))
def test_fluctuation_by_hand_and_of_no_unit(walk: np.ndarray, unit: float) -> None:
    def length(v: list[float]) -> float:
        return math.sqrt(sum(x * x for x in v))

    rows = walk.tolist()
    moves = [length([a - b for a, b in zip(new, old, strict=True)]) for old, new in pairwise(rows)]
    found = fluctuation(walk)
    if found is None:
        assert not any(map(length, rows))
        return
    assert found == pytest.approx(sum(moves) / 3 / (sum(map(length, rows)) / 4))
    assert fluctuation(unit * walk) == pytest.approx(found)


# The layout


def test_groups_that_are_far_apart_stay_apart() -> None:
    noise = np.random.default_rng(0).standard_normal((30, 16))
    group = np.repeat([0, 1], 15)
    places = embed(noise + 40 * group[:, None], 5, 0)
    assert places.shape == (30, 2)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    for place, own in zip(distances, group, strict=True):
        assert (group[np.argsort(place)[:5]] == own).all()
    centers = [places[group == g].mean(axis=0) for g in (0, 1)]
    radius = max(np.linalg.norm(places[group == g] - centers[g], axis=1).max() for g in (0, 1))
    assert np.linalg.norm(centers[0] - centers[1]) > 2 * radius


def test_the_same_points_lie_at_the_same_places() -> None:
    points = np.random.default_rng(1).standard_normal((12, 4))
    assert (embed(points, 3, 7) == embed(points, 3, 7)).all()
    assert (embed(np.tile(points[0], (12, 1)), 3, 7) == 0).all()


# The figure


@pytest.fixture
def table(personal: Personal) -> Expansion:
    """Without and with a constraint, two seeds, features stored after every one of eight rounds."""
    (column,), rows = personal.columns("a-2"), (row("wo", "Without"), row("ec", "With"))

    def spec(name: str, seed: int) -> RunSpec:
        one = personal.spec(seed, name, stages=("personalized",), rounds=ROUNDS)
        scoring = one.scoring.model_copy(update={"features": True, "last": ROUNDS})
        return one.model_copy(update={"scoring": scoring})

    return personal.alone(
        *(Cell(of, column, Reading("personalized"), tuple(spec(of.id, s) for s in (0, 1))) for of in rows), rows=rows
    )


def moved(personal: Personal, run: RunSpec, walk: Walk, rounds: int = ROUNDS, clients: int = 2) -> RunResult:
    """A run whose clients have these features after each round; rows in no order."""
    result = personal.result(run, [0.5] * clients, 0.0, [1] * clients)
    found = [
        Metric(round, client, f"feature/{i}", value)
        for client in reversed(range(clients))
        for round in range(rounds, 0, -1)
        for i, value in enumerate(walk(client, round))
    ]
    return RunResult(run, result.scores, result.provenance, None, (*result.metrics, *found))


def swinging(client: int, round: int) -> tuple[float, ...]:
    """Fluctuates by 2."""
    return tuple((-1) ** round * (1.0 + client) for _ in range(11))  # more than ten: feature/10 is after feature/9


def growing(client: int, round: int) -> tuple[float, ...]:
    """After n rounds: fluctuates by 1 over the mean of 1 to n."""
    return (float(round) * (1 + client), *[0.0] * 10)


def fill(personal: Personal, store: Store, table: Expansion, seed: int = 0) -> None:
    for id, walk in (("wo", swinging), ("ec", growing)):
        store.write(moved(personal, table.places[id, "a-2"].runs[seed], walk))


def test_features_are_read_in_the_order_of_their_numbers(personal: Personal, table: Expansion) -> None:
    run = table.places["wo", "a-2"].runs[0]
    found = features(moved(personal, run, lambda client, round: tuple(100.0 * client + round + i for i in range(12))))
    assert list(found) == [0, 1] and list(found[1]) == list(range(1, ROUNDS + 1))
    assert found[1][3].tolist() == [103 + i for i in range(12)]
    assert features(personal.result(run)) == {}


def test_panels_for_clients_rounds_and_rows(personal: Personal, store: Store, table: Expansion) -> None:
    fill(personal, store, table)
    drawing = draw_runs(table, FIGURE, Shelf(store))
    numbers = (4, 8)  # the runs have no 99 rounds
    assert [panel.title for panel in drawing.panels] == [
        f"client {client}: {what}, {n} rounds"
        for client in (0, 1)
        for n in numbers
        for what in ("Without", "With", "together")
    ]
    assert (drawing.across, drawing.hue, drawing.labels) == (6, "round", ("Without", "With"))
    for panel in drawing.panels:
        n = int(panel.title.split()[-2])
        labels = ["Without", "With"] if "together" in panel.title else [panel.title.split()[2].rstrip(",")]
        assert [series.label for series in panel.series] == labels
        for series in panel.series:
            assert series.mark == "cloud" and series.hues == tuple(range(1, n + 1)) and len(series.points) == n
            expected = {"Without": 2.0, "With": 1 / np.mean(range(1, n + 1))}[series.label]
            assert series.numbers == ({} if len(labels) == 2 else {FLUCTUATION: pytest.approx(expected)})
    assert any("Seed: 0" in note for note in drawing.notes)
    assert (
        "Fluctuation in 4 rounds, mean ||e_t - e_(t-1)|| / mean ||e_t|| of the features: "
        "client 0: Without 2.000, With 0.400; client 1: Without 2.000, With 0.400." in drawing.notes
    )
    assert not any("Missing" in note or "finite" in note for note in drawing.notes)


def test_rows_together_lie_in_one_plane(personal: Personal, store: Store, table: Expansion) -> None:
    fill(personal, store, table)
    panel = draw_runs(table, FOUR, Shelf(store)).panels[2]
    walks = [np.array([walk(0, t) for t in range(1, 5)]) for walk in (swinging, growing)]
    expected = embed(np.concatenate(walks), FIGURE.perplexity, FIGURE.seed)
    assert np.array([point[:2] for series in panel.series for point in series.points]) == pytest.approx(expected)


def test_the_seed_that_all_rows_have_is_drawn(personal: Personal, store: Store, table: Expansion) -> None:
    wo, ec = (table.places[row, "a-2"].runs for row in ("wo", "ec"))
    store.write(moved(personal, wo[0], swinging))
    drawing = draw_runs(table, FOUR, Shelf(store))
    assert "Missing or failed runs of seed 0: With." in drawing.notes
    assert [len(panel.series) for panel in drawing.panels[:3]] == [1, 0, 0]
    store.write(moved(personal, wo[1], growing))
    store.write(moved(personal, ec[1], swinging))
    drawing = draw_runs(table, FOUR, Shelf(store))
    assert any("Seed: 1" in note for note in drawing.notes) and not any("Missing" in note for note in drawing.notes)
    assert drawing.panels[0].series[0].numbers[FLUCTUATION] == pytest.approx(0.4)


def test_rounds_that_are_not_there_leave_panels_empty(personal: Personal, store: Store, table: Expansion) -> None:
    wo, ec = (table.places[row, "a-2"].runs[0] for row in ("wo", "ec"))
    store.write(moved(personal, wo, swinging, rounds=6))
    blown = moved(personal, ec, lambda client, t: (math.inf,) if (client, t) == (1, 3) else growing(client, t))
    store.write(blown)
    drawing = draw_runs(table, FIGURE, Shelf(store))
    assert [len(panel.series) for panel in drawing.panels] == [1, 1, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0]
    lacking = "Without, client 0 (6 of 8); With, client 1 (3 of 4); Without, client 1 (6 of 8); With, client 1 (7 of 8)"
    assert f"Without finite features after every one of these rounds: {lacking}." in drawing.notes


def test_runs_too_short_for_the_perplexity(personal: Personal, store: Store, table: Expansion) -> None:
    fill(personal, store, table)
    demanding = Tsne(kind="tsne", rounds=[30], perplexity=8, seed=0)
    with pytest.raises(UsageError, match=r"perplexity 8 needs more rounds than that, but runs have 8\."):
        draw_runs(table, demanding, Shelf(store))
    assert draw_runs(table, demanding.model_copy(update={"perplexity": 7.5}), Shelf(store)).panels


def test_a_suite_that_stores_no_features(personal: Personal, store: Store) -> None:
    with pytest.raises(UsageError, match="write features = true below"):
        draw_runs(personal.table("a-2"), FIGURE, Shelf(store))


def test_nothing_done_is_no_panel(store: Store, table: Expansion) -> None:
    drawing = draw_runs(table, FIGURE, Shelf(store))
    assert drawing.panels == () and not any("Fluctuation" in note for note in drawing.notes)


@pytest.fixture
def drawing(personal: Personal, store: Store, table: Expansion) -> Drawing:
    fill(personal, store, table)
    return draw_runs(table, FOUR, Shelf(store))


def test_csv_has_rounds_and_fluctuations(drawing: Drawing) -> None:
    text = io.StringIO(to_csv(drawing))
    rows = list(csv.DictReader(text))
    assert list(rows[0])[3:] == ["series", "t-SNE 1", "t-SNE 2", "spread", "n", "round", FLUCTUATION]
    assert len(rows) == 2 * 4 * 4
    mine = [r for r in rows if r["panel"] == "client 1: With, 4 rounds"]
    assert [int(r["round"]) for r in mine] == [1, 2, 3, 4]
    assert [float(r[FLUCTUATION]) for r in mine] == pytest.approx([1 / 2.5] * 4)
    both = [r for r in rows if r["panel"] == "client 1: together, 4 rounds"]
    assert {r["series"] for r in both} == {"Without", "With"} and {r[FLUCTUATION] for r in both} == {""}


@pytest.mark.parametrize("format_", METADATA)
def test_pictures_of_clouds_are_the_same_twice(drawing: Drawing, format_: str) -> None:
    one = picture(drawing, format_)
    assert len(one) > 5000 and one == picture(drawing, format_)
