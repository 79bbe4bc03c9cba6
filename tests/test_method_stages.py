"""What a method's source says of its stages, and what its class says, are the same; nothing is imported to read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pflbench import names, trust
from pflbench.errors import UsageError
from pflbench.stages import SHOWN, Stages, canonical, of_class, of_reference


def there(stages: Stages, held_out: bool = False, moment: str = "after-aggregation", **hyper: object) -> set[str]:
    return set(stages.there(hyper, moment=moment, held_out=held_out))


@pytest.mark.parametrize("name", names.BUILT_IN["methods"])
def test_the_source_and_the_class_agree(name: str) -> None:
    reference = names.locate("methods", name)
    assert of_reference(reference) == of_class(names.load(reference))


def test_nothing_is_imported_to_read_them() -> None:
    program = (
        "import sys; from pflbench import names, stages; "
        "[stages.of_reference(r) for r in names.BUILT_IN['methods'].values()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def of(name: str) -> Stages:
    return of_reference(names.locate("methods", name))


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
    assert there(of_reference(f"{path}:Mine")) == expected


def test_a_class_may_be_built_on_another_of_its_file_or_have_its_bases_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from pflbench.methods.fedavg import FedAvg\n"
        "class First(FedAvg):\n    personal_needs = 'lr'\n"
        "class FedAvg(First): ...\n"
        "class Second(FedAvg): ...\n"
    )
    assert of_reference(f"{path}:Second").personal_needs == "lr"


def test_what_the_source_does_not_tell_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from pflbench.methods import fedper\n"
        "class Mixin:\n    records = ('local',)\n"
        "class Mine(Mixin, fedper.FedPer): ...\n"
    )
    trust.grant(f"{path}:Mine")
    found = of_reference(f"{path}:Mine")
    assert (found.personalizes, found.personal_of, found.records) == (True, "training", ("local",))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Mine(\n")
    with pytest.raises(UsageError, match=r"mine\.py, line 1"):
        of_reference(f"{path}:Mine")


def test_what_is_recorded_comes_with_the_personal_models() -> None:
    assert canonical(["local", "global"]) == ("global", "personalized")
    assert canonical(["sampled", "global"]) == ("global", "sampled")
