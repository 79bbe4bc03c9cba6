"""The packs of a wheel: early rounds are gone, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pflbench.report.reading import WINDOW
from pflbench.result import Metric, RunResult, Score
from pflbench.store import Store
from pflbench.store.shipped import ROUNDS, SHORTENED, shortened, thin
from pflbench.store.verbs import pack
from pflbench.testing import tiny_spec

SCORE = st.tuples(st.sampled_from(["global", "personalized"]), st.integers(0, 30), st.integers(0, 2), st.integers(0, 3))


def run(scores: list[Score], seed: int = 0, every: int | None = 5) -> RunResult:
    return RunResult(tiny_spec(seed), scores, {"evaluate_every": every}, None, [Metric(1, 0, "tau", 0.5)])


def score(stage: str, round: int, step: int = 0, client: int = 0) -> Score:
    return Score(stage, round, step, client, 1, 2, 0.25, 0.5)


@given(st.lists(SCORE, unique=True))
def test_of_each_stage_the_last_scored_rounds_stay(places: list[tuple[str, int, int, int]]) -> None:
    result = run([score(*place) for place in places])
    found = shortened(result)
    kept = []
    for one in result.scores:
        later = {other.round for other in result.scores if other.stage == one.stage and other.round > one.round}
        kept += [one] if len(later) < 10 else []
    assert [*found.scores] == kept and found.metrics == result.metrics
    assert (SHORTENED in found.provenance) == (len(kept) < len(places))
    assert shortened(found).scores == found.scores


def test_a_table_s_reading_takes_no_more_rounds_than_stay() -> None:
    assert ROUNDS >= WINDOW
    spec = tiny_spec(0)
    long = spec.model_copy(update={"scoring": spec.scoring.model_copy(update={"last": 12})})
    scores = [score("global", round) for round in range(1, 21)]
    assert [one.round for one in shortened(replace(run(scores), spec=long)).scores] == [*range(9, 21)]


def test_runs_that_were_scored_after_every_round_stay_whole() -> None:
    scores = [score("global", round) for round in range(1, 21)]
    assert shortened(run(scores, every=1)).scores == scores


def test_a_folder_of_packs(tmp_path: Path) -> None:
    store = Store(tmp_path / "whole")
    scores = [score("global", round) for round in range(1, 21)]
    results = [run(scores, 0), run(scores, 1, every=1), RunResult(tiny_spec(2), failure="diverged")]
    for result in results:
        store.write(result)
    pack(store)
    (tmp_path / "whole" / "packs" / "asked.jsonl").write_text("{}\n")
    thin(tmp_path / "whole" / "packs", tmp_path / "thin" / "packs")
    there = Store(tmp_path / "thin")
    assert (tmp_path / "thin" / "packs" / "asked.jsonl").read_text() == "{}\n"
    found = [there.read(result.spec.id) for result in results]
    assert [len(one.scores) for one in found] == [10, 20, 0]
    assert [one.provenance.get(SHORTENED) for one in found] == [10, None, None] and found[2].failure == "diverged"
