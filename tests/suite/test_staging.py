"""A suite asks a method for the stages that it has, and for no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.inherit import inherited
from pflbench.suite.user_supplied import UserSupplied

from .samples import raw

HERE = Path("tiny.toml")


def suite(*rows: dict[str, Any], layout: dict[str, str] | None = None, **federation: Any) -> Suite:
    """A suite of these rows whose clients all train, unless `federation` says otherwise."""
    table = raw()
    table["federation"] = {"clients": 10, "query": 0.2} | federation
    table["evaluation"] = {"clients": "all", "average": "examples", "moment": "before-aggregation"}
    for column in table["column"]:
        del column["hyper"], column["finetune"]
    table["row"] = [{"id": f"r{i}", "title": "R"} | row for i, row in enumerate(rows)]
    for key in ("hyper", "reference", "profile"):
        del table[key]
    table["layout"] = {"stages": layout or {}}
    return replace(parse(inherited(table, None, HERE).raw, HERE), supplied=UserSupplied(imports=True))


def refusal(asked: Suite, **arguments: Any) -> str:
    with pytest.raises(UsageError) as caught:
        expand(asked, **arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "stage", "has"),
    [
        ("scaffold", "personalized", "it has global, finetuned."),
        ("local", "global", "it has personalized, finetuned, stored, sampled."),
        ("fedper", "global", "it has personalized, finetuned, stored, sampled."),
        ("ifca", "stored", "it has global, personalized, finetuned."),
        ("ditto", "local", "it has global, personalized, finetuned, stored, sampled."),
    ],
)
def test_a_stage_that_the_method_does_not_have_is_refused(method: str, stage: str, has: str) -> None:
    said = refusal(suite({"method": method, "stage": stage}))
    assert said.startswith(f"tiny.toml: row[0].stage: {method} has no stage {stage!r}; {has} See ")


def test_also_where_the_table_does_not_show_it() -> None:
    row = {"method": "fedprox", "stage": "global", "stages": ["global", "personalized"]}
    assert "row[0].stage: fedprox has no stage 'personalized'" in refusal(suite(row))


@pytest.mark.parametrize("stage", ["personalized", "stored"])
def test_who_wrote_the_method_is_pointed_to_the_docs(tmp_path: Path, stage: str) -> None:
    (method,) = guest(tmp_path)
    asked = refusal(suite({"method": "ditto", "stage": stage}), methods=[method])
    for said in (asked, refusal(suite({"method": method, "stage": stage}))):
        assert f"mine.py:Mine has no stage {stage!r}; it has global, finetuned." in said and "docs/methods.md" in said
    section = (Path(__file__).parents[2] / "docs/methods.md").read_text().split("**Which stages exist.**")[1]
    assert "personal_model" in section


def test_a_stage_that_needs_a_hyperparameter_is_refused_without_it() -> None:
    row = {"method": "fedavg", "stage": "personalized"}
    message = refusal(suite(row))
    assert "has no stage 'personalized'; it has global" in message and "a value for personal_epochs" in message
    assert expand(suite(row | {"hyper": {"personal_epochs": 1}})).runs[0].scoring.stages == ("personalized",)
    assert expand(suite(row), overrides=["fedavg.personal_epochs=2"]).cells[0].stage == "personalized"


def test_clients_that_never_train_have_no_models_of_their_own_training() -> None:
    row = {"method": "ditto", "stage": "personalized"}
    assert expand(suite(row)).cells[0].stage == "personalized"
    assert "for clients that never train; it has global" in refusal(suite(row, training_clients=8))
    assert expand(suite({"method": "ifca", "stage": "personalized"}, training_clients=8)).cells


def test_what_other_rows_name_is_scored_only_where_it_exists() -> None:
    rows = [("fedprox", "global"), ("local", "personalized"), ("ditto", "personalized")]
    found = expand(suite(*({"method": m, "stage": s} for m, s in rows)), columns=["a"])
    assert [cell.runs[0].scoring.stages for cell in found.cells] == [
        ("global",),
        ("personalized",),
        ("global", "personalized"),
    ]


def test_what_is_recorded_is_shown_from_the_same_runs() -> None:
    plain = {"method": "pfedme", "stages": ["personalized", "global"]}
    layout = {"personalized": "theta", "global": "GM", "local": "w"}
    both = expand(suite(plain | {"stages": ["local", "global", "personalized"]}, layout=layout))
    assert both.runs == expand(suite(plain, layout={"personalized": "PM", "global": "GM"})).runs
    assert [cell.stage for cell in both.cells[:3]] == ["personalized", "global", "local"]
    assert both.runs[0].scoring.stages == ("global", "personalized")
    alone = expand(suite({"method": "pfedme", "stage": "local"}))
    assert (alone.cells[0].stage, alone.runs[0].scoring.stages) == ("local", ("personalized",))


OWN = "from pflbench.methods.base import Method\n\nclass Mine(Method):\n    lr: float = 0.1\n"


def guest(folder: Path, body: str = "") -> list[str]:
    path = folder / "mine.py"
    path.write_text("from dataclasses import dataclass\n" + OWN.replace("class", "@dataclass\nclass") + body)
    return [f"{path}:Mine"]


def test_a_guest_is_asked_for_what_it_has(tmp_path: Path) -> None:
    row = {"method": "apfl", "stages": ["personalized", "global", "stored"]}
    layout = {"personalized": "PM", "global": "GM", "stored": "S"}
    (only,) = expand(suite(row, layout=layout), columns=["a"], seeds=[0], methods=guest(tmp_path)).cells
    assert (only.stage, only.runs[0].scoring.stages, only.row.stages) == ("global", ("global",), ("global",))
    own = guest(tmp_path, "    def personal_model(self, f, server, state, *batches, round): ...\n")
    more = expand(suite(row, layout=layout), columns=["a"], methods=own)
    assert [cell.stage for cell in more.cells] == ["personalized", "global"]
    assert more.runs[0].scoring.stages == ("global", "personalized")


def test_a_guest_is_refused_where_nothing_is_left(tmp_path: Path) -> None:
    asked = suite({"method": "ditto", "stage": "personalized"})
    said = refusal(asked, methods=guest(tmp_path))
    assert said.startswith("mine.py:Mine has no stage 'personalized'; it has global, finetuned.")
