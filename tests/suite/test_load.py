from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.catalog import UNREAD
from pflbench.errors import UsageError
from pflbench.package import benchmarks
from pflbench.suite.expand import expand
from pflbench.suite.load import available, find, load, requested_table
from pflbench.suite.user_supplied import UserSupplied

from .samples import raw, staged, suites, write


def test_shipped_suites_load_and_are_named_after_their_files() -> None:
    assert "cafeme-table1" in available()
    for name, path in available().items():
        suite = load(name)
        assert (suite.name, suite.path) == (name, path)


@pytest.mark.parametrize("seeds", [[0, 2, 3], "0,2-3"], ids=["numbers", "text, as runs of before 1.0 have it"])
def test_a_runs_request_finds_its_table_again(seeds: object) -> None:
    request = {"suite": "cafeme-table1", "profile": "smoke", "row": "ditto", "column": "rmnist-shards"}
    table = requested_table(request | {"seeds": seeds, "rounds": 3}, UserSupplied())
    assert table.runs == expand(load("cafeme-table1"), profile="smoke", seeds=[0, 2, 3], rounds=3).runs
    recorded = table.provenance(table.cells[0])
    assert recorded["seeds"] == [0, 2, 3] and requested_table(recorded, UserSupplied()).runs == table.runs


def test_unknown_suite_has_a_near_match() -> None:
    with pytest.raises(UsageError, match=r"Unknown suite 'cafeme-tabel1'. Did you mean 'cafeme-table1'") as refused:
        load("cafeme-tabel1")
    assert "pflbench ls suites" in str(refused.value)
    assert sum(name in str(refused.value) for name in available()) <= 3, "not every suite"
    with pytest.raises(UsageError, match=r"Unknown suite file 'nowhere.toml'"):
        find("nowhere.toml")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "bom.toml", raw()))
    plain = expand(load(str(path))).runs
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert expand(load(str(path))).runs == plain


def test_a_cohort_that_is_too_large_names_its_column_and_numbers(tmp_path: Path) -> None:
    for change in ({"cohort": 9}, {"training_clients": 11}):
        table = raw()
        table["column"][1] |= change
        with pytest.raises(UsageError, match=r"column\[1\] \(b\): ") as refused:
            load(write(tmp_path / "tiny.toml", table))
        assert str(*change.values()) in str(refused.value)


def test_folder_in_a_wheel_and_in_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "pflbench"
    package.mkdir()
    (tmp_path / "benchmarks").mkdir()  # next to an installed package: somebody else's
    assert benchmarks(package) == package / "benchmarks"
    (tmp_path / "pyproject.toml").touch()
    assert benchmarks(package) == tmp_path / "benchmarks"
    (package / "benchmarks").mkdir()
    assert benchmarks(package) == package / "benchmarks"


def test_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[suite]\nname = \n")
    with pytest.raises(UsageError, match=r"broken\.toml: .*line 2"):
        load(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"broken\.toml: "):
        load(str(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        (".".join("a" * 100_000) + " = 1", "nested too deeply"),
        (f"[suite]\nseeds = [1, {'9' * 5000}]", "integer"),
    ],
)
def test_toml_of_a_hostile_size_is_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(UsageError, match=rf"odd\.toml: .*{says}") as refused:
        load(str(tmp_path / "odd.toml"))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_a_suite_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed.toml").touch()
    monkeypatch.setattr(Path, "read_text", mock.Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(UsageError, match=r"Cannot read .*closed\.toml: Permission denied\."):
        load(str(tmp_path / "closed.toml"))


@settings(max_examples=25, deadline=None)
@given(suites())
def test_round_trip_through_a_file(table: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder_:
        expansion = expand(load(write(Path(folder_) / "s.toml", table)))
    columns, rows, seeds = table["column"], table["row"], table["suite"]["seeds"]
    assert len(expansion.cells) == len(columns) * len(rows)
    assert [c.id for c in expansion.columns] == [c["id"] for c in columns]
    assert [r.title for r in expansion.rows] == [r["title"] for r in rows]
    settings_ = {repr({k: v for k, v in c.items() if k not in ("id", "title", "group")}) for c in columns}
    assert len(expansion.runs) == len(settings_) * len({r["method"] for r in rows}) * len(seeds)
    ditto = expansion.runs[0]
    assert ditto.method.hyper["lam"] == columns[0]["hyper"]["ditto"]["lam"]
    assert ditto.scoring.finetune and ditto.scoring.finetune.lr == columns[0]["finetune"]["ditto"]["lr"]
    assert ditto.partition.options == {"alpha": columns[0]["partition"]["alpha"], "minimum": 10}


def keys(table: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    # Every key of the file, except a profile's name, which is the author's to choose.
    found: list[tuple[str | int, ...]] = []
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        if isinstance(key, str) and path != ("profile",):
            found.append((*path, key))
        if isinstance(value, dict | list):
            found += keys(value, (*path, key))
    return found


@settings(max_examples=120, deadline=None)
@given(st.sampled_from([raw, staged]), st.data())
def test_a_misspelled_key_is_always_named(make: Callable[[], dict[str, Any]], data: st.DataObject) -> None:
    table = make()
    *parents, last = data.draw(st.sampled_from(keys(table)))
    assert isinstance(last, str)
    i = data.draw(st.integers(0, len(last)))
    wrong = last[:i] + data.draw(st.sampled_from("qzx")) + last[i:]
    place: Any = table
    for key in parents:
        place = place[key]
    place[wrong] = place.pop(last)
    with tempfile.TemporaryDirectory() as folder_, pytest.raises(UsageError) as caught:
        load(write(Path(folder_) / "wrong.toml", table))
    assert wrong in str(caught.value) and "wrong.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("column", 0, "dataset", "rotation"), 5, "column[0].dataset.rotation: Unknown option of rotated-digits"),
        (("column", 0, "dataset", "name"), "mnits", "column[0].dataset.name: Unknown dataset 'mnits'. Did you mean"),
        (("column", 0, "dataset", "name"), "x.py:X", "column[0].dataset.name: There is no file"),
        (("column", 0, "partition", "shards"), "many", "column[0].partition.shards: shards.shards must be int"),
        (("column", 0, "model"), "cnn4", "column[0].model: Unknown model 'cnn4'"),
        (("column", 0, "cohort"), 9, "column[0] (a): cohort 9 ≤ training_clients 8"),
        (("column", 0, "training_clients"), 10, "column[0].training_clients: no client is left"),
        (("column", 0, "hyper", "fedavg"), {"epoch": 1}, "column[0].hyper.fedavg.epoch: Unknown hyperparameter"),
        (("column", 0, "hyper", "fedavgg"), {}, "column[0].hyper: Unknown method 'fedavgg'"),
        (("column", 0, "finetune", "ditto"), {"lr": 1}, "column[0].finetune: Unknown method 'ditto'"),
        (("column", 1, "finetune"), {"decay": 0.5}, "column[1].finetune.lr: missing"),
        (("row", 2, "hyper"), {"steps": 1.5}, "row[2].hyper.steps: cafeme.steps must be int, not 1.5"),
        (("row", 2, "hyper"), {"order": "frist"}, "row[2].hyper.order: Unknown value of cafeme.order 'frist'. Did"),
        (("row", 2, "method"), "cafme", "row[2].method: Unknown method 'cafme'. Did you mean 'cafeme'"),
        (("row", 2, "method"), "nowhere.py:Foo", "row[2].method: There is no file"),
        (("evaluation", "report", "steps"), [6], "evaluation.report.steps: step 6 is not there"),
    ],
)
def test_names_and_values_are_checked(
    tmp_path: Path, path: tuple[str | int, ...], value: object, expected: str
) -> None:
    table = raw()
    place: Any = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path / "s.toml", table), UserSupplied(imports=True))
    assert f"s.toml: {expected}" in str(caught.value)


def test_a_method_file_is_found_beside_the_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom pflbench.methods.base import Method\n\n"
        "@dataclass(frozen=True)\nclass Mine(Method):\n    lr: float = 1.0\n"
    )
    table = raw()
    table["row"][2] = {"id": "mine", "title": "Mine", "method": "mine.py:Mine", "stage": "global"}
    for column in table["column"]:
        del column["finetune"]["cafeme"]
    table["hyper"]["mine.py:Mine"] = {"lr": 2}
    expansion = expand(load(write(tmp_path / "s.toml", table), UserSupplied(imports=True)), rows=["mine"])
    (run, *_) = expansion.runs
    assert (run.method.name, run.method.hyper) == ("mine.py:Mine", {"lr": 2.0})
    assert expansion.locations[run.id] == {"methods": f"{tmp_path / 'mine.py'}:Mine"}
    (unread, *_) = expand(load(str(tmp_path / "s.toml")), rows=["mine"]).runs
    assert (unread.method.version, unread.method.hyper) == (UNREAD, {"lr": 2})


def test_suites_and_schemas_leave_torch_alone() -> None:
    code = """
import sys
from pflbench import catalog, names
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load
for suite in map(load, available()):
    if suite.document().row:
        expand(suite, profile=suite.profiles[0])
for name in names.known("methods"):
    catalog.describe(name)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_edited_file_or_one_that_it_extends_is_read_again(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    write(base, raw())
    child = tmp_path / "child.toml"
    child.write_text(
        '[suite]\nname = "child"\ntitle = "Child"\nextends = "base.toml"\n[[column]]\nid = "own"\nlike = "a"\n'
    )
    assert load(str(child)).document().suite.seeds == load(str(base)).document().suite.seeds
    edited = raw()
    edited["suite"]["seeds"] = [7, 8, 9]
    write(base, edited)
    assert load(str(child)).document().suite.seeds == [7, 8, 9]
    child.write_text(child.read_text().replace('"Child"', '"Grown"'))
    assert load(str(child)).document().suite.title == "Grown"
