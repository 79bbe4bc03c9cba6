from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pflbench.errors import UsageError
from pflbench.suite.document import parse
from pflbench.suite.expand import expand
from pflbench.suite.load import load

from .samples import raw, suites

HERE = Path("tiny.toml")


def refusal(table: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        suite = parse(table, HERE)
        for profile in suite.profiles:
            suite.document(profile)
    return str(caught.value)


@given(suites())
def test_every_value_of_a_valid_suite_survives(table: dict[str, Any]) -> None:
    document = parse(table, HERE).document()
    for i, column in enumerate(table["column"]):
        dumped = document.column[i].model_dump(exclude_unset=True)
        shared = table["federation"] | {"seeds": table["suite"]["seeds"]}
        assert dumped == shared | column
    assert [r.model_dump(exclude_unset=True) for r in document.row] == table["row"]
    for key in ("suite", "federation", "evaluation"):
        assert getattr(document, key).model_dump(exclude_unset=True) == table[key]
    assert document.reference == table["reference"]
    lr = table["hyper"]["ditto"]["lr"]
    assert (document.hyper["ditto"]["lr"], document.origins["hyper.ditto.lr"]) == (lr["value"], lr["source"])


def test_unknown_key_names_file_path_and_near_match() -> None:
    table = raw()
    table["column"][1]["bacth"] = table["column"][1].pop("batch")
    assert refusal(table).startswith("tiny.toml: column[1].bacth: Unknown key 'bacth'. Did you mean 'batch'")


def test_unknown_key_in_a_profile() -> None:
    table = raw()
    table["profile"]["smoke"]["column"]["b"] = {"bacth": 3}
    assert refusal(table).startswith("tiny.toml: profile.smoke: column[1].bacth: Unknown key 'bacth'.")
    table["profile"]["smoke"] = {"column": {"bb": {"batch": 3}}}
    assert "profile.smoke: Unknown column 'bb'. Did you mean 'b'?" in refusal(table)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("suite", "protocol"), "", "suite.protocol: "),
        (("suite", "seeds"), [], "suite.seeds: "),
        (("suite", "seeds"), [True], "suite.seeds[0]: "),
        (("federation", "clients"), 10.0, "federation.clients: "),
        (("federation", "query"), 1.0, "federation.query: 1.0 does not fit. It should be less than 1."),
        (("federation", "query"), "test-splt", "federation.query: 'test-splt' does not fit. "),
        (("federation", "query"), True, "federation.query: "),
        (("federation", "augment"), "crop", "federation.augment: "),
        (("column", 0, "augment"), True, "column[0].augment: "),
        (("evaluation", "last"), 0, "evaluation.last: "),
        (("evaluation", "mean"), "plain", "evaluation.mean: "),
        (("evaluation", "features"), 1, "evaluation.features: "),
        (("federation", "arrival"), 0.0, "federation.arrival: "),
        (
            ("federation", "batches"),
            "shuffled",
            "federation.batches: ",
        ),
        (("evaluation", "global_on"), "test", "evaluation.global_on: "),
        (("evaluation", "moment"), "before", "evaluation.moment: "),
        (("evaluation", "finetune", "optimizer"), "adam", "evaluation.finetune.optimizer: "),
        (("column", 0, "finetune", "lr"), float("inf"), "column[0].finetune.lr: "),
        (("column", 0, "batchsize"), 5, "column[0].batchsize: Unknown key"),
        (("column", 0, "finetune", "stpes"), 5, "column[0].finetune.stpes: "),
        (("column", 0, "finetune", "cafeme", "rl"), 5, "column[0].finetune.cafeme.rl: Unknown key"),
        (("column", 1, "id"), "a", "column: there is already a column 'a'"),
        (("column", 1, "id"), "Not Kebab", "column[1].id: "),
        (("row", 1, "id"), "fedavg", "row: there is already a row 'fedavg'"),
        (("row", 0, "stage"), "tuned", "row[0].stage: "),
        (("hyper", "fedavg", "lr"), [1], "hyper.fedavg.lr: a hyperparameter is"),
        (("hyper", "fedavg", "lr", "source"), "me", "hyper.fedavg.lr.source: "),
        (("reference", "fedavg", "a"), [], "reference.fedavg.a: [] does not fit."),
        (("reference", "fedavg", "a"), ["1e3"], "reference.fedavg.a[0]: '1e3' does not fit."),
        (("reference", "fedavg", "a"), [1.0, 2.0, 3.0], "reference.fedavg.a: [1.0, 2.0, 3.0] does not fit."),
        (("reference", "fedavg", "a"), [True], "reference.fedavg.a[0]: True does not fit."),
        (("reference", "fedavg", "a"), 1.0, "reference.fedavg.a: 1.0 does not fit."),
        (("reference", "fedavg", "aa"), [1.0, 1.0], "reference.fedavg: Unknown column 'aa'. Did you mean 'a'?"),
        (("reference", "fedavgg"), {}, "reference: Unknown row 'fedavgg'. Did you mean 'fedavg'"),
        (("profile", "paper"), {}, "profile.paper: "),
    ],
)
def test_refusals(path: tuple[str | int, ...], value: object, expected: str) -> None:
    table = raw()
    place: Any = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert f"tiny.toml: {expected}" in refusal(table)


@pytest.mark.parametrize(
    ("path", "value", "example"),
    [
        (("suite", "seeds"), 3, "seeds = […]"),
        (("suite", "seeds"), [], "at least 1 item"),
        (("suite", "seeds"), ["x"], "seeds = [1]"),
        (("suite", "seeds"), [-1], "greater than or equal to 0"),
        (("suite", "title"), 3, 'title = "text"'),
        (("suite", "name"), "My Suite", 'name = "my-id"'),
        (("suite", "spread"), 3, "spread = { … }"),
        (("suite", "spread", "kind"), "stdd", 'kind = "std"'),
        (("suite", "spread", "ddof"), 2, "0 or 1"),
        (("federation", "clients"), 10.0, "clients = 1"),
        (("federation", "arrival"), 2.0, "less than or equal to 1"),
        (("federation", "arrival"), "x", "arrival = 0.1"),
        (("evaluation", "features"), 1, "features = true"),
        (("layout", "decimals"), 7, "less than or equal to 6"),
        (("row",), 3, "row = […]"),
        (("row", 0), 3, "row = [{ … }]"),
        (("row", 0, "every"), "lst", "last"),
        (("row", 0, "stages"), ["globl"], 'stages = ["global"]'),
        (("column", 0, "hyper"), 3, "hyper = { … }"),
        (("derived",), [{"id": "d", "title": "D", "rows": ["a"]}], "at least 2 items"),
    ],
)
def test_a_wrong_value_is_answered_with_a_right_one(path: tuple[str | int, ...], value: object, example: str) -> None:
    table = raw()
    place: Any = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert example in refusal(table)


def test_unknown_keys_go_by_the_files_own_places(tmp_path: Path) -> None:
    """Lists of rows and columns put inherited ones before them."""
    file = tmp_path / "mine.toml"
    head = '[suite]\nextends = "cafeme-table1"\nrows = ["fedavg", "mine"]\ncolumns = ["rmnist-shards", "half"]\n'
    tail = '[[row]]\nid = "mine"\nlike = "fedavg"\n[[column]]\nid = "half"\nlike = "rmnist-shards"\n'
    for wrong, says in (
        (head + '[[row]]\nmethod = "a\\u0000b.py:X"\n', "is no path"),
        (head.replace("extends", "extend") + tail, "suite.extend: Unknown key 'extend'. Did you mean 'extends'"),
        (head + tail.replace("[[column", "titel = 'x'\n[[column"), "row[0].titel: Unknown key"),
        (head + tail + "bach = 3\n", "column[0].bach: Unknown key"),
        (head + tail + "batch = 99999999999999999999\n", "batch: "),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=re.escape(says)):
            load(str(file))


def test_a_subset_needs_the_numbers_of_examples(tmp_path: Path) -> None:
    """Which runs with personalized models alone store."""
    file = tmp_path / "mine.toml"
    text = """
suite.seeds = [0]
federation = { clients = 10, query = 0.2 }
column = [{ id = "digits", dataset = { name = "digits" }, partition = { name = "dirichlet", alpha = 1.0 }, model = "mlp", rounds = 1, batch = 10, subset = { smallest = 3 } }]
row = [{ method = "METHOD" }]
"""
    file.write_text(text.replace("METHOD", "fedper"))
    assert expand(load(str(file))).columns[0].smallest == 3
    file.write_text(text.replace("METHOD", "fedavg"))
    with pytest.raises(UsageError, match="subset"):
        load(str(file))


def test_missing_keys_are_all_listed() -> None:
    table = raw()
    del table["column"][0]["batch"], table["suite"]["title"]
    title, batch = refusal(table).splitlines()
    assert title.startswith("tiny.toml: suite.title: missing") and batch.startswith(
        "tiny.toml: column[0].batch: missing"
    )


def test_the_stage_finetuned_needs_finetuning() -> None:
    table = raw()
    del table["evaluation"]["finetune"]
    assert "evaluation.finetune: missing, but a row has the stage 'finetuned'" in refusal(table)
    table["row"] = table["row"][:1]
    assert parse(table, HERE).document().stages == ("global",)


def test_a_profile_merges_tables_and_replaces_the_rest() -> None:
    table = raw()
    table["profile"]["smoke"] |= {
        "notes": ["only here"],
        "federation": {"cohort": 1},
        "evaluation": {"finetune": {"every": 2}, "report": {"steps": [3, 4]}},
        "hyper": {"fedavg": {"lr": {"value": 0.5}, "epochs": 7}},
    }
    table["profile"]["smoke"]["column"]["a"] = {"dataset": {"name": "digits"}, "partition": {"shards": 40}}
    paper, smoke = (parse(table, HERE).document(p) for p in ("paper", "smoke"))
    assert (smoke.suite.seeds, [note.text for note in smoke.suite.notes], smoke.suite.title) == (
        [0],
        ["only here"],
        "Tiny",
    )
    assert (smoke.federation.cohort, smoke.federation.clients) == (1, 10)
    assert smoke.evaluation.finetune and (smoke.evaluation.finetune.steps, smoke.evaluation.finetune.every) == (5, 2)
    assert smoke.evaluation.report and smoke.evaluation.report.steps == [3, 4]
    # A table with a name or a value is replaced: no option or source of the old one stays behind.
    assert smoke.column[0].dataset.model_dump() == {"name": "digits"}
    assert smoke.column[0].partition.model_dump() == {"name": "shards", "shards": 40}
    assert smoke.hyper["fedavg"] == {"lr": 0.5, "epochs": 7} and "hyper.fedavg.lr" not in smoke.origins
    assert [c.rounds for c in smoke.column] == [1, 2]
    assert paper == parse(raw(), HERE).document().model_copy(update={"profile": paper.profile})


def test_unknown_profile() -> None:
    with pytest.raises(UsageError, match=r"Unknown profile 'smok'. Did you mean 'smoke'"):
        parse(raw(), HERE).document("smok")


def test_held_out_clients_leave_no_models_behind() -> None:
    table = raw()
    table["row"][0] |= {"stage": "stored"}
    assert "row[0].stages: held-out clients never train, so nothing is 'stored'" in refusal(table)
