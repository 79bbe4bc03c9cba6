"""A table read in other rounds than its last: in the last ten, or in each run's best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pflbench.errors import UsageError
from pflbench.report.cells import other_readings
from pflbench.report.layout import difference, lay_out
from pflbench.report.reading import readable
from pflbench.report.render import render
from pflbench.report.rivals import side_by_side
from pflbench.report.table import Table
from pflbench.report.tables import reported
from pflbench.result import RunResult, Score
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Expansion, ReadAs, Reading, Reference

if TYPE_CHECKING:
    from conftest import Build


def walk(build: Build, spec: RunSpec, accuracies: list[float]) -> RunResult:
    """A run scored after its last rounds, on one client."""
    result = build.result(spec, accuracies[-1])
    first = spec.rounds - len(accuracies) + 1
    scores = [Score("global", first + i, 0, 2, 0, 20, 0.0, accuracy) for i, accuracy in enumerate(accuracies)]
    return replace(result, scores=(*scores, *(s for s in result.scores if s.stage != "global")))


@pytest.fixture
def table(build: Build) -> Expansion:
    """The global row alone, of runs of twenty rounds, beside a printed 70 ± 1."""
    given = build.table(seeds=3, decimals=1)
    cell = given.places["fedavg", "digits-a"]
    runs = tuple(run.model_copy(update={"rounds": 20}) for run in cell.runs)
    return replace(given, cells=(replace(cell, runs=runs, reference=Reference(70.0, 1.0)),))


def cell(table: Table) -> Any:
    ((_, _, value),) = table.shown
    return value


@pytest.mark.parametrize(
    ("read_as", "seeds"),
    [("last", {0: 50, 1: 60, 2: 40}), ("best", {0: 70, 1: 71, 2: 69}), ("last-10", {0: 52, 1: 60, 2: 54.5})],
)
def test_each_reading_is_its_mean(
    build: Build, store: Store, table: Expansion, read_as: ReadAs, seeds: dict[int, float]
) -> None:
    first, second, third = table.cells[0].runs
    store.write(walk(build, first, [0.7, *[0.5] * 9]))
    store.write(walk(build, second, [0.71, *[0.6] * 10]))  # its best is out of the ten
    store.write(walk(build, third, [0.5] * 5 + [0.69] * 3 + [0.48, 0.4]))
    found = cell(lay_out(table, store, read_as))
    assert found.seeds == {seed: pytest.approx(value) for seed, value in seeds.items()}


def test_the_best_of_equal_rounds_is_the_first(build: Build, table: Expansion) -> None:
    found = other_readings([walk(build, table.cells[0].runs[0], [0.4, 0.6, 0.5, 0.6])], Reading("global"))
    assert found and found.at == {0: 18} and found.averaged == (4, 4)
    assert (found.mean("last"), found.mean("best"), found.mean("last-10")) == pytest.approx((60, 60, 52.5))


def test_the_footer_says_what_is_read_and_how_far_it_is_from_the_last(
    build: Build, store: Store, table: Expansion
) -> None:
    for run, accuracies in zip(table.cells[0].runs, ([0.7, 0.5], [0.71, 0.6], [0.45]), strict=True):
        store.write(walk(build, run, accuracies))
    best = lay_out(table, store, "best")
    assert best.title.endswith("[best round: optimistic]")
    (line,) = [line for line in best.warnings if "Optimistic" in line]
    assert line == (
        "Optimistic: each number is of its runs' best round, chosen on the data that it is scored on. "
        "Scored in one round only, which is read: FedAvg (Digits Dir 0.3, seed 2)."
    )
    assert "The best round minus the last round, Digits Dir 0.3: FedAvg +15.5, rounds 19." in best.footer
    assert not any("no round or fine-tuning step is selected" in line for line in best.footer)
    recent = lay_out(table, store, "last-10")
    assert "The last 2 scored rounds minus the last round, Digits Dir 0.3: FedAvg +7.8." in recent.footer
    assert any("Each number is the mean over its runs' last 2 scored rounds." in line for line in recent.warnings)
    assert not any("minus the last round" in line for line in lay_out(table, store).footer)


def test_a_cell_that_was_scored_once_is_named(build: Build, store: Store, table: Expansion) -> None:
    for run in table.cells[0].runs:
        store.write(walk(build, run, [0.5]))
    (line,) = [line for line in lay_out(table, store, "best").warnings if "Scored in one round only" in line]
    assert line.endswith("Scored in one round only, which is read: FedAvg (Digits Dir 0.3).")


def test_the_best_round_has_no_verdict(build: Build, store: Store, table: Expansion) -> None:
    for run, best in zip(table.cells[0].runs, (0.7, 0.705, 0.695), strict=True):
        store.write(walk(build, run, [best, 0.5]))
    verdict = cell(lay_out(table, store, "best")).verdict
    assert (verdict.label, verdict.interval) == ("not comparable", None) and "chosen on the data" in verdict.reason
    assert cell(lay_out(table, store, "last-10")).verdict.label == "differs"


def test_seeds_that_were_scored_once_are_named(build: Build, store: Store, table: Expansion) -> None:
    for run, accuracies in zip(table.cells[0].runs, ([0.5], [0.6, 0.5], [0.5]), strict=True):
        store.write(walk(build, run, accuracies))
    (line,) = [line for line in lay_out(table, store, "best").warnings if "Scored in one round only" in line]
    assert line.endswith("Scored in one round only, which is read: FedAvg (Digits Dir 0.3, seeds 0, 2).")


def test_more_scored_rounds_are_more_chances(build: Build, store: Store, table: Expansion) -> None:
    (few,) = table.cells
    other = replace(few.row, id="other", title="Other")
    more = replace(few, row=other, runs=tuple(run.model_copy(update={"cohort": 1}) for run in few.runs))
    for rounds, one in ((2, few), (4, more)):
        for run in one.runs:
            store.write(walk(build, run, [0.5] * rounds))
    both = replace(table, rows=(few.row, other), cells=(few, more))
    (line,) = [line for line in lay_out(both, store, "best").warnings if "Optimistic" in line]
    assert line.endswith("it is the best of 2: FedAvg (Digits Dir 0.3); of 4: Other (Digits Dir 0.3).")
    assert "the higher" not in " ".join(lay_out(table, store, "best").warnings)


def test_a_verdict_says_where_our_best_round_is_nearer(build: Build, store: Store, table: Expansion) -> None:
    for run, best in zip(table.cells[0].runs, (0.7, 0.705, 0.695), strict=True):
        store.write(walk(build, run, [best, 0.5 + best / 100]))
    verdict = cell(lay_out(table, store)).verdict
    assert verdict.label == "differs"
    assert verdict.at_best == "at our best round (optimistic; rounds 19) it is 70.0: agrees"
    assert "nearer at our best round [2]" in render(lay_out(table, store), "markdown")


def test_no_verdict_does_where_the_best_round_is_off_too(build: Build, store: Store, table: Expansion) -> None:
    for run in table.cells[0].runs:
        store.write(walk(build, run, [0.6, 0.5]))
    assert cell(lay_out(table, store)).verdict.at_best is None


def test_the_csv_says_how_it_was_read_unless_it_is_the_last_round(build: Build, store: Store, table: Expansion) -> None:
    for run in table.cells[0].runs:
        store.write(walk(build, run, [0.6, 0.5]))
    head, line = render(lay_out(table, store, "best"), "csv").splitlines()
    assert head.endswith(",read") and line.endswith(",best")
    assert "read" not in render(lay_out(table, store), "csv").splitlines()[0].split(",")


def test_an_unknown_reading_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"Unknown reading 'bst'\. Did you mean 'best'"):
        reported(Selection(), store, readable(store), read_as="bst")  # type: ignore[arg-type]


def test_where_the_paper_prints_best_rounds_ours_stand_behind_the_last_and_are_compared(
    build: Build, store: Store, table: Expansion
) -> None:
    table = replace(table, paper_round="best")
    for run, best in zip(table.cells[0].runs, (0.7, 0.705, 0.695), strict=True):
        store.write(walk(build, run, [best, 0.5]))
    made = lay_out(table, store)
    value = cell(made)
    assert value.peak and value.peak.lead and value.peak.scored == (2, 2)
    assert (value.mean, value.peak.best.mean, value.peak.lead.mean) == pytest.approx((50, 70, 20))
    assert value.peak.lead.seeds == {0: pytest.approx(20), 1: pytest.approx(20.5), 2: pytest.approx(19.5)}
    assert value.verdict.label == "agrees" and value.difference == pytest.approx(0.0)
    (line,) = [line for line in made.warnings if line.startswith("Best: ")]
    assert "best scored round of 2, chosen on the data that it is scored on, so it is optimistic" in line
    shown = render(made, "markdown")
    heads = [head for text in shown.splitlines() for head in text.split("|") if "Dir 0.3" in head]
    assert [head.split("Dir 0.3 ")[1].strip() for head in heads[:3]] == ["last", "best", "best - last"]
    assert "50.0 ± 0.0" in shown and "70.0 ± 0.4" in shown and "20.0 ± 0.4" in shown
    names, values = (one.split(",") for one in render(made, "csv").splitlines())
    found = dict(zip(names, values, strict=True))
    assert (found["best_mean"], found["lead_mean"], found["scored_rounds"], found["best_round"]) == (
        *("70.0", "20.0", "2"),
        "19.0",
    )
    assert "Round of the best score, median over seeds, Digits Dir 0.3: FedAvg 19." in made.footer
    assert "no round or fine-tuning step is selected" not in " ".join(made.footer)
    assert (found["mean"], found["verdict"]) == ("50.0", "agrees")
    assert cell(lay_out(table, store, "best")).verdict.label == "agrees"
    assert "which ours is not" in cell(lay_out(table, store, "last-10")).verdict.reason


def test_a_last_round_that_was_scored_alone_is_its_best(build: Build, store: Store, table: Expansion) -> None:
    table = replace(table, paper_round="best")
    for run, accuracies in zip(table.cells[0].runs, ([0.7, 0.5], [0.6], [0.4, 0.5]), strict=True):
        store.write(walk(build, run, accuracies))
    made = lay_out(table, store)
    value = cell(made)
    assert value.peak.best.seeds == {0: pytest.approx(70), 1: pytest.approx(60), 2: pytest.approx(50)}
    assert value.peak.lead.seeds == {0: pytest.approx(20), 2: pytest.approx(0)}
    assert value.peak.scored == (1, 2)
    assert any("Scored in one round only, which is read: FedAvg (Digits Dir 0.3, seed 1)." in w for w in made.warnings)
    names, values = (one.split(",") for one in render(made, "csv").splitlines())
    assert dict(zip(names, values, strict=True))["scored_rounds"] == "1-2"
    for run in table.cells[0].runs:
        store.write(walk(build, run, [0.5]))
    value = cell(lay_out(table, store))
    assert value.peak.lead is None and value.peak.best.mean == pytest.approx(50)


def test_what_is_held_against_the_paper_is_the_best_round_in_every_list(
    build: Build, store: Store, table: Expansion
) -> None:
    table = replace(table, paper_round="best")
    for run, best in zip(table.cells[0].runs, (0.7, 0.705, 0.695), strict=True):
        store.write(walk(build, run, [best, 0.5]))
    made = lay_out(table, store)
    shown = render(made, "markdown")
    (line,) = [line for line in shown.splitlines() if "| FedAvg" in line and "70.0 ± 1.0" in line]
    assert [field.strip() for field in line.split("|")[1:5]] == [
        *("FedAvg", "Digits Dir 0.3 best", "70.0 ± 0.4", "70.0 ± 1.0")
    ]
    assert "✓" in render(made, "terminal", color=False)
    assert "optimistic" in render(made, "latex").partition("\\caption")[2].partition("\n\n")[0]
    versus = lay_out(table, store, over_clients=True)
    assert versus.fairness is not None and len(list(side_by_side(versus).shown)) == 1
    alone = cell(side_by_side(made, peaks=False))
    assert (alone.mean, alone.reference, alone.verdict) == (pytest.approx(50), None, None)


@pytest.mark.parametrize(
    ("read_as", "paper_round", "word"), [("last", "best", "which ours is not"), ("best", "last", "chosen on the data")]
)
def test_a_difference_of_other_rounds_than_the_papers_has_no_verdict(
    build: Build, store: Store, table: Expansion, read_as: ReadAs, paper_round: ReadAs, word: str
) -> None:
    for run in table.cells[0].runs:
        store.write(walk(build, run, [0.7, 0.5]))
    value = cell(lay_out(table, store, read_as))
    alike = replace(table, paper_round=paper_round, cells=tuple(one.read(read_as) for one in table.cells))
    found = difference(value, value, Reference(0.0, None), alike)
    assert found.verdict is not None and found.verdict.label == "not comparable" and word in found.verdict.reason
    same = difference(value, value, Reference(0.0, None), replace(alike, paper_round=read_as))
    assert same.verdict is not None and same.verdict.label != "not comparable"
