"""Judging claims: from runs by seed to words, missing runs, equal terms and the rounds that are read."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from pflbench.report import claims
from pflbench.report.claim_list import COLUMNS, claims_line, commands, summary, text
from pflbench.report.claims import CONTRADICTED, Judged, judge
from pflbench.report.reading import Shelf
from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.cells import Cell, ReadAs
from pflbench.suite.claim import Claim
from pflbench.suite.expand import expand
from pflbench.suite.load import read

Seeds = Mapping[tuple[str, ReadAs], Mapping[int, float]]


def judged(monkeypatch: pytest.MonkeyPatch, folder: Path, seeds: Seeds, **changes: object) -> Judged:
    """CAFeMe against Ditto on RMNIST Shards (printed: 98.82 and 90.44), with these accuracies by row and reading."""

    def by_seed(cell: Cell, _: Shelf, read_as: ReadAs = "last") -> Mapping[int, float]:
        return seeds.get((cell.row.id, read_as), {})

    monkeypatch.setattr(claims, "by_seed", by_seed)
    entry: dict[str, object] = {
        **{"id": "a", "text": "CAFeMe is ahead.", "source": "Table 1", "suite": "cafeme-table1"},
        **{"columns": ["rmnist-shards"], "row": "cafeme", "against": ["ditto"], "test": "better"},
    }
    claim = Claim.model_validate(entry | changes)
    tables = {name: expand(read(name)) for name in ("cafeme-table1", "cafeme-table1-fair", "cafeme-fig3")}
    return judge(claim, Shelf(Store(folder)), tables)


OURS = {0: 98.0, 1: 98.2, 2: 97.9}
THEIRS = {0: 90.0, 1: 90.1, 2: 90.2}


def test_a_lead_over_half_the_printed_gap_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS})
    assert (found.word, found.paper.decision.seeds) == ("holds", 3)
    assert found.paper.bounds[0].least == pytest.approx((98.82 - 90.44) / 2)
    assert found.paper.differences == ((8.0, pytest.approx(8.1), pytest.approx(7.7), None, None),)


def test_a_smaller_lead_is_smaller_than_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds: Seeds = {("cafeme", "last"): {0: 91.0, 1: 91.1, 2: 91.2}, ("ditto", "last"): {0: 90.0, 1: 90.1, 2: 90.3}}
    assert judged(monkeypatch, tmp_path, seeds).word == "holds, smaller than printed"
    assert judged(monkeypatch, tmp_path, seeds, least=0.1).word == "holds"


def test_seeds_without_a_rival_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): {0: 90.0, 2: 90.2}})
    assert (found.word, found.paper.decision.seeds) == ("undecided", 0)
    # The store is empty, so all ten runs are missing, whatever the accuracies here.
    assert [(one.row, one.seeds) for one in found.paper.missing] == [
        ("cafeme", (0, 1, 2, 3, 4)),
        ("ditto", (0, 1, 2, 3, 4)),
    ]
    assert commands(found.paper) == [
        "pflbench run --suite cafeme-table1 --column rmnist-shards -m cafeme -m ditto --seeds 0,1,2,3,4"
    ]


def test_a_comparison_that_is_shown_asks_for_no_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unclear = {0: 97.0, 1: 92.0, 2: 99.0}
    seeds: Seeds = {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS, ("fedrep-averaged", "last"): unclear}
    found = judged(monkeypatch, tmp_path, seeds, against=["ditto", "fedrep-averaged"])
    assert found.word == "undecided"
    assert [one.row for one in found.paper.missing] == ["cafeme", "fedrep-averaged"]


def test_a_run_that_failed_is_not_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = expand(read("cafeme-table1"))
    (column,) = (one for one in table.columns if one.id == "rmnist-shards")
    (run,) = next(one for one in table.cells if (one.row.id, one.column) == ("ditto", column)).by_seed[3]
    Store(tmp_path).write(RunResult(run, failure="diverged"))
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS | {2: 99.0}})
    assert found.word == "undecided"
    assert [(one.row, one.seeds) for one in found.paper.missing] == [("cafeme", (0, 1, 2)), ("ditto", (0, 1, 2))], (
        "the look at five seeds can never be made, so that it needs no runs"
    )
    assert run not in found.paper.runs
    assert "Failed, so that the seed is not compared: Ditto, RMNIST Shards, seed 3." in text(
        {"cafeme": [found]}, full=True
    )


def test_the_opposite_in_the_last_ten_rounds_leaves_it_undecided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seeds: Seeds = {
        **{("cafeme", "last"): OURS, ("ditto", "last"): THEIRS},
        **{("cafeme", "last-10"): THEIRS, ("ditto", "last-10"): OURS},
    }
    found = judged(monkeypatch, tmp_path, seeds)
    assert (found.word, found.paper.decision.word, found.paper.depends) == ("undecided", "holds", True)
    assert "depends on the rounds read" in text({"cafeme": [found]})
    assert not found.paper.open, "no run can change it"


@pytest.mark.parametrize("more", [{}, {3: 98.0, 4: 98.0}])
def test_the_last_ten_rounds_are_those_of_the_seeds_that_were_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[int, float]
) -> None:
    below = {0: 89.5, 1: 87.1, 2: 88.2, 3: 87.5, 4: 88.0}  # undecided after three seeds, below Ditto's after five
    theirs = THEIRS | dict.fromkeys(more, 90.0)
    seeds: Seeds = {
        **{("cafeme", "last"): OURS | more, ("ditto", "last"): theirs},
        **{("cafeme", "last-10"): {s: below[s] for s in theirs}, ("ditto", "last-10"): theirs},
    }
    assert judged(monkeypatch, tmp_path, seeds, least=0.1).word == "holds"


@pytest.mark.parametrize("other", ["d1", "d2"])
def test_runs_that_mix_data_leave_it_undecided_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    table = expand(read("cafeme-table1"), columns=["rmnist-shards"])
    for row, data in (("cafeme", "d1"), ("ditto", other)):
        for run in table.places[row, "rmnist-shards"].runs[:3]:
            Store(tmp_path).write(
                RunResult(run, (Score("global", run.rounds, 0, 0, 1, 2, 0.0, 0.5),), {"data_hash": data})
            )
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS})
    if other == "d1":
        assert (found.word, found.paper.mixed) == ("holds", ())
        return
    assert (found.word, found.paper.decision.word) == ("undecided", "holds")
    (reason,) = found.paper.mixed
    assert reason.startswith("MIXED DATA in RMNIST Shards: d1 in CAFeMe (seeds 0–2); d2 in Ditto (seeds 0–2)")
    assert "undecided, mixes data or versions" in " ".join(text({"cafeme": [found]}).split())
    assert f"Undecided, as compared runs differ: {reason}" in text({"cafeme": [found]}, full=True)


def test_runs_that_the_decision_does_not_read_mix_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = expand(read("cafeme-table1"), columns=["rmnist-shards"])
    for row, which, data in (("cafeme", range(3), "d1"), ("ditto", range(3), "d1"), ("cafeme", [3], "d2")):
        for seed in which:
            run = table.places[row, "rmnist-shards"].runs[seed]
            score = Score("global", run.rounds, 0, 0, 1, 2, 0.0, 0.5)
            Store(tmp_path).write(RunResult(run, (score,), {"data_hash": data}))
    seeds: Seeds = {("cafeme", "last"): OURS | {3: 98.0}, ("ditto", "last"): THEIRS}
    found = judged(monkeypatch, tmp_path, seeds)
    assert (found.word, found.paper.mixed) == ("holds", ())
    unclear = judged(monkeypatch, tmp_path, seeds | {("ditto", "last"): {0: 99.0, 1: 90.0, 2: 97.0}})
    assert (unclear.paper.decision.word, len(unclear.paper.mixed)) == ("undecided", 1), "its fourth seed will be read"


def test_a_comparison_has_the_interval_that_decides_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    later = {3: 10.0, 4: 10.0}
    seeds: Seeds = {("cafeme", "last"): OURS | later, ("ditto", "last"): THEIRS | dict.fromkeys(later, 90.0)}
    made = text({"cafeme": [judged(monkeypatch, tmp_path, seeds)]}, full=True)
    assert "+7.93 points over 3 seeds, 97.5 % interval +7.19 to +8.68; claimed: better." in made, (
        "later seeds are not read"
    )
    small = judged(monkeypatch, tmp_path, seeds, least=20.0, against=["ditto", "fedavg"])
    assert small.word == "undecided"
    assert "claimed: better, by at least 20. Less than half of the printed gap." in text({"cafeme": [small]}, full=True)
    contrary: Seeds = {("cafeme", "last"): THEIRS, ("ditto", "last"): OURS}
    made = text({"cafeme": [judged(monkeypatch, tmp_path, contrary)]}, full=True)
    assert "-8.68 to -7.19" in made and "Speaks against the claim." in made


def test_what_is_decided_or_contradicted_misses_no_runs_in_csv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds: Seeds = {("cafeme", "last"): {0: 90.0}, ("ditto", "last"): {0: 80.0}}
    for changes, number in (({}, "10"), ({"row": "ditto", "against": ["cafeme"]}, "0")):  # the paper: CAFeMe is ahead
        _, line = csv.reader(text({"a": [judged(monkeypatch, tmp_path, seeds, **changes)]}, "csv").splitlines())
        assert line[COLUMNS.index("missing_runs")] == number


def test_missing_runs_cost_what_finished_ones_took(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = expand(read("cafeme-table1"), columns=["rmnist-shards"])
    for row, seconds in (("cafeme", 7200.0), ("ditto", None)):
        run = table.places[row, "rmnist-shards"].runs[0]
        score = Score("global", run.rounds, 0, 0, 1, 2, 0.0, 0.5)
        told = {"wall_seconds": seconds or 9.0, "peak_device_memory": None if seconds else 2**30}  # Ditto's on a GPU
        Store(tmp_path).write(RunResult(run, (score,), told))
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): {0: 90.0}, ("ditto", "last"): {0: 80.0}})
    assert [one.seeds for one in found.paper.missing] == [(1, 2, 3, 4)] * 2
    assert [{*one.runs.values()} for one in found.paper.missing] == [{7200.0}, {None}]
    assert found.paper.hours is None and "8 runs, seeds 1–4" in " ".join(text({"a": [found]}).split())


def test_a_run_that_fills_two_rows_is_missing_once_and_a_seed_of_many_runs_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: Seeds = {("cafeme", "last"): OURS}
    found = judged(monkeypatch, tmp_path, made, against=["ifca", "ifca-ft"]).paper  # which score one training
    assert [len(one.runs) for one in found.missing if one.row != "cafeme"] == [5, 5]
    assert {one.method.name for one in found.runs} == {"cafeme", "ifca"} and len(found.runs) == 10
    table = expand(read("pfedvem-table1"), columns=["fashion-mnist-50"])
    (cell,) = (one for one in table.cells if one.row.id == "local")
    lacks = claims._missing(cell, [42], Shelf(Store(tmp_path)))
    assert lacks and lacks.seeds == (42,) and len(lacks.runs) == 12, "six grid points, each with and without a tenth"


def test_the_list_fits_80_columns_with_ids_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "cafeme-rmnist-dirichlet-first-x"
    seeds: Seeds = {("cafeme", "last"): {0: 90.0}, ("ditto", "last"): {0: 80.0}}
    made = text({"cafeme": [judged(monkeypatch, tmp_path, seeds, id=name, equal="cafeme-table1-fair")]})
    assert max(map(len, made.splitlines())) <= 80 and name in made.split()


def test_equal_terms_name_what_their_suite_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds: Seeds = {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS}
    found = judged(monkeypatch, tmp_path, seeds, equal="cafeme-fig3", against=["ditto", "fedavg"])
    assert found.equal is not None
    assert (found.equal.word, found.equal.absent) == ("holds", ("fedavg",))
    assert "Not in cafeme-fig3: fedavg." in text({"cafeme": [found]}, full=True)


def test_the_mean_over_columns_is_no_lead_that_grows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    columns = ["rmnist-dirichlet", "rmnist-shards"]
    found = judged(
        monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS}, columns=columns, test="grows"
    )
    # The same lead in both columns: a slope of 0, less than half of the printed one.
    assert (found.word, found.paper.decision.contradicted) == ("does not hold", False)


def test_a_line_counts_the_claims() -> None:
    def line(*words: str) -> str:
        return claims_line({"a": [SimpleNamespace(word=word) for word in words]})  # type: ignore[list-item]

    many = ("holds", "holds, smaller than printed", "does not hold", *["undecided"] * 3, "not run", CONTRADICTED)
    assert line(*many) == "Claims: 2 hold, 1 does not, 3 undecided, 1 not run: pflbench claims"
    assert line("does not hold", "does not hold") == "Claims: 2 do not hold: pflbench claims"
    assert line("holds") == "Claims: 1 holds: pflbench claims"
    assert summary([SimpleNamespace(word=word) for word in many]) == (  # type: ignore[misc]
        "8 claims: 1 holds, 1 holds but smaller than printed, 1 does not hold, 3 undecided, 1 not run, "
        "1 contradicted by the paper's own numbers"
    )
    assert summary([SimpleNamespace(word=word) for word in many * 2]).startswith(  # type: ignore[misc]
        "16 claims: 2 hold, 2 hold but smaller than printed, 2 do not hold, "
    )


@pytest.mark.parametrize("format", ["terminal", "markdown", "csv"])
def test_every_format_names_each_claim_and_its_word(
    format: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): OURS, ("ditto", "last"): THEIRS}, text="A | <b>.")
    made = text({"cafeme": [found]}, format)  # type: ignore[arg-type]
    assert "holds" in made
    if format == "markdown":
        assert "A \\| &lt;b>." in made


def test_a_claim_says_which_of_its_cells_differ_from_the_paper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = {0: 98.8, 1: 98.9, 2: 98.7}  # printed: 98.82 ± 0.11
    rival = {0: 85.0, 1: 85.1, 2: 85.2}  # printed: 90.44 ± 1.44
    found = judged(monkeypatch, tmp_path, {("cafeme", "last"): ours, ("ditto", "last"): rival})
    assert [(name, round(difference, 2)) for name, difference in found.paper.apart] == [("Ditto, RMNIST Shards", -5.34)]
    assert "differ from the paper's: Ditto, RMNIST Shards (-5.3)" in text({"cafeme": [found]}, full=True)
    near = judged(monkeypatch, tmp_path, {("cafeme", "last"): ours, ("ditto", "last"): THEIRS})
    assert near.paper.apart == () and "differ from the paper" not in text({"cafeme": [near]}, full=True)
    two = {seed: rival[seed] for seed in (0, 1)}
    few = judged(monkeypatch, tmp_path, {("cafeme", "last"): ours, ("ditto", "last"): two})
    assert few.paper.apart == (), "two seeds have no verdict"
