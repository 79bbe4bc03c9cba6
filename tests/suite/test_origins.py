"""Sources of values, and what a suite says of some of its rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import load

from .samples import raw, staged, write


def table(path: Path, content: dict[str, Any], **asked: Any) -> Expansion:
    return expand(load(write(path / "s.toml", content)), **asked)


def sources(expansion: Expansion, row: str, column: str) -> dict[str, str]:
    (cell,) = (cell for cell in expansion.cells if (cell.row.id, cell.column.id) == (row, column))
    return dict(cell.sources)


def test_sources_move_no_run(tmp_path: Path) -> None:
    plain = raw()
    said = raw()
    said["sources"] = {"cafeme": {"inner_lr": "code"}, "batch": "paper", "dataset": "code", "dataset.degrees": "guess"}
    said["column"][0] |= {"batch": {"value": 10, "source": "code"}, "sources": {"fedavg.lr": "guess"}}
    said["column"][1]["rounds"] = {"value": 3, "source": "inferred"}
    said["column"][1]["partition"]["shards"] = {"value": 20, "source": "tuned"}
    said["federation"]["query"] = {"value": 0.2, "source": "paper"}
    said["evaluation"]["finetune"]["steps"] = {"value": 5, "source": "paper"}
    said["column"][0]["finetune"] = {"lr": {"value": 0.1, "source": "code"}, "cafeme": {"lr": 0.2}}
    ours = table(tmp_path, said)
    assert [run.id for run in ours.runs] == [run.id for run in table(tmp_path, plain).runs]
    everywhere = {"dataset": "code", "dataset.degrees": "guess", "query": "paper"}
    # The value in the suite's hyper has its own source, which a source of what stands in defaults does not touch.
    assert sources(ours, "fedavg", "a") == everywhere | {"batch": "code", "lr": "code"}
    b = everywhere | {"batch": "paper", "rounds": "inferred", "partition.shards": "tuned", "finetune.steps": "paper"}
    assert sources(ours, "cafeme", "b") == b | {"inner_lr": "code"}
    # A rate of one method without a source has not the others'.
    assert sources(ours, "fedavg-ft", "a")["finetune.lr"] == "code"
    assert "finetune.lr" not in sources(ours, "cafeme", "a")


def test_a_source_is_that_of_the_papers_value(tmp_path: Path) -> None:
    said = raw() | {"sources": {"batch": "paper", "cohort": "paper", "cafeme": {"inner_lr": "code"}}}
    said["column"][0]["model"] = {"value": "cnn2", "source": "paper"}
    said["profile"]["smoke"] |= {"federation": {"cohort": 1}, "hyper": {"cafeme": {"inner_lr": 0.3}}}
    said["profile"]["smoke"]["column"]["a"] = {
        "batch": 5,
        "model": "cnn3",
        "dataset": {"name": "digits", "channels": 3},
    }
    smoke = table(tmp_path, said, profile="smoke")
    changed = dict.fromkeys(("cohort", "rounds"), "profile")
    assert sources(smoke, "cafeme", "a") == changed | dict.fromkeys(("batch", "model", "dataset"), "profile")
    assert sources(smoke, "cafeme", "b") == changed | {"batch": "paper"}
    set_ = table(tmp_path, said, overrides=["cafeme.inner_lr=0.3"], rounds=1)
    assert sources(set_, "cafeme", "b") == {"batch": "paper", "cohort": "paper"}


def test_rounds_and_batch_of_a_row(tmp_path: Path) -> None:
    said = staged() | {"sources": {"rounds": "paper", "batch": "guess"}}
    said["row"][0]["rounds"] = {"value": 2, "source": "inferred"}
    ours = table(tmp_path, said)
    assert sources(ours, "local", "a") == {"rounds": "inferred", "batch": "paper"}  # its grid's
    assert sources(ours, "fedavg", "a") == {"rounds": "paper", "batch": "guess", "lr": "code"}
    assert "rounds" not in sources(table(tmp_path, said, rounds=1), "local", "a")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("sources",), {"bach": "paper"}, "sources: Unknown setting 'bach'. Did you mean 'batch'"),
        (("sources",), {"cafeme": {"iner_lr": "code"}}, "sources: Unknown setting 'cafeme.iner_lr'. Did you mean"),
        (("sources",), {"cafme": {"inner_lr": "code"}}, "Did you mean 'cafeme.inner_lr'"),
        (("sources",), {"dataset": {"degres": "code"}}, "Did you mean 'dataset.degrees'"),
        (("sources",), {"batch": "papr"}, "sources.batch: "),
        (("column", 0, "sources"), {"cohrt": "code"}, "column[0].sources: Unknown setting 'cohrt'. Did you"),
        (("column", 0, "batch"), {"value": 10, "sorce": "code"}, "column[0].batch: {'sorce': 'code', 'value': 10}"),
        (("column", 0, "batch"), {"value": 10, "source": "me"}, "column[0].batch.source: one of paper, code, inferred"),
        (("column", 0, "batch"), {"value": 0, "source": "code"}, "column[0].batch: "),
        (("suspect",), [{"why": "x", "rows": ["fedavgg"]}], "suspect[0].rows: Unknown row 'fedavgg'. Did you"),
        (("follows",), [{"text": "x", "methods": ["fedav"]}], "follows[0].methods: Unknown method 'fedav'. D"),
        (
            ("suite", "notes"),
            ["a", {"text": "x", "columns": ["aa"]}],
            "suite.notes[1].columns: Unknown column 'aa'.",
        ),
        (("departure",), [{"what": "x", "paper": "1"}], "departure[0].here: missing"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, path: tuple[str | int, ...], value: object, expected: str) -> None:
    content = raw()
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(UsageError) as caught:
        load(write(tmp_path / "s.toml", content))
    assert expected in str(caught.value)


def said() -> dict[str, Any]:
    """A suite that says things of its rows and columns, with references everywhere."""
    content = raw()
    content["suite"]["notes"] = [
        "plain",
        {"text": "of cafeme", "rows": ["cafeme"]},
        {"text": "of fedavg's", "methods": ["fedavg"]},
        {"text": "of b", "columns": ["b"]},
        {"text": "of cafeme in a", "rows": ["cafeme"], "columns": ["a"]},
    ]
    content["reference"] = {row: {"a": [50.0], "b": [50.0]} for row in ("fedavg", "fedavg-ft", "cafeme")}
    content["suspect"] = [
        {"why": "row", "rows": ["cafeme"]},
        {"why": "column", "columns": ["a"]},
        {"why": "chained", "rows": ["fedavg-ft"], "columns": ["a"]},
    ]
    content["follows"] = [{"text": "their code", "rows": ["cafeme"], "columns": ["a"]}]
    content["departure"] = [
        {"what": "batch", "paper": "30", "here": "10", "source": "code", "columns": ["a"]},
        {"what": "order", "paper": "not said", "here": "first", "source": "guess", "rows": ["cafeme"]}
        | {"code": "second", "grave": True},
    ]
    return content


def test_notes_stand_where_their_rows_and_columns_do(tmp_path: Path) -> None:
    everything = "plain", "of cafeme", "of fedavg's", "of b", "of cafeme in a"
    assert table(tmp_path, said()).notes == everything
    assert table(tmp_path, said(), methods=["cafeme"], columns=["b"]).notes == ("plain", "of cafeme", "of b")
    assert table(tmp_path, said(), methods=["fedavg"], columns=["a"]).notes == ("plain", "of fedavg's")


def test_suspicions_reach_their_cells_alone(tmp_path: Path) -> None:
    found = {
        (cell.row.id, cell.column.id): cell.reference and cell.reference.suspect
        for cell in table(tmp_path, said()).cells
    }
    assert found == {
        ("fedavg", "a"): "column",
        ("fedavg", "b"): None,
        ("fedavg-ft", "a"): "column; chained",
        ("fedavg-ft", "b"): None,
        ("cafeme", "a"): "row; column",
        ("cafeme", "b"): "row",
    }


def test_a_setting_that_was_inferred_from_a_number_keeps_it_from_comparing(tmp_path: Path) -> None:
    content = said()
    content["inferred"] = [{"rows": ["cafeme"], "columns": ["a"], "what": "its optimizer"}]
    cells = {(c.row.id, c.column.id): c.reference for c in table(tmp_path, content).cells if c.reference}
    assert {place: one.inferred for place, one in cells.items() if one.inferred} == {("cafeme", "a"): "its optimizer"}


def test_a_difference_is_suspect_where_one_of_its_two_is(tmp_path: Path) -> None:
    content = staged() | {"suspect": [{"why": "chained", "rows": ["ditto"], "columns": ["b"]}]}
    content["reference"] = {
        "gain": {id_: {"personalized": [2.0]} for id_ in ("a", "b")},
        "ditto": {"gap": {"global": [1.0]}},
    }
    gain, gap = table(tmp_path, content).derived
    assert {column: printed.suspect for (column, _), printed in gain.references.items()} == {"a": None, "b": "chained"}
    assert [printed.suspect for printed in gap.references.values()] == ["chained"]


def test_what_is_followed_by_cell_and_in_a_line(tmp_path: Path) -> None:
    whole = table(tmp_path, said())
    assert {cell.follows for cell in whole.cells} == {"code", "their code"}
    assert whole.protocol == "cafeme, a: their code; all else: code"
    assert table(tmp_path, said(), methods=["cafeme"], columns=["a"]).protocol == "their code"
    assert table(tmp_path, said(), columns=["b"]).protocol == "code"


def test_departures_name_the_rows_and_columns_shown(tmp_path: Path) -> None:
    batch, order = table(tmp_path, said()).departures
    assert (order.what, order.here, order.source, order.grave) == ("order", "first", "guess", True)
    assert (order.kind, batch.kind, order.model_copy(update={"code": ""}).kind) == ("code", "text", "silence")
    assert order.sentences == "Paper: not said. Code: second. Here: first."
    part = table(tmp_path, said(), methods=["fedavg", "fedavg-ft"])
    assert [d.what for d in part.departures] == ["batch"]
    assert [len(part.departures_of(cell)) for cell in part.cells] == [1, 1, 0, 0]


def test_an_extending_suite_keeps_what_is_said_of_what_it_takes_over(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", said() | {"sources": {"batch": "paper", "cafeme": {"inner_lr": "code"}}})
    child: dict[str, Any] = {
        "suite": {"extends": "base.toml", "name": "child", "title": "Child", "notes": ["own"]},
        "column": [{"id": "c", "like": "a", "title": "C"}],
        "row": [{"id": "ours", "like": "cafeme", "title": "Ours"}],
        "reference": {"ours": {"c": [1.0]}},
    }
    found = table(tmp_path, child)
    # Plain notes belong to a table, the others to rows and columns, whatever these are called now.
    assert found.notes == ("own", "of cafeme", "of cafeme in a")
    (cell,) = found.cells
    assert [one.what for one in found.departures_of(cell)] == ["batch", "order"]
    assert cell.reference and cell.reference.suspect == "row; column"
    assert (cell.follows, found.protocol) == ("their code", "their code")
    assert cell.sources == {"batch": "paper", "inner_lr": "code"}
    # What it says of a matter itself stands in place of what is taken over.
    own = {"what": "batch", "paper": "30", "here": "20", "source": "guess"}
    assert [(d.what, d.here) for d in table(tmp_path, child | {"departure": [own]}).departures] == [
        ("batch", "20"),
        ("order", "first"),
    ]
    # Another method under a row's keys is another thing; another paper has other numbers and another text.
    child["row"][0] |= {"method": "ditto", "hyper": {"steps": 2}}
    other = table(tmp_path, child)
    assert other.notes == ("own",) and [d.what for d in other.departures] == ["batch"]
    child["suite"]["paper"] = "another"
    assert table(tmp_path, child).departures == ()
    del child["suite"]["notes"]
    assert table(tmp_path, child).notes == ("plain",)


def test_what_a_suite_says_replaces_the_inherited_in_its_cells_alone(tmp_path: Path) -> None:
    base = raw()
    base["suite"]["notes"] = [{"what": "rate", "text": "old rate"}, {"text": "kept", "columns": ["a"]}]
    base["departure"] = [{"what": "batch", "paper": "30", "here": "10", "source": "code"}]
    write(tmp_path / "base.toml", base)
    child: dict[str, Any] = {
        "suite": {"extends": "base.toml", "name": "child", "title": "Child"},
        "column": [{"id": "a", "like": "a"}, {"id": "b", "like": "b"}],
        "departure": [base["departure"][0] | {"here": "20", "columns": ["a"], "rows": ["fedavg"]}],
    }
    child["suite"]["notes"] = [{"what": "rate", "text": "new rate", "columns": ["a"]}]
    write(tmp_path / "child.toml", child)
    last = {
        "suite": {"extends": "child.toml", "name": "last", "title": "Last"},
        "column": [{"id": "c", "like": "a"}, {"id": "b", "like": "b"}],
        "row": [{"id": "mine", "like": "fedavg"}, {"id": "cafeme", "like": "cafeme"}],
    }
    found = table(tmp_path, last)
    here = {(cell.row.id, cell.column.id): [one.here for one in found.departures_of(cell)] for cell in found.cells}
    assert here == {("mine", "c"): ["20"], ("mine", "b"): ["10"], ("cafeme", "c"): ["10"], ("cafeme", "b"): ["10"]}
    assert [one.here for one in found.departures] == ["20", "10"]
    assert found.notes == ("new rate", "old rate", "kept")
    assert table(tmp_path, last, columns=["c"]).notes == ("new rate", "kept")
    assert table(tmp_path, last, columns=["b"]).notes == ("old rate",)


def test_all_rows_taken_over_keep_what_is_said_of_them(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", said())
    child = {
        "suite": {"extends": "base.toml", "name": "child", "title": "Child", "notes": []},
        "column": [{"id": "b", "like": "b"}],
    }
    found = table(tmp_path, child)
    assert found.notes == ("of cafeme", "of fedavg's", "of b")
    assert [d.what for d in found.departures] == ["order"]
