from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pflbench.errors import UsageError
from pflbench.suite.document import parse

from .samples import raw, suites

HERE = Path("tiny.toml")


def refusal(table: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        parse(table, HERE)
    return str(caught.value)


@given(suites())
def test_every_value_of_a_valid_suite_survives(table: dict[str, Any]) -> None:
    document = parse(table, HERE).document()
    for i, column in enumerate(table["column"]):
        dumped = document.column[i].model_dump(exclude_unset=True)
        dumped["hyper"] = {m: {k: v["value"] for k, v in h.items()} for m, h in dumped["hyper"].items()}
        assert dumped == column
    assert [r.model_dump(exclude_unset=True) for r in document.row] == table["row"]
    for key in ("suite", "federation", "evaluation"):
        assert getattr(document, key).model_dump(exclude_unset=True) == table[key]
    assert document.reference == table["reference"]
    lr = table["hyper"]["ditto"]["lr"]
    assert document.hyper["ditto"]["lr"].model_dump(exclude_unset=True) == lr


def test_unknown_key_names_file_path_and_near_match() -> None:
    table = raw()
    table["column"][1]["bacth"] = table["column"][1].pop("batch")
    assert refusal(table) == "tiny.toml: column[1].bacth: unknown key, did you mean 'batch'?"


def test_unknown_key_in_a_profile() -> None:
    table = raw()
    table["profile"]["smoke"]["column"]["b"] = {"bacth": 3}
    assert refusal(table) == "tiny.toml: profile.smoke: column[1].bacth: unknown key, did you mean 'batch'?"
    table["profile"]["smoke"] = {"column": {"bb": {"batch": 3}}}
    assert "profile.smoke: Unknown column 'bb'. Did you mean 'b'?" in refusal(table)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("suite", "protocol"), "", "suite.protocol: "),
        (("suite", "seeds"), [], "suite.seeds: "),
        (("suite", "seeds"), [1, 1], "suite.seeds: a seed is there twice"),
        (("suite", "seeds"), [True], "suite.seeds[0]: "),
        (("federation", "clients"), 10.0, "federation.clients: "),
        (
            ("federation", "query"),
            1.0,
            'federation.query: a share between 0 and 1, "test-split" or "partition", not 1.0',
        ),
        (("federation", "query"), "test-splt", 'federation.query: a share between 0 and 1, "test-split" or "part'),
        (("federation", "query"), True, "federation.query: a share between 0 and 1"),
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
        (("column", 0, "batchsize"), 5, "column[0].batchsize: unknown key, did you mean 'batch'?"),
        (("column", 0, "finetune", "stpes"), 5, "column[0].finetune.stpes: unknown key, did you mean 'steps'?"),
        (("column", 0, "finetune", "cafeme", "rl"), 5, "column[0].finetune.cafeme.rl: unknown key, did you mean 'lr'?"),
        (("column", 1, "id"), "a", "column[1].id: there is already a column 'a'"),
        (("column", 1, "id"), "Not Kebab", "column[1].id: "),
        (("row", 1, "id"), "fedavg", "row[1].id: there is already a row 'fedavg'"),
        (("row", 0, "stage"), "tuned", "row[0].stage: "),
        (("hyper", "fedavg", "lr"), [1], "hyper.fedavg.lr.value: a hyperparameter is"),
        (("hyper", "fedavg", "lr", "source"), "me", "hyper.fedavg.lr.source: "),
        (("reference", "fedavg", "a"), [], "reference.fedavg.a: [mean, spread] or [mean], as printed, not []"),
        (
            ("reference", "fedavg", "a"),
            ["1e3"],
            "reference.fedavg.a: [mean, spread] or [mean], as printed, not ['1e3']",
        ),
        (("reference", "fedavg", "a"), [1.0, 2.0, 3.0], "reference.fedavg.a: [mean, spread] or [mean]"),
        (("reference", "fedavg", "a"), [1.0, -2.0], "reference.fedavg.a: [mean, spread] or [mean]"),
        (("reference", "fedavg", "a"), [True], "reference.fedavg.a: [mean, spread] or [mean]"),
        (("reference", "fedavg", "a"), 1.0, "reference.fedavg.a: [mean, spread] or [mean]"),
        (("reference", "fedavg", "aa"), [1.0, 1.0], "reference.fedavg.aa: unknown key, did you mean 'a'?"),
        (("reference", "fedavgg"), {}, "reference.fedavgg: unknown key, did you mean 'fedavg'?"),
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
        (("suite", "seeds"), ["x"], "seeds = 1"),
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
        (("row", 0), 3, "row = { … }"),
        (("row", 0, "every"), "lst", "last"),
        (("row", 0, "stages"), ["globl"], 'stages = "global"'),
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


def test_missing_keys_are_all_listed() -> None:
    table = raw()
    del table["column"][0]["batch"], table["suite"]["title"]
    assert refusal(table).splitlines() == ["tiny.toml: suite.title: missing", "tiny.toml: column[0].batch: missing"]


def test_finetuning_and_the_stage_finetuned_need_each_other() -> None:
    table = raw()
    del table["evaluation"]["finetune"]
    assert "evaluation.finetune: missing, but a row has the stage 'finetuned'" in refusal(table)
    table["row"] = table["row"][:1]
    assert "evaluation.report: there is no fine-tuning" in refusal(table)
    del table["evaluation"]["report"]
    assert "column[0].report: there is no fine-tuning" in refusal(
        table | {"column": [table["column"][0] | {"report": {"steps": [1]}}]}
    )
    assert "column[0].finetune: there is no evaluation.finetune to override" in refusal(table)
    for column in table["column"]:
        del column["finetune"]
    assert parse(table, HERE).document().stages == ("global",)
    table["evaluation"]["finetune"] = {"steps": 3}
    assert "evaluation.finetune: no row has the stage 'finetuned'" in refusal(table)


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
    assert (smoke.hyper["fedavg"]["lr"].value, smoke.hyper["fedavg"]["lr"].source) == (0.5, None)
    assert smoke.hyper["fedavg"]["epochs"].value == 7
    assert [c.rounds for c in smoke.column] == [1, 2]
    assert paper == parse(raw(), HERE).document().model_copy(update={"profile": paper.profile})


def test_unknown_profile() -> None:
    with pytest.raises(UsageError, match=r"Unknown profile 'smok'. Did you mean 'smoke'"):
        parse(raw(), HERE).document("smok")


def test_held_out_clients_leave_no_models_behind() -> None:
    table = raw()
    table["row"][0] |= {"stage": "stored"}
    said = "held-out clients, who are scored, never train, so nothing is 'stored'"
    assert f"row[0].stage: {said}" in refusal(table)
    table["row"][1] |= {"stage": "finetuned"}
    table["row"][0] |= {"stages": ["stored", "finetuned"]}
    assert f"row[0].stages: {said}" in refusal(table)
