"""Heat maps of who is best: rank ranges from paired tests, independent columns, gaps, and profiles apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from table_kit import row

from pflbench.report.html.data import Sheet
from pflbench.report.html.heat import HeatMap, heat_maps, rank_ranges
from pflbench.report.html.render import render_page
from pflbench.report.layout import fill, finished
from pflbench.report.reading import Shelf
from pflbench.report.table import CellValue
from pflbench.selection import selection
from pflbench.spec import Named
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Expansion
from pflbench.suite.schema import LayoutTable

if TYPE_CHECKING:
    from conftest import Build


def sheet(table: Expansion, store: Store) -> Sheet:
    filled = fill(table, Shelf(store), requests_of(store))
    part = selection(suites=[table.suite], profile=table.profile)
    versus = {"last": {one.id: filled.against(one.id) for one in table.rows}}
    return Sheet({"last": finished(filled)}, part, paper=table.paper, fills={"last": filled}, versus=versus)


def values(rows: dict[str, list[float]]) -> dict[str, CellValue]:
    """Cells with these seeds."""
    return {
        row: CellValue(mean=float(np.mean(seeds)), seeds=dict(enumerate(seeds)), done=len(seeds), expected=len(seeds))
        for row, seeds in rows.items()
    }


def two_datasets(build: Build, store: Store, **changes: Any) -> Expansion:
    """A table whose columns are independent, and its runs: FedAvg 30 and 40 %, FedAvg-FT 75 and 75 %."""
    build.fill(store)
    table = build.table(**changes)
    cells = []
    for cell in table.cells:
        other = cell.column.id == "digits-b"
        runs = tuple(run.model_copy(update={"dataset": Named(name="mnist")}) if other else run for run in cell.runs)
        for run in runs if other else ():
            up = run.seed / 10 + 0.1
            store.write(build.result(run, 0.2 + up, (0.5 + up, 0.6 + up)))
        cells.append(replace(cell, runs=runs))
    return replace(table, cells=tuple(cells))


def spots(made: HeatMap) -> dict[str, list[tuple[str, str, int, bool] | None]]:
    return {of.title: [one and (one.text, one.ranks, one.shade, one.whole) for one in of.spots] for of in made.rows}


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(3, 6))
def test_ranges_are_what_one_sided_tests_leave_open(seed: int, rows: int, seeds: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = {str(i): rng.normal(i, rng.choice([0.1, 1.0]), seeds) for i in range(rows)}
    found = rank_ranges(values({row: one.tolist() for row, one in drawn.items()}))

    def beats(a: str, b: str) -> bool:
        return bool(scipy.stats.ttest_rel(drawn[a], drawn[b], alternative="greater").pvalue <= 0.05 / (rows - 1))

    for of in drawn:
        others = [other for other in drawn if other != of]
        ahead, behind = (
            sum(map(beats, *pair)) for pair in ((others, [of] * len(others)), ([of] * len(others), others))
        )
        assert found[of] == (1 + ahead, rows - behind)


def test_three_seeds_tell_rows_apart_and_two_do_not() -> None:
    three = {"a": [90.0, 91.0, 92.0], "b": [80.0, 81.1, 82.2], "c": [80.1, 81.0, 82.1]}
    assert rank_ranges(values(three)) == {"a": (1, 1), "b": (2, 3), "c": (2, 3)}
    two = {row: seeds[:2] for row, seeds in three.items()}
    assert set(rank_ranges(values(two)).values()) == {(1, 3)}


def test_a_map_has_numbers_with_their_ranks(build: Build, store: Store) -> None:
    (made,) = heat_maps([sheet(two_datasets(build, store), store)])
    assert (made.title, made.columns, made.profile) == ("Demo", ("Digits Dir 0.3", "Digits Dir 5"), "paper")
    assert spots(made) == {
        "FedAvg-FT": [("75.00", "1", 4, True), ("75.00", "1", 4, True)],
        "FedAvg": [("30.00", "2", 0, True), ("40.00", "2", 0, True)],
    }
    assert [of.first for of in made.rows] == ["in 2 of 2", "in 0 of 2"]
    assert made.rows[1].versus == ("demo.paper", "fedavg")
    text = render_page([sheet(two_datasets(build, store), store)], {})
    assert "table=demo.paper&amp;versus=fedavg" in text and 'class="shade4"' in text


def test_columns_of_the_same_data_are_one(build: Build, store: Store) -> None:
    build.fill(store)
    made = sheet(build.table(), store)
    assert heat_maps([made]) == [], "both columns are of one dataset, dealt in one way"
    assert "no two independent columns have numbers" in render_page([made], {})


def test_gaps_and_missing_seeds_are_told_apart_from_numbers(build: Build, store: Store) -> None:
    table = two_datasets(build, store)
    rows = (*table.rows, row("ditto", "Ditto"))
    runs = tuple(build.spec(seed, "ditto") for seed in range(3))
    ditto = replace(table.cells[0], row=rows[2], runs=runs)
    store.write(build.result(runs[0], 0.8))
    more = replace(table, rows=rows, cells=(*table.cells, ditto))
    (made,) = heat_maps([sheet(more, store)])
    assert spots(made)["Ditto"] == [("80.00", "1–3", 4, False), None], "one seed says nothing about ranks"
    text = render_page([sheet(more, store)], {})
    assert 'class="shade4 gap"' in text and '<td class="gap"></td>' in text


def test_a_papers_own_column_goes_before_that_of_its_readings(build: Build, store: Store) -> None:
    table = two_datasets(build, store)
    variant = replace(table.cells[0], row=row("ditto", "Variant"), runs=tuple(build.spec(s, "ditto") for s in range(3)))
    for run in variant.runs:
        store.write(build.result(run, 0.99))
    rows, cells = (*table.rows, variant.row), (*table.cells, variant)
    readings = replace(table, rows=rows, cells=cells, suite="readings", extends=Path("demo.toml"))
    (made,) = heat_maps([sheet(readings, store), sheet(table, store)])
    assert "Variant" not in spots(made)
    (alone,) = heat_maps([sheet(readings, store)])
    assert "Variant" in spots(alone)


def test_numbers_that_rest_on_guesses_are_marked(build: Build, store: Store) -> None:
    table = two_datasets(build, store)
    guessed = tuple(replace(cell, sources={"lr": "guess", "batch": "tuned"}) for cell in table.cells[:1])
    (made,) = heat_maps([sheet(replace(table, cells=(*guessed, *table.cells[1:])), store)])
    assert spots(made)["FedAvg"][0] == ("30.00ᵍᵗ", "2", 0, True)


def test_profiles_papers_and_terms_have_maps_of_their_own(build: Build, store: Store, tmp_path: Path) -> None:
    one = sheet(two_datasets(build, store), store)
    quick, paper = (
        sheet(two_datasets(build, store, suite="other", **change), store)
        for change in ({"profile": "quick"}, {"paper": "arXiv:1111.11111"})
    )
    beside = replace(one.fills["last"].table, layout=LayoutTable(beside="demo.toml"), suite="fair")
    fair = replace(one, number=1, fills={"last": replace(one.fills["last"], table=beside)})
    made = heat_maps([one, quick, paper, fair])
    assert sorted((of.title, of.profile) for of in made) == [
        ("Demo", "paper"),
        ("Demo", "paper"),
        ("Demo", "quick"),
        ("Demo, equal terms", "paper"),
    ]
    assert len(heat_maps([one, sheet(two_datasets(build, store, suite="other"), store)])) == 1
    assert made[-1].profile == "quick"
