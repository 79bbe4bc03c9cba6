"""Stages of a method, by what its class overrides and declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from pflbench import names, trust
from pflbench.catalog import describe
from pflbench.stages import SHOWN, Stages, canonical, of_class


def there(stages: Stages, held_out: bool = False, moment: str = "after-aggregation", **hyper: object) -> set[str]:
    return set(stages.present(hyper, moment=moment, held_out=held_out))


def of(name: str) -> Stages:
    return describe(name).stages


def of_file(path: Path, name: str = "Mine") -> Stages:
    trust.grant(f"{path}:{name}")
    return of_class(names.load(f"{path}:{name}"))


def test_what_nobody_trained_is_no_stage() -> None:
    for shares_a_part in ("fedper", "fedrep", "lg-fedavg", "local"):
        assert there(of(shares_a_part)) == {"personalized", "finetuned", "stored", "sampled"}
    for without in ("scaffold", "cafeme"):
        assert there(of(without)) == {"global", "finetuned"}


def test_a_hyperparameter_may_make_the_personal_models() -> None:
    for name in ("fedavg", "per-fedavg"):
        assert "personalized" not in there(of(name), personal_epochs=None)
        assert "personalized" not in there(of(name), moment="before-aggregation")
        assert "personalized" in there(of(name), personal_epochs=1)


def test_pfedmes_two_models_are_left_by_training_or_by_adapting() -> None:
    assert not {"personalized", "local"} & there(of("pfedme"))
    assert "personalized" in there(of("pfedme"), adapt=True, held_out=True)
    for stages in (there(of("pfedme"), adapt=True), there(of("pfedme"), moment="before-aggregation")):
        assert {"personalized", "local"} <= stages


def test_clients_that_never_train_have_no_models_of_their_own_training() -> None:
    for name in ("ditto", "apfl", "l2gd", "fedper", "local", "pfedvem", "pfedbayes"):
        assert "personalized" in there(of(name)) and "personalized" not in there(of(name), held_out=True)
    for name in ("ifca", "reptile", "fo-maml", "fedec", "per-fedavg-split"):
        assert "personalized" in there(of(name), held_out=True, personal_epochs=1)


OWN = """
from dataclasses import dataclass
{imports}

@dataclass(frozen=True)
class Mine({base}):
    lr: float = 0.1
{body}
"""
PERSONALIZES = "    def personal_model(self, f, server, state, *batches, round): ..."


@pytest.mark.parametrize(
    ("base", "module", "body", "expected"),
    [
        ("Method", "base", "", {"global", "finetuned"}),
        ("Method", "base", PERSONALIZES, {"global", "finetuned", "personalized"}),
        ("FedAvg", "fedavg", "", {"global", "finetuned", "stored", "sampled"}),
        # What is said of the class's own `personal_model` says nothing of another one.
        ("FedAvg", "fedavg", PERSONALIZES, {"global", "finetuned", "personalized"}),
        ("FedPer", "fedper", "", {"personalized", "finetuned", "stored", "sampled"}),
        ("FedPer", "fedper", '    global_model = "trained"', set(SHOWN) - {"local"}),
        ("Local", "local", '    global_model: str = "start"', set(SHOWN) - {"global", "local"}),
    ],
)
def test_a_users_method_has_what_it_overrides_or_inherits(
    tmp_path: Path, base: str, module: str, body: str, expected: set[str]
) -> None:
    path = tmp_path / "mine.py"
    name = base.partition("[")[0]
    path.write_text(OWN.format(imports=f"from pflbench.methods.{module} import {name}", base=base, body=body))
    assert there(of_file(path)) == expected


def test_a_class_may_be_built_on_another_of_its_file_or_have_its_bases_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from pflbench.methods.fedavg import FedAvg\n"
        "class First(FedAvg):\n    personal_needs = 'lr'\n"
        "class FedAvg(First): ...\n"
        "class Second(FedAvg): ...\n"
    )
    assert of_file(path, "Second").personal_needs == "lr"


def test_what_is_recorded_comes_with_the_personal_models() -> None:
    assert canonical(["local", "global"]) == ("global", "personalized")
    assert canonical(["sampled", "global"]) == ("global", "sampled")
