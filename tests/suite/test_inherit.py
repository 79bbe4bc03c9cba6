"""Suites that build on others."""

from __future__ import annotations

import copy
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pflbench.errors import UsageError
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.inherit import merged
from pflbench.suite.load import load

from .samples import dumps, raw, staged, suites, write

HEAD = {"extends": "base.toml", "name": "child", "title": "Child"}


def child(**tables: Any) -> dict[str, Any]:
    columns = [{"id": "a", "like": "a"}, {"id": "b", "like": "b"}]
    return copy.deepcopy({"suite": HEAD, "column": columns} | tables)


def loaded(
    folder: Path, table: dict[str, Any], base: dict[str, Any] | None = None, profile: str = "paper"
) -> Expansion:
    write(folder / "base.toml", base or raw())
    return expand(load(write(folder / "child.toml", table)), profile=profile)


def refusal(folder: Path, table: dict[str, Any], base: dict[str, Any] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(folder, table, base)
    return str(caught.value)


def test_rows_and_columns_come_by_their_ids_in_the_order_of_the_list(tmp_path: Path) -> None:
    mine = {"id": "mine", "like": "cafeme", "hyper": {"steps": 4}}
    by_like = child(row=[{"id": "cafeme", "like": "cafeme"}, mine, {"id": "fedavg", "like": "fedavg"}])
    listed = {"suite": HEAD | {"rows": ["cafeme", "mine", "fedavg"], "columns": ["a", "b"]}, "row": [mine]}
    tables = [loaded(tmp_path, table) for table in (by_like, copy.deepcopy(listed))]
    assert tables[0].rows == tables[1].rows and tables[0].cells == tables[1].cells
    listed["suite"]["rows"] = ["cafme", "mine"]
    assert "Did you mean 'cafeme'" in refusal(tmp_path, listed)
    for twice in ({"rows": ["mine", "mine"]}, {"rows": ["mine"]}):
        assert "already a row 'mine'" in refusal(
            tmp_path, listed | {"suite": listed["suite"] | twice, "row": [mine, mine]}
        )


tables = st.recursive(
    st.integers() | st.text(max_size=2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
dicts = st.dictionaries(st.sampled_from("abc"), tables, max_size=3)


@given(dicts, dicts, dicts)
def test_merging_keeps_and_the_later_wins(one: Any, two: Any, three: Any) -> None:
    assert merged(one, {}) == merged({}, one) == merged(one, one) == one
    assert merged(merged(one, two), two) == merged(one, two)
    kept = copy.deepcopy((one, two))
    both = merged(one, two)
    assert (one, two) == kept
    assert both.keys() == one.keys() | two.keys()
    for key, value in two.items():
        assert both[key] == value or isinstance(one.get(key), dict)
    # What one table adds does not depend on where another one is put in.
    if not any(isinstance(value, dict) for table in (one, two, three) for value in table.values()):
        assert merged(merged(one, two), three) == merged(one, merged(two, three))


@settings(max_examples=25)
@given(base=suites())
def test_a_file_that_only_extends_asks_for_the_same_runs(
    base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("suites")
    columns = [{"id": column["id"], "like": column["id"]} for column in base["column"]]
    extended = loaded(folder, {"suite": HEAD, "column": columns}, base)
    alone = expand(load(str(folder / "base.toml")))
    assert extended.runs == alone.runs and extended.rows == alone.rows and extended.columns == alone.columns
    assert (extended.suite, extended.title, extended.paper) == ("child", "Child", alone.paper)
    assert all(cell.reference is None for cell in extended.cells)


@pytest.mark.parametrize("profile", ["paper", "smoke"])
def test_what_is_taken_over_and_what_is_not(tmp_path: Path, profile: str) -> None:
    base = staged()
    columns = [{"id": "a", "like": "a"}, {"id": "b", "like": "b"}]
    full = loaded(tmp_path, {"suite": HEAD | {"seeds": [7]}, "column": columns}, base, profile)
    alone = expand(load(str(tmp_path / "base.toml")), profile=profile)
    assert full.runs == expand(load(str(tmp_path / "base.toml")), profile=profile, seeds=full.seeds).runs
    assert full.seeds == ((7,) if profile == "paper" else alone.seeds)
    assert (full.columns, full.rows, full.stages, full.layout.blocks) == (
        alone.columns,
        alone.rows,
        alone.stages,
        alone.layout.blocks,
    )
    assert alone.derived and full.derived == ()
    assert any(cell.reference for cell in alone.cells) and not any(cell.reference for cell in full.cells)


def test_own_keys_win(tmp_path: Path) -> None:
    own = {
        "federation": {"cohort": 3},
        "evaluation": {"finetune": {"every": 2}},
        "hyper": {"fedavg": {"lr": {"value": 0.5, "source": "tuned"}, "epochs": 4}},
        "layout": {"decimals": 3},
        "profile": {"smoke": {"seeds": [9]}, "long": {"column": {"*": {"rounds": 9}}}},
    }
    own["suite"] = HEAD | {"notes": ["Mine."]}
    table = child(**own)
    table["column"][1] |= {"title": "Other", "partition": {"shards": 40}, "finetune": {"cafeme": {"lr": 0.9}}}
    full = loaded(tmp_path, table)
    a, b = full.runs[0], next(run for run in full.runs if run.partition.options["shards"] == 40)
    assert (a.cohort, a.training_clients, b.cohort) == (3, 8, 3)
    assert a.scoring.finetune and (a.scoring.finetune.steps, a.scoring.finetune.every) == (5, 2)
    # The column's epochs, which are the base's, are stronger than the suite's.
    assert a.method.hyper == {"lr": 0.5, "epochs": 2} and full.cells[0].sources == {"lr": "tuned"}
    assert (full.layout.decimals, full.notes) == (3, ("Mine.",))
    assert [column.title for column in full.columns] == ["A", "Other"]
    rate = {run.partition.options["shards"]: run.scoring.finetune for run in full.runs if run.method.name == "cafeme"}
    assert {shards: one.lr for shards, one in rate.items() if one} == {20: 0.2, 40: 0.9}
    suite = load(str(tmp_path / "child.toml"))
    assert suite.profiles == ("paper", "smoke", "long")
    smoke, long = expand(suite, profile="smoke"), expand(suite, profile="long")
    assert (smoke.seeds, [c.rounds for c in smoke.columns]) == ((9,), [1, 2])
    assert [c.rounds for c in long.columns] == [9, 9]


def test_a_name_or_a_value_begins_anew(tmp_path: Path) -> None:
    table = child(column=[{"id": "a", "like": "a", "dataset": {"name": "digits"}}])
    assert loaded(tmp_path, table).runs[0].dataset.options == {"channels": 1, "size": 28}
    table = child(column=[{"id": "a", "like": "a", "dataset": {"rotations": 5}}])
    assert loaded(tmp_path, table).runs[0].dataset.options == {"size": 28, "rotations": 5, "degrees": 20.0}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"lr": 0.1, "value": 1}, {"value": 2}, {"lr": 0.1, "value": 2}),
        ({"lr": 0.1, "name": "a"}, {"name": "b"}, {"lr": 0.1, "name": "b"}),
        ({"lr": 0.1}, {"lr": 0.2, "value": 2}, {"lr": 0.2, "value": 2}),
        ({"value": 1, "source": "paper"}, {"value": 2}, {"value": 2}),
        ({"like": "row.lr", "source": "paper"}, {"value": 2, "source": "code"}, {"value": 2, "source": "code"}),
        ({"value": 2, "source": "code"}, {"like": "row.lr"}, {"like": "row.lr"}),
        (1, {"value": 2, "source": "code"}, {"value": 2, "source": "code"}),
        (
            {"value": 1, "lr": 0.1},
            {"value": {"value": 2, "source": "code"}},
            {"value": {"value": 2, "source": "code"}, "lr": 0.1},
        ),
    ],
)
def test_value_and_name_may_be_hyperparameters(old: Any, new: Any, expected: Any) -> None:
    assert merged({"mine": old}, {"mine": new}) == {"mine": expected}


@pytest.mark.parametrize("key", ["dataset", "partition"])
def test_a_dataset_with_a_name_replaces_the_same_one(key: str) -> None:
    assert merged({key: {"name": "a", "x": 1}}, {key: {"name": "a"}}) == {key: {"name": "a"}}
    assert merged({key: {"name": "a", "x": 1}}, {key: {"x": 2}}) == {key: {"name": "a", "x": 2}}


def test_like_reaches_through_columns_of_the_file_and_of_the_other(tmp_path: Path) -> None:
    base = raw()
    base["profile"]["smoke"]["column"] = {"*": {"rounds": 1}, "b": {"rounds": 2, "batch": 7}}
    table = child(
        column=[
            {"id": "c", "like": "d", "batch": 3},
            {"id": "d", "like": "b", "rounds": 8, "title": "D"},
            {"id": "b", "like": "b", "group": "G"},
            {"id": "e", "like": "b"},
        ],
        profile={"smoke": {"column": {"c": {"rounds": 4}, "b": {"clients": 9}}}},
    )
    full = loaded(tmp_path, table, base)
    columns = {column.id: column for column in full.columns}
    assert [columns[id_].group for id_ in "cdbe"] == ["G", "G", "G", "G"]  # the file's own b goes first
    assert [columns[id_].rounds for id_ in "cdbe"] == [8, 8, 3, 3]
    assert [columns[id_].title for id_ in "cdbe"] == ["D", "D", "B", "B"]
    batches = {cell.column.id: cell.runs[0].batch for cell in full.cells}
    assert [batches[id_] for id_ in "cdbe"] == [3, 10, 10, 10]
    smoke = expand(load(str(tmp_path / "child.toml")), profile="smoke")
    assert [(c.id, c.rounds, c.clients) for c in smoke.columns] == [("c", 4, 9), ("d", 2, 9), ("b", 2, 9), ("e", 2, 9)]
    assert {run.batch for run in smoke.runs} == {7}


def test_rows_like_others(tmp_path: Path) -> None:
    table = child(
        row=[
            {"id": "fedavg", "like": "fedavg-ft", "title": "Mine"},
            {"id": "slow", "like": "fedavg", "hyper": {"lr": 0.001}},
            {"id": "plain", "like": "fedavg", "stages": ["global"], "title": "Plain"},
        ]
    )
    for column in table["column"]:
        column["title"] = column["id"]
    full = loaded(tmp_path, table)
    assert [(row.id, row.title, row.stages) for row in full.rows] == [
        ("fedavg", "Mine", ("finetuned",)),
        ("slow", "Mine", ("finetuned",)),
        ("plain", "Plain", ("global",)),
    ]
    assert {run.method.hyper["lr"] for run in full.runs} == {0.01, 0.001}
    # What the other file says of CAFeMe, in hyper and finetune, goes with its row.
    assert {run.method.name for run in full.runs} == {"fedavg"}


def test_like_within_one_file_needs_no_other(tmp_path: Path) -> None:
    alone = raw()
    alone["column"][1] = {"id": "b", "like": "a", "title": "B"}
    alone["profile"]["smoke"]["column"] = {"a": {"rounds": 1}}
    path = write(tmp_path / "alone.toml", alone)
    assert expand(load(path)).runs == expand(load(write(tmp_path / "raw.toml", raw()))).runs
    assert [c.rounds for c in expand(load(path), profile="smoke").columns] == [1, 1]


def test_a_chain_of_files_across_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path / "base.toml", raw())
    middle = child(row=[{"id": "fedavg", "like": "fedavg"}, {"id": "tuned", "like": "fedavg-ft"}])
    write(tmp_path / "middle.toml", middle)
    leaf = child(
        suite=HEAD | {"extends": "../middle.toml"},
        row=[{"id": "first", "like": "fedavg"}, {"id": "last", "like": "tuned"}],
    )
    write(tmp_path / "deep" / "leaf.toml", leaf)
    monkeypatch.chdir(tmp_path)
    full = expand(load("deep/leaf.toml"))
    assert [(row.id, row.title) for row in full.rows] == [("first", "FedAvg"), ("last", "FedAvg-FT")]
    assert full.runs == expand(load("middle.toml")).runs


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"suite": HEAD | {"extends": "bas.toml"}},
            "child.toml: suite.extends: Unknown suite file 'bas.toml'. Did you",
        ),
        ({"suite": HEAD | {"extends": 3}}, "child.toml: suite.extends: 3 does not fit"),
        ({"suite": HEAD | {"extends": "child.toml"}}, "child.toml: suite.extends: goes round in a circle: "),
        ({"column": [{"id": "c", "like": "aa"}]}, "child.toml: column[0].like: Unknown column 'aa'. Did you mean 'a'"),
        ({"column": [{"id": "c", "like": 3}]}, "child.toml: column[0].like: "),
        ({"column": [{"id": "c", "liek": "a"}]}, "child.toml: column[0].liek: Unknown key"),
        ({"column": [{"id": "c", "like": "c"}]}, "child.toml: column[0].like: Unknown column 'c'"),
        (
            {"column": [{"id": "c", "like": "d"}, {"id": "d", "like": "c"}]},
            "child.toml: column[1].like: Unknown column 'c'",
        ),
        ({"row": [{"id": "r", "like": "fedavg-tf"}]}, "child.toml: row[0].like: Unknown row 'fedavg-tf'. Did you mean"),
        (
            {"row": [{"id": "r", "like": "fedavg", "stagse": "global"}]},
            "child.toml: row[0].stagse: Unknown key",
        ),
        ({"row": []}, "child.toml: row: "),
        ({"hyper": {"fedavgg": {}}}, "child.toml: hyper: Unknown method 'fedavgg'. Did you mean 'fedavg'"),
        ({"hyper": 3}, "child.toml: hyper: "),
        ({"profile": 3}, "child.toml: profile: "),
        ({"column": 3}, "child.toml: column: "),
        ({"column": [3]}, "child.toml: column[0]: "),
        ({"row": 3}, "child.toml: row: "),
        ({"layout": 3}, "child.toml: layout: "),
        (
            {"profile": {"smoke": {"column": {"aa": {}}}}},
            "child.toml: profile.smoke: Unknown column 'aa'. Did you mean",
        ),
        (
            {"profile": {"smoke": {"column": {"a": 3}}}},
            "child.toml: profile.smoke.column.a: ",
        ),
        ({"profile": {"smoke": 3}}, "child.toml: profile.smoke: "),
    ],
)
def test_refusals(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    assert expected in refusal(tmp_path, child(**change)), expected


def test_the_other_files_mistakes_are_its_own(tmp_path: Path) -> None:
    base = raw()
    base["column"][1]["bacth"] = 3
    assert f"{tmp_path / 'base.toml'}: column[1].bacth: Unknown key" in refusal(tmp_path, child(), base)


def test_files_that_extend_each_other(tmp_path: Path) -> None:
    message = refusal(tmp_path, child(), raw() | {"suite": raw()["suite"] | {"extends": "child.toml"}})
    assert "base.toml: suite.extends: goes round in a circle: " in message


def test_columns_the_file_has_not_are_forgotten_in_profiles(tmp_path: Path) -> None:
    full = loaded(tmp_path, child(column=[{"id": "new", "like": "b"}]), profile="smoke")
    assert [(c.id, c.rounds) for c in full.columns] == [("new", 2)]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += places(inner, (*path, key))
    return found


JUNK = [3, -1.5, "x", True, [], [1], {}, {"x": 1}, [{}], [[]]]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), junk=st.sampled_from(JUNK))
def test_anything_wrong_is_a_usage_error(data: st.DataObject, junk: Any, tmp_path: Path) -> None:
    profile = {"smoke": {"seeds": [1], "hyper": {"fedavg": {"lr": 0.1}}, "column": {"*": {"batch": 5}, "b": {}}}}
    files = {"base.toml": raw(), "child.toml": child(row=[{"id": "r", "like": "fedavg"}], profile=profile)}
    name = data.draw(st.sampled_from(sorted(files)))
    *parents, last = data.draw(st.sampled_from(places(files[name])))
    place: Any = files[name]
    for key in parents:
        place = place[key]
    place[last] = copy.deepcopy(junk)
    for file, table in files.items():
        (tmp_path / file).write_text(dumps(table), encoding="utf-8")
    try:
        load(str(tmp_path / "child.toml"))
    except UsageError as error:
        assert str(tmp_path) in str(error) and "nput should" not in str(error)


def test_inherited_stages_that_no_row_has_are_left_out(tmp_path: Path) -> None:
    base = load("pfedvem-table1").path
    text = f"""
        [suite]
        name = "mine"
        title = "Mine"
        extends = "{base.as_posix()}"
        [[column]]
        id = "fashion-mnist-50"
        like = "fashion-mnist-50"
        [[row]]
        id = "fedavg"
        like = "fedavg"
        """
    (tmp_path / "mine.toml").write_text(textwrap.dedent(text))
    assert list(expand(load(str(tmp_path / "mine.toml"))).stages) == ["global"]


@pytest.mark.parametrize("kept", ["fedavg", "fedavg-ft", "cafeme"])
def test_a_row_taken_over_alone_has_the_runs_that_it_had(tmp_path: Path, kept: str) -> None:
    """Its runs are scored at the stages of rows that were left behind, too, or they would be trained again."""
    base = loaded(tmp_path, child())
    table = loaded(tmp_path, child(row=[{"id": "kept", "title": "Kept", "like": kept}]))
    runs = {run.id for cell in base.cells if cell.row.id == kept for run in cell.needed}
    assert {run.id for run in table.runs} == runs
    assert {cell.stage for cell in table.cells} == {cell.stage for cell in base.cells if cell.row.id == kept}


@pytest.mark.parametrize("beside", [{}, {"stage": "global", "scored": ["personalized"]}])
@pytest.mark.parametrize("kept", ["fedavg", "ditto"])
def test_a_row_without_a_stage_has_the_runs_that_it_had(tmp_path: Path, kept: str, beside: dict[str, Any]) -> None:
    ditto = {"id": "ditto", "method": "ditto", "hyper": {"personal_lr": 0.1, "lr": 0.1, "lam": 1.0}}
    base = raw() | {
        "row": [{"id": "fedavg", "method": "fedavg"} | beside, ditto],
        "evaluation": {"clients": "all", "average": "examples"},
        "federation": {"clients": 10, "query": 0.2},
        "reference": {},
    }
    for column in base["column"]:
        del column["finetune"]
    whole = loaded(tmp_path, child(), base)
    table = loaded(tmp_path, child(row=[{"id": kept, "like": kept}]), base)
    assert {run.id for run in table.runs} == {run.id for run in whole.runs if run.method.name == kept}


def test_a_row_with_a_stage_or_a_method_of_its_own_is_scored_as_this_suite_says(tmp_path: Path) -> None:
    for own in ({"stage": "finetuned"}, {"method": "fedprox"}):
        table = loaded(tmp_path, child(row=[{"id": "own", "title": "Own", "like": "fedavg-ft"} | own]))
        assert {run.scoring.stages for run in table.runs} == {("finetuned",)}


def test_a_guest_is_scored_as_the_rows_are_that_were_taken_over(tmp_path: Path) -> None:
    """Else its runs would have another setting than theirs, and no place in their table."""
    rows = [{"id": "kept", "title": "Kept", "like": "fedavg"}]
    write(tmp_path / "base.toml", raw())
    suite = load(write(tmp_path / "child.toml", child(row=rows)))
    guest, kept = expand(suite, methods=["fedprox"]), expand(suite)
    assert {run.setting() for run in guest.runs} == {run.setting() for run in kept.runs}


def test_a_variant_takes_what_the_tables_say_of_its_built_in_method() -> None:
    """Values, fine-tuning, remarks, and what it inherits through `like`."""
    table = expand(load("cafeme-readings"), profile="smoke", rows=["cafeme", "cafeme-disjoint"])
    runs: dict[str, list[Any]] = {}
    for run in table.runs:
        runs.setdefault(run.method.name, []).append(run)
    assert list(runs) == ["cafeme", "cafeme/variants/cafeme.py:Disjoint"]
    built_in, variant = runs.values()
    assert built_in[0].method.hyper == variant[0].method.hyper
    assert [one.setting() for one in built_in] == [one.setting() for one in variant]
    assert [one.scoring for one in built_in] == [one.scoring for one in variant]
