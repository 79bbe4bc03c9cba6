"""Two results folders side by side: paired by seed, and what counts as moved."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.stats

from pflbench.report.cells import read_seeds
from pflbench.report.compare import CellRuns, ComparedResults, Comparison, Name, pair
from pflbench.report.compare_text import CSV_COLUMNS, comparison_text
from pflbench.report.reading import Shelf
from pflbench.store import Store
from pflbench.suite.cells import Cell

if TYPE_CHECKING:
    from conftest import Build

NAME = Name("demo", "paper", "fedavg", "digits-a", "FedAvg", "Digits Dir 0.3", "global")
BEFORE = np.array([0.41, 0.47, 0.52, 0.44, 0.49])
GAINS = np.array([0.021, 0.034, 0.018, 0.029, 0.025])


def found(build: Build, folder: Path, accuracies: dict[int, float], **provenance: Any) -> CellRuns:
    store, cell = Store(folder), build.table(seeds=5).cells[0]
    for run in cell.runs:
        if run.seed in accuracies:
            store.write(build.result(run, accuracies[run.seed], **provenance))
    return _of(cell, store)


def _of(cell: Cell, store: Store) -> CellRuns:
    return CellRuns(cell, {one.result.spec.seed: one for one in read_seeds(cell, Shelf(store))})


def seeds(values: np.ndarray) -> dict[int, float]:
    return dict(enumerate(map(float, values)))


def test_seeds_are_paired(build: Build, tmp_path: Path) -> None:
    one = pair(NAME, found(build, tmp_path / "a", seeds(BEFORE)), found(build, tmp_path / "b", seeds(BEFORE + GAINS)))
    there = scipy.stats.ttest_rel(100 * (BEFORE + GAINS), 100 * BEFORE).confidence_interval(0.95)
    assert one.interval == pytest.approx(tuple(there)) and one.difference == pytest.approx(100 * GAINS.mean())
    assert one.state == "better" and one.shared == (0, 1, 2, 3, 4)
    alone = scipy.stats.ttest_ind(100 * (BEFORE + GAINS), 100 * BEFORE).confidence_interval(0.95)
    assert alone.low < 0 < there.low  # the seeds vary more than the difference: unpaired, nothing would be seen


def test_a_drop_is_one_beyond_noise_and_beyond_the_points(build: Build, tmp_path: Path) -> None:
    one = pair(NAME, found(build, tmp_path / "a", seeds(BEFORE + GAINS)), found(build, tmp_path / "b", seeds(BEFORE)))
    assert one.state == "worse" and one.drops(1.0) and one.drops(2.5) and not one.drops(2.6)
    shaken = BEFORE + np.array([0.1, -0.1, 0.09, -0.12, -0.09])
    noise = pair(NAME, found(build, tmp_path / "c", seeds(BEFORE)), found(build, tmp_path / "d", seeds(shaken)))
    assert noise.difference is not None and noise.difference < -2
    assert noise.state == "same" and noise.why == "within noise" and not noise.drops(1.0)


def test_the_same_runs_with_the_same_scores_are_the_same(build: Build, tmp_path: Path) -> None:
    mine, other = (found(build, tmp_path / one, seeds(BEFORE)) for one in "ab")
    one = pair(NAME, mine, other)
    assert one.alike and one.state == "same" and one.why == "same" and one.difference == 0


def test_the_legend_counts_equal_scores_and_noise_apart(build: Build, tmp_path: Path) -> None:
    shaken = BEFORE + np.array([0.1, -0.1, 0.09, -0.12, -0.09])
    mine = found(build, tmp_path / "a", seeds(BEFORE))
    pairs = pair(NAME, mine, mine), pair(NAME, mine, found(build, tmp_path / "b", seeds(shaken)))
    side = ComparedResults("before", 5, (), ("cpu",))
    said = comparison_text(Comparison(side, side, pairs))
    assert "Cells: same 2." in said
    assert '"Same": 1 with the same scores to the last bit, 1 within rounding or noise.' in said


@pytest.mark.parametrize(("points", "state"), [(0.09, "same"), (0.11, "worse")])
def test_the_same_runs_may_differ_by_rounding(build: Build, tmp_path: Path, points: float, state: str) -> None:
    mine = found(build, tmp_path / "a", seeds(BEFORE))
    one = pair(NAME, mine, found(build, tmp_path / "b", seeds(BEFORE - points / 100)))
    assert one.interval is not None and 0 not in one.interval
    assert (one.state, one.rounding) == (state, state == "same") and not one.drops(0.0) == (state == "same")


def test_one_shared_seed_has_a_difference_and_no_interval(build: Build, tmp_path: Path) -> None:
    mine, other = found(build, tmp_path / "a", {0: 0.5, 1: 0.4}), found(build, tmp_path / "b", {0: 0.53, 2: 0.6})
    one, back = pair(NAME, mine, other), pair(NAME, other, mine)
    assert one.difference == pytest.approx(3) and one.a == pytest.approx(50) and one.b == pytest.approx(53)
    assert one.interval is None and one.state == back.state == "unpaired"
    assert "one seed (0)" in one.why
    assert not one.drops(0) and back.drops(2.9) and not back.drops(3.1), "continuous integration often has one seed"


def test_what_is_not_compared(build: Build, tmp_path: Path) -> None:
    mine = found(build, tmp_path / "a", {0: 0.5, 1: 0.4})
    apart = pair(NAME, mine, found(build, tmp_path / "b", {2: 0.1}))
    assert apart.state == "unpaired" and apart.why == "no seed in common: 0, 1 in A, 2 in B"
    other = pair(NAME, mine, found(build, tmp_path / "c", {0: 0.1, 1: 0.1}, data_hash="other"))
    assert other.state == "unpaired" and other.why == "other data in seeds 0, 1" and not other.drops(1.0)
    assert pair(NAME, mine, None).state == "only-a" and pair(NAME, None, mine).state == "only-b"


def made(build: Build, folder: Path) -> Comparison:
    low, high = found(build, folder / "a", seeds(BEFORE)), found(build, folder / "b", seeds(BEFORE + GAINS))
    other = NAME._replace(row_title="A=B|c", row="second")
    third = NAME._replace(row_title="Third", row="third")
    pairs = (pair(NAME, low, high), pair(other, high, low), pair(third, low, low), pair(third, low, None))
    side = ComparedResults("before", 5, ("c0ffee", "c1", "c2", "c3", "c4"), ("cpu",))
    return Comparison(side, side, pairs)


def test_lists_by_what_became_of_the_cells(build: Build, tmp_path: Path) -> None:
    said = comparison_text(made(build, tmp_path), width=200)
    titles = [line for line in said.splitlines() if line.endswith(("cell", "cells"))]
    assert titles == ["Worse: 1 cell", "Better: 1 cell", "Same: 1 cell", "Only in A: 1 cell"]
    assert "Cells: worse 1, better 1, same 1, only in A 1." in said and "c2 and 2 more" in said
    assert "Of 2 cells with an interval and not the same scores, 0.1 would move by chance alone." in said
    changed = comparison_text(made(build, tmp_path), only_changed=True)
    assert "A=B|c" in changed and "FedAvg" in changed and "Third" not in changed
    assert "A=B\\|c" in comparison_text(made(build, tmp_path), "markdown")


def test_a_terminal_of_80_columns_is_enough(build: Build, tmp_path: Path) -> None:
    """Names are broken between words, numbers are not."""
    one = made(build, tmp_path).pairs[0]
    long = NAME._replace(
        row_title="pfedbayes (persistent=false, lr=0.001)", column_title="FMNIST 100 Clients, personal"
    )
    found = replace(made(build, tmp_path), pairs=(replace(one, name=long), one))
    said = comparison_text(found, width=80)
    assert max(map(len, said.splitlines())) <= 80
    assert len(re.findall(r"\+1\.\d\d to \+3\.\d\d", said)) == 2
    assert [line for line in said.splitlines() if line == "demo"] == ["demo"], "the table's name once, above its cells"


def test_the_csv_has_a_line_for_each_cell(build: Build, tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(comparison_text(made(build, tmp_path), "csv"))))
    assert tuple(lines[0]) == CSV_COLUMNS and [line["state"] for line in lines] == ["better", "worse", "same", "only-a"]
    assert float(lines[1]["difference"]) == pytest.approx(-100 * GAINS.mean()) and lines[1]["n"] == "5"
