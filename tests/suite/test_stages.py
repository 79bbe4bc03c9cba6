"""Several stages in one table, columns that are readings, differences, and grids."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.errors import UsageError
from pflbench.suite.cells import Choice, Expansion, Reference, TableRow
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.inherit import inherited
from pflbench.suite.load import load

from .samples import staged, write

HERE = Path("tiny.toml")


MINE = """
@dataclass
class Mine(Method):
    lr: float = 1.0

    def personal_model(self, f, server, state, *batches, round, upload=None): ...
"""


def suite(table: dict[str, Any] | None = None) -> Suite:
    return parse(inherited(table or staged(), None, HERE).raw, HERE)


def put(table: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    place: Any = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return table


def refusal(path: tuple[str | int, ...], value: object) -> str:
    with pytest.raises(UsageError) as caught:
        expand(suite(put(staged(), path, value)))
    return str(caught.value)


def places(expansion: Expansion) -> list[tuple[str, str, str]]:
    return [(cell.column.id, cell.row.id, cell.stage) for cell in expansion.cells]


def test_a_cell_for_each_stage_that_a_row_shows() -> None:
    full = expand(suite())
    rows = [("local", "personalized"), ("fedavg", "global")]
    rows += [(row, stage) for row in ("ditto", "strong") for stage in ("personalized", "global")]
    assert places(full) == [(column, *row) for column in "ab" for row in rows]
    assert full.rows[2] == TableRow("ditto", "Ditto", "ditto", ("personalized", "global"))
    assert (full.stages, full.layout.blocks) == ({"personalized": "PM", "global": "GM"}, "group")
    assert list(full.stages) == ["personalized", "global"]
    found = {(cell.row.id, cell.column.id, cell.stage): cell.reference for cell in full.cells}
    assert {place: reference for place, reference in found.items() if reference} == {
        ("local", "a", "personalized"): Reference(50.0, 0.5),
        ("local", "b", "personalized"): Reference(49.0, None),
        ("ditto", "a", "personalized"): Reference(60.0, 0.1),
        ("ditto", "a", "global"): Reference(55.0, None),
    }


def test_runs_are_scored_at_their_rows_stages_in_a_fixed_order() -> None:
    for cell in expand(suite()).cells:
        wanted = {"local": ("personalized",), "fedavg": ("global",)}.get(cell.row.id, ("global", "personalized"))
        scoring = cell.runs[0].scoring
        assert (scoring.stages, scoring.finetune) == (wanted, None)
        assert (scoring.global_on, scoring.moment) == ("test-set", "before-aggregation")
    # What is shown, and in which order, trains nothing again.
    table = staged()
    table["layout"]["stages"] = {"personalized": "P"}
    table["row"].pop(1)
    for key in ("derived", "reference"):
        del table[key]
    less = expand(suite(table))
    assert {stage for _, _, stage in places(less)} == {"personalized"}
    assert set(less.runs) < set(expand(suite()).runs)


def test_a_row_with_one_stage_is_scored_at_all_of_the_suites() -> None:
    table = put(staged(), ("row", 1), {"id": "fedavg", "title": "FedAvg", "method": "ifca", "stage": "global"})
    cell = expand(suite(table)).cells[1]
    assert (cell.stage, cell.runs[0].scoring.stages) == ("global", ("global", "personalized"))


def test_rows_with_their_own_stages_are_not_fine_tuned_for_others() -> None:
    table = staged()
    del table["layout"]["stages"], table["derived"], table["reference"]
    table["evaluation"]["finetune"] = {"steps": 2, "lr": 0.1}
    table["row"] = [
        {"id": "tuned", "title": "Tuned", "method": "fedavg", "stages": ["finetuned"]},
        {"id": "plain", "title": "Plain", "method": "fedavg", "stages": ["global"]},
    ]
    tuned, plain = expand(suite(table), columns=["a"]).cells
    assert (tuned.reading.steps, tuned.runs[0].scoring.stages) == ((2,), ("finetuned",))
    assert plain.runs[0].scoring.finetune is None and tuned.runs[0].scoring.finetune is not None


def with_kept() -> dict[str, Any]:
    """A suite without stages beside each other, one row of which is scored at more stages than it shows."""
    table = staged()
    del table["layout"]["stages"], table["derived"], table["reference"]
    table["row"] = [
        {"id": "global", "title": "G", "method": "fedavg", "stage": "global", "stages": ["global"]},
        {
            "id": "own",
            "title": "O",
            "method": "ditto",
            "stage": "personalized",
            "stages": ["sampled", "personalized", "stored"],
        },
    ]
    return table


def test_a_row_may_be_scored_at_more_stages_than_it_shows() -> None:
    full = expand(suite(with_kept()), columns=["a"])
    assert places(full) == [("a", "global", "global"), ("a", "own", "personalized")]
    assert [cell.runs[0].scoring.stages for cell in full.cells] == [("global",), ("personalized", "stored", "sampled")]
    # Beside each other, those of them that the layout names, and the same runs.
    table = with_kept()
    table["layout"]["stages"] = {"stored": "S", "global": "GM", "personalized": "PM"}
    beside = expand(suite(table), columns=["a"])
    assert [row.stages for row in beside.rows] == [("global",), ("stored", "personalized")]
    assert beside.runs == full.runs


def test_a_row_like_one_with_both_takes_both_or_neither() -> None:
    table = with_kept()
    table["row"] += [
        {"id": "same", "like": "own", "hyper": {"lam": 2.0}},
        {"id": "less", "like": "own", "stages": ["personalized"]},
        {"id": "one", "like": "own", "stage": "personalized"},
    ]
    found = {c.row.id: (c.stage, c.runs[0].scoring.stages) for c in expand(suite(table), columns=["a"]).cells}
    assert found["same"] == ("personalized", ("personalized", "stored", "sampled"))
    assert found["less"] == ("personalized", ("personalized",))
    assert found["one"] == ("personalized", ("global", "personalized", "stored", "sampled"))


def test_a_guest_is_asked_for_what_participations_leave_only_where_that_is_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    guest = [f"{tmp_path / 'mine.py'}:Mine"]
    cell = expand(suite(with_kept()), methods=guest).cells[0]
    assert (cell.stage, cell.runs[0].scoring.stages) == ("personalized", ("global", "personalized"))
    table = with_kept()
    table["layout"]["stages"] = {"personalized": "PM", "global": "GM", "stored": "S"}
    full = expand(suite(table), columns=["a"], methods=guest)
    assert full.rows[0].stages == ("personalized", "global", "stored")
    assert full.runs[0].scoring.stages == ("global", "personalized", "stored")


def test_a_rows_id_is_that_row_even_where_it_is_a_method_of_several() -> None:
    def picked(*methods: str) -> list[str]:
        return [row.id for row in expand(suite(), methods=methods).rows]

    assert picked("ditto") == ["ditto"] and picked("strong") == ["strong"]
    assert picked("fedavg") == ["fedavg"]  # not local, which is the same method
    table = staged()
    table["row"][1]["id"] = "mean"
    assert [row.id for row in expand(suite(table), methods=["fedavg"]).rows] == ["local", "mean"]


def test_who_trains_defaults_to_everyone() -> None:
    run = expand(suite()).runs[0]
    assert (run.clients, run.training_clients, run.cohort) == (10, 10, 10)
    assert (run.query, run.arrival, run.batches) == ("test-split", 0.5, "reshuffled")
    table = put(staged(), ("column", 0, "training_clients"), 6)
    table["row"] = table["row"][:2]  # Ditto has no personal models of clients that never train
    del table["derived"], table["reference"]
    table["column"][1] |= {"clients": 8, "arrival": 1.0, "query": 0.5, "batches": "static"}
    one, two = expand(suite(table)).runs[0], expand(suite(table), columns=["b"]).runs[0]
    assert (one.clients, one.training_clients, one.cohort) == (10, 6, 6)
    assert (two.clients, two.training_clients, two.arrival, two.query, two.batches) == (8, 6, 1.0, 0.5, "static")


def test_a_subset_is_read_from_the_same_runs() -> None:
    full = expand(suite())
    assert [column.smallest for column in full.columns] == [None, 3]
    by_column = {c: [cell.needed for cell in full.cells if cell.column.id == c] for c in "ab"}
    assert by_column["a"] == by_column["b"]
    assert "column[1].subset.smalest: Unknown key" in refusal(("column", 1, "subset"), {"smalest": 1})


def test_differences_go_with_their_parts() -> None:
    gain, gap = expand(suite()).derived
    assert (gain.id, gain.title, gain.axis, gain.of) == ("gain", "Gain", "rows", ("strong", "ditto"))
    assert gain.references == {("b", "personalized"): Reference(2.0, None)}
    assert (gap.axis, gap.of, gap.references) == ("columns", ("b", "a"), {("ditto", "global"): Reference(-1.0, None)})
    assert [d.id for d in expand(suite(), rows=["ditto", "fedavg"]).derived] == ["gap"]
    assert [d.id for d in expand(suite(), columns=["b"]).derived] == ["gain"]
    assert expand(suite(), columns=["b"], methods=["fedavg"]).derived == ()


def test_the_grids_points_each_with_a_run_on_all_data_and_one_to_choose_by() -> None:
    full = expand(suite(), columns=["a"])
    cell = full.cells[0]
    assert len(cell.choices) == len(cell.runs) == 2
    for run, points in zip(cell.runs, cell.choices, strict=True):
        hyper = [{key: point.run.method.hyper[key] for key in ("lr", "batch")} for point in points]
        assert hyper == [{"lr": lr, "batch": batch} for lr, batch in product([0.1, 0.01], [5, 10, 20])]
        assert points[0].run == run and {point.run.seed for point in points} == {run.seed}
        for point in points:
            assert (point.run.validation, point.validation.validation, point.run.rounds) == (0.0, 0.1, 2)
            assert point.validation == point.run.model_copy(update={"validation": 0.1})
    assert len(set(cell.needed)) == 2 * 6 * 2 and set(cell.needed) <= set(full.runs)
    assert len(full.runs) == len(set(full.runs)) == 24 + 3 * 2
    assert cell.sources == {"batch": "paper"}
    assert all(other.choices == () and other.needed == other.runs for other in full.cells[1:])


def test_a_set_value_stands_for_the_grids() -> None:
    cell = expand(suite(), overrides=["fedavg.lr=0.5"], rows=["local"]).cells[0]
    assert [point.run.method.hyper["lr"] for point in cell.choices[0]] == [0.5] * 3
    assert isinstance(cell.choices[0][0], Choice) and cell.runs[0] == cell.choices[0][0].run


@given(st.integers(1, 9))
def test_rounds_asked_for_shorten_a_row_and_never_lengthen_it(rounds: int) -> None:
    full = expand(suite(), rounds=rounds)
    for cell in full.cells:
        assert {run.rounds for run in cell.needed} == {min(2, rounds) if cell.row.id == "local" else rounds}
    assert {column.rounds for column in full.columns} == {rounds}
    assert {column.rounds for column in expand(suite()).columns} == {3}


def test_a_guest_is_shown_at_the_tables_stages(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    guest = [f"{tmp_path / 'mine.py'}:Mine"]
    full = expand(suite(), methods=guest)
    assert [row.stages for row in full.rows] == [("personalized", "global")]
    assert {run.scoring.stages for run in full.runs} == {("global", "personalized")}
    assert {run.setting() for run in full.runs} == {run.setting() for run in expand(suite(), rows=["ditto"]).runs}
    assert {run.setting() for run in full.runs} == {run.setting() for run in expand(suite(), rows=["fedavg"]).runs}
    # A table that shows less reads the same run.
    table = put(staged(), ("layout", "stages"), {"personalized": "PM"})
    table["row"][1]["stages"] = ["personalized"]
    for key in ("derived", "reference"):
        del table[key]
    less = expand(suite(table), methods=guest)
    assert less.runs == full.runs and [row.stages for row in less.rows] == [("personalized",)]
    # Without stages beside each other it is shown at one that there is.
    del table["layout"]["stages"]
    table["row"] = [{"id": "f", "title": "F", "method": "fedavg", "stages": ["personalized"]}]
    assert [row.stages for row in expand(suite(table), methods=guest).rows] == [("personalized",)]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("row", 1, "stage"), "personalized", "row[1].stage: none of the row's stages, global"),
        (("row", 1), {"id": "x", "title": "X", "method": "fedavg"}, "row[1].stage: missing"),
        (("row", 1, "stages"), [], "row[1].stages: "),
        (("row", 1, "stages"), ["globl"], "row[1].stages[0]: "),
        (("row", 1, "stages"), ["finetuned"], "row[1].stages: list those that the table shows in layout.stages"),
        (("row", 1, "rounds"), 0, "row[1].rounds: "),
        (("row", 0, "validation"), 1.0, "row[0].validation: "),
        (("row", 1, "validation"), 0.1, "row[1].validation: a row has both a grid and a validation share"),
        (("row", 0, "grid"), {}, "row[0].validation: a row has both a grid and a validation share"),
        (("row", 0, "grid", "lr"), [], "row[0].grid.lr: "),
        (("row", 0, "grid", "lr"), 0.1, "row[0].grid.lr: "),
        (("row", 0, "grid", "lr"), [[1]], "row[0].grid.lr[0]: a hyperparameter is a finite number"),
        (("row", 0, "grid", "lr"), ["x"], "row[0].grid.lr: fedavg.lr must be float, not 'x'"),
        (("row", 0, "grid", "rl"), [1], "row[0].grid.rl: Unknown hyperparameter of fedavg 'rl'. Did you mean 'lr'"),
        (("layout", "stages", "persnalized"), "x", "layout.stages.persnalized"),
        (("layout", "stages"), {}, "row[2].stages: list those that the table shows in layout.stages"),
        (("layout", "blocks"), "groups", "layout.blocks: "),
        (("derived", 0, "rows"), ["strong", "dito"], "derived[0].rows: Unknown row 'dito'. Did you mean 'ditto'"),
        (("derived", 0, "rows"), ["ditto"], "derived[0].rows: "),
        (("derived", 0, "columns"), ["a", "b"], "derived[0]: the difference of what? Give either rows or columns"),
        (("derived", 1), {"id": "x", "title": "X"}, "derived[1]: the difference of what? Give either rows or columns"),
        (("derived", 1, "columns"), ["b", "ab"], "derived[1].columns: Unknown column 'ab'. Did you mean"),
        (("derived", 1, "id"), "gain", "row: there is already a row 'gain'"),
        (("derived", 1, "id"), "a", "column: there is already a column 'a'"),
        (
            ("reference", "ditto", "a"),
            [1.0],
            "reference.ditto.a: write one for each of personalized, global",
        ),
        (
            ("reference", "ditto", "a", "globl"),
            [1.0],
            "reference.ditto.a: Unknown stage 'globl'. Did you mean 'global'",
        ),
        (("reference", "ditto", "a", "global"), [], "reference.ditto.a.global: [] does not fit."),
        (("reference", "local", "a"), {"global": [1.0]}, "reference.local.a: Unknown stage 'global'"),
        (("reference", "gaim"), {}, "reference: Unknown row 'gaim'. Did you mean 'gain'?"),
    ],
)
def test_refusals(path: tuple[str | int, ...], value: object, expected: str) -> None:
    assert f"tiny.toml: {expected}" in refusal(path, value)


def test_a_grid_needs_to_know_how_to_choose() -> None:
    table = staged()
    del table["row"][0]["validation"]
    with pytest.raises(UsageError, match=r"row\[0\]\.validation: a row has both a grid and a validation share"):
        suite(table)


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    found, made = expand(load(write(tmp_path / "tiny.toml", staged()))), expand(suite())
    assert replace(found, path=made.path, part=made.part) == made
