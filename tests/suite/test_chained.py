"""Rows that go on from what another row's method left, and the suite of CAFeMe's chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shipped import load

from pflbench import trust
from pflbench.errors import UsageError
from pflbench.names import locate
from pflbench.report.explain import explain_cell
from pflbench.report.explain_text import explanation_text
from pflbench.report.layout import lay_out
from pflbench.report.stored import list_runs
from pflbench.running.estimate import gradient_rows
from pflbench.running.planning import ELSEWHERE, MEASURED, Times
from pflbench.running.task import Done, Environment, Task, run_task
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.cells import Expansion
from pflbench.suite.document import parse
from pflbench.suite.expand import expand

from .samples import raw


def tiny(**after: str) -> dict[str, Any]:
    """A suite with Per-FedAvg, FedAvg and IFCA; `after`: by row id with underscores."""
    table = raw()
    table["row"] = [
        {"id": name, "title": name, "method": name, "stage": "global"} for name in ("per-fedavg", "fedavg", "ifca")
    ]
    table["hyper"]["per-fedavg"] = {"steps": {"value": 2, "source": "guess"}}
    table["column"][0]["hyper"] = {"fedavg": {"epochs": 2}}
    for column in table["column"]:
        del column["finetune"]
    del table["evaluation"]["finetune"], table["evaluation"]["report"]
    table["row"].append({"id": "ifca-alone", "title": "IFCA", "method": "ifca", "stage": "global"})
    for row in table["row"]:
        if name := after.get(row["id"].replace("-", "_")):
            row["after"] = {"value": name, "source": "code"}
    return table


def table(raw: dict[str, Any], **part: Any) -> Expansion:
    return expand(parse(raw, Path("tiny.toml")), **part)


def of(found: Expansion, row: str, column: str = "a") -> RunSpec:
    return next(c for c in found.cells if (c.row.id, c.column.id) == (row, column)).runs[0]


CHAIN = {"fedavg": "per-fedavg", "ifca": "fedavg"}


def test_a_row_starts_from_what_another_rows_runs_leave() -> None:
    plain, chained = table(tiny()), table(tiny(**CHAIN))
    for column in "ab":
        first, second, third = (of(chained, row, column) for row in ("per-fedavg", "fedavg", "ifca"))
        assert first == of(plain, "per-fedavg", column) and not first.after
        assert [link.method for link in third.after] == [first.method, second.method]
        assert [link.rounds for link in third.after] == [3, 3] and third.total_rounds == 9
        assert second.after == third.after[:1]
        assert third.pieces == tuple(of(plain, row, column) for row in ("per-fedavg", "fedavg", "ifca"))
        assert of(chained, "ifca-alone", column) == of(plain, "ifca-alone", column)
    assert of(chained, "ifca", "a").after[1].method.hyper["epochs"] == 2
    assert of(chained, "ifca").setting() == of(plain, "ifca").setting()
    assert len({of(chained, "ifca").id, of(chained, "fedavg").id, of(plain, "ifca").id, of(plain, "fedavg").id}) == 4
    assert RunSpec.model_validate_json(of(chained, "ifca").canonical()) == of(chained, "ifca")


def test_what_is_selected_reaches_what_goes_before() -> None:
    found = table(tiny(**CHAIN), rows=["ifca"], rounds=2, overrides=["per-fedavg.inner_lr=0.5"])
    run = of(found, "ifca")
    assert [link.rounds for link in run.after] == [2, 2] and run.after[0].method.hyper["inner_lr"] == 0.5
    assert found.cells[0].sources["per-fedavg.steps"] == "guess" and found.cells[0].sources["after"] == "code"
    own = tiny(**CHAIN)
    own["row"][0]["rounds"] = 1
    assert [link.rounds for link in of(table(own), "ifca").after] == [1, 3]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ({"fedavg": "per-fedvag"}, r"row\[1\].after: Unknown row 'per-fedvag'. Did you mean 'per-fedavg'"),
        ({"fedavg": "fedavg"}, r"row\[1\].after: goes round in a circle: 'fedavg' → 'fedavg'"),
        ({"fedavg": "ifca", "ifca": "fedavg"}, "goes round in a circle: 'fedavg' → 'ifca' → 'fedavg'"),
    ],
)
def test_what_cannot_go_before_is_named(after: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        table(tiny(**after))


def test_a_row_of_several_models_and_one_of_a_file_cannot_go_before(tmp_path: Path) -> None:
    grid = tiny(ifca="fedavg")
    grid["row"][1] |= {"grid": {"lr": [0.1, 0.2]}, "select": "hold-out", "validation": 0.2}
    with pytest.raises(UsageError, match=r"row\[2\].after: 'fedavg' has a grid, of which each client takes a point"):
        table(grid)
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom pflbench.methods.fedavg import FedAvg\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    pass\n"
    )
    trust.grant(f"{tmp_path}/mine.py:Mine")
    own = tiny(ifca="per-fedavg")
    own["row"][0]["method"] = f"{tmp_path}/mine.py:Mine"
    del own["hyper"]["per-fedavg"]
    with pytest.raises(UsageError, match="'per-fedavg' has a method of a file"):
        table(own)


def smoke(**part: Any) -> Expansion:
    return expand(load("cafeme-chained"), profile="smoke", columns=["rmnist-shards"], **part)


def test_the_chain_of_cafemes_script_is_table_1_but_for_where_it_starts() -> None:
    found, one = expand(load("cafeme-chained")), expand(load("cafeme-table1"))
    theirs = {(cell.row.id, cell.column.id): cell for cell in one.cells}
    chain = {"per-fedavg": [], "fedavg": ["per-fedavg"], "ifca": ["per-fedavg", "fedavg"]}
    assert len(found.cells) == 20
    for cell in found.cells:
        like = theirs[cell.row.id.replace("-chained", ""), cell.column.id]
        names = chain[cell.row.method]
        for ours, fresh in zip(cell.runs, like.runs, strict=True):
            assert [(link.method.name, link.rounds) for link in ours.after] == [(name, 1000) for name in names]
            assert ours.model_copy(update={"after": ()}) == fresh
        assert cell.reference and like.reference and cell.reference[:2] == like.reference[:2]
        suspicion = cell.reference.suspect
        assert suspicion == (
            "the clusters of the authors' run were probably one and the same model" if len(names) == 2 else None
        )
    whats = {what.what: what.here for what in found.departures if what.what == "start"}
    assert "one after the other" in whats["start"]


def test_a_chained_run_is_stored_told_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFLBENCH_CACHE", str(tmp_path / "cache"))
    (spec,) = (run for run in smoke(seeds=[0], rows=["fedavg-chained"], rounds=1).runs)
    store, heard = Store(tmp_path), list[int]()
    place = Environment(tmp_path, tmp_path, evaluate_every=1)
    (done,) = run_task(Task((spec,)), place, heard.append)
    assert (done.status, heard) == ("done", [0, 1, 2])
    result = store.read(spec.id)
    assert result.spec == spec and {score.round for score in result.scores} == {1}
    (before,) = result.provenance["before"]
    assert (before["method"], before["rounds"]) == ("per-fedavg", 1) and before["client_seconds"] > 0
    assert 0 < before["client_gradients"] != result.provenance["client_gradients"] > 0
    (listed,) = list_runs(store.list(), store)
    assert listed.differs == "after=per-fedavg (1 round)"
    told = explanation_text(
        explain_cell("cafeme-chained", "fedavg-chained", "rmnist-shards", store, smoke(seeds=[0], rounds=1).part)
    )
    assert "FedAvg (chained) from what per-fedavg in 1 round left" in " ".join(told.split())
    assert "Trained before it: per-fedavg, 1 round" in told
    other = lay_out(expand(load("cafeme-table1"), profile="smoke", columns=["rmnist-shards"], rounds=1), store)
    assert all(cell is None or cell.mean is None for row in other.rows for cell in row.cells) and not other.extra
    assert "Not shown" not in "\n".join(other.footer)


@pytest.mark.slow
def test_a_group_of_seeds_goes_through_a_chain_as_single_runs_do(tmp_path: Path) -> None:
    specs = smoke(seeds=[0, 1], rows=["ifca-chained"], rounds=1).runs
    assert len(specs) == 2
    single, grouped = (
        Environment(tmp_path / name, tmp_path, execution=how) for name, how in (("a", "loop"), ("b", "vectorized"))
    )

    def scores(place: Environment, dones: list[Done]) -> list[tuple[Any, ...]]:
        assert [done.status for done in dones] == ["done"] * len(dones)
        results = [Store(place.results).read(spec.id) for spec in specs]
        return [(s.stage, s.step, s.client, s.count) for result in results for s in result.scores]

    assert scores(single, [d for spec in specs for d in run_task(Task((spec,)), single)]) == scores(
        grouped, run_task(Task(tuple(specs)), grouped)
    )


def test_a_plan_counts_all_that_a_chained_run_trains() -> None:
    found = expand(load("cafeme-chained"), columns=["rmnist-shards"], seeds=[0])
    last = of(found, "ifca-chained", "rmnist-shards")

    def rows(spec: RunSpec) -> float:
        counted = gradient_rows(spec, locate("methods", spec.method.name))
        assert counted is not None
        return counted

    first, second, third = map(rows, last.pieces)
    scoring = 20 * (50 * 30 + 51 * 120 / 3)
    assert rows(last) == pytest.approx(first + second + third - 2 * scoring)
    times = Times({})
    times.speeds = {}
    assert times.of(last, {}) is None
    from pflbench.running.planning import _kind

    kinds = [_kind(piece) for piece in last.pieces]
    history = {
        (kinds[0], None, False): (1000, 0.1),
        (kinds[1], None, True): (1000, 0.2),
        (kinds[2], None, True): (1000, 0.3),
    }
    times = Times(history)
    times.speeds, times.trials = {}, {}
    known = times.of(last, {})
    assert known is not None and known.source == ELSEWHERE != MEASURED
    assert known.seconds == pytest.approx(1000 * 0.6)
