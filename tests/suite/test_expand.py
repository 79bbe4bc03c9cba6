from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import load

from pflbench.errors import UsageError
from pflbench.suite.cells import Expansion
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.user_supplied import UserSupplied
from pflbench.units import parse_seeds

from .samples import raw

# CAFeMe, Table 1 as printed: CIFAR-10 shards, dirichlet, RMNIST shards, dirichlet.
PRINTED = {
    "FedAvg": [(27.87, 1.10), (40.91, 1.98), (60.26, 3.77), (79.16, 2.93)],
    "FedAvg-FT": [(87.00, 2.40), (67.13, 1.48), (87.08, 3.39), (89.47, 1.43)],
    "IFCA": [(29.01, 2.06), (42.10, 3.00), (65.13, 6.26), (80.50, 1.69)],
    "IFCA-FT": [(87.26, 2.50), (64.96, 1.21), (88.52, 3.32), (89.84, 1.21)],
    "Ditto": [(89.87, 1.02), (70.71, 1.54), (90.44, 1.44), (89.27, 1.50)],
    "FedRep": [(88.77, 1.43), (68.44, 2.16), (90.95, 1.64), (89.88, 1.46)],
    "Per-FedAvg": [(88.41, 2.06), (71.04, 1.91), (83.86, 1.74), (74.57, 3.12)],
    "CAFeMe": [(90.66, 0.66), (74.97, 1.67), (98.82, 0.11), (94.31, 1.00)],
}
FEDFOO = """
from dataclasses import dataclass
from pflbench.methods.base import Method, hyper

@dataclass(frozen=True)
class FedFoo(Method):
    lr: float = hyper(0.5, "Learning rate.")
"""


@pytest.fixture(scope="module")
def table1() -> Suite:
    return replace(load("cafeme-table1"), supplied=UserSupplied(imports=True))


def tiny(table: dict[str, Any] | None = None) -> Suite:
    return parse(table or raw(), Path("tiny.toml"))


def ids(expansion: Expansion) -> list[str]:
    return [run.id for run in expansion.runs]


def test_table1_has_160_scores_from_120_runs(table1: Suite) -> None:
    full = expand(table1)
    assert sum(len(cell.runs) for cell in full.cells) == 160
    assert len(full.runs) == len(set(ids(full))) == 120
    order = [(r.dataset.name, r.partition.name) for r in full.runs[::30]]
    assert order == [(d, p) for d in ("cifar10", "rmnist") for p in ("shards", "dirichlet")]
    assert [(r.method.name, r.seed) for r in full.runs[3:7]] == [("fedavg", 3), ("fedavg", 4), ("ifca", 0), ("ifca", 1)]


def test_table1_asks_for_the_runs_it_always_did(table1: Suite) -> None:
    """Ids are how results are found again: a change of the format, or of a default, must not move them."""
    pinned = {
        "paper": ("7b049ac8317fada4", "35821b0b6281ecab"),
        "quick": ("1757de93313f5e66", "ea6f3bf0380ad400"),
        "smoke": ("dc798dab2a134f63", "69abbedbf104ac9d"),
    }
    for profile, ends in pinned.items():
        found = ids(expand(table1, profile=profile))
        assert (found[0], found[-1]) == ends


def test_table1_reads_as_printed(table1: Suite) -> None:
    full = expand(table1)
    assert len(full.cells) == 32
    found: dict[str, list[Any]] = {}
    for cell in full.cells:
        found.setdefault(cell.row.title, []).append(cell.reference and cell.reference[:2])
    assert found == PRINTED
    assert [(c.group, c.title) for c in full.columns] == [
        (g, t) for g in ("CIFAR-10", "RMNIST") for t in ("Shards", "Dirichlet")
    ]
    assert (full.layout.decimals, full.layout.bold, full.spread.model_dump(exclude={"paper", "n"})) == (
        2,
        "best-per-column",
        {"kind": "std", "ddof": 0, "of": "each-step"},
    )


def test_profiles_of_table1(table1: Suite) -> None:
    quick, smoke = (expand(table1, profile=p) for p in ("quick", "smoke"))
    assert (quick.seeds, smoke.seeds) == ((0,), (0, 1))
    assert [c.rounds for c in quick.columns] == [10, 10, 50, 50]
    assert {r.scoring.first for r in quick.runs} == {8}
    assert [c.dataset for c in smoke.columns] == ["digits", "digits", "rotated-digits", "rotated-digits"]
    assert {r.clients for r in smoke.runs} == {20} and smoke.cells[-1].reading.steps == (8, 9, 10)
    assert {r.dataset.options.get("channels") for r in smoke.runs if r.model == "cnn3"} == {3}
    assert not set(ids(quick)) & set(ids(smoke)) and not set(ids(smoke)) & set(ids(expand(table1)))


def test_fedavg_and_fedavg_ft_are_one_run(table1: Suite) -> None:
    full = expand(table1)
    for column in full.columns:
        runs = {c.row.id: c.runs for c in full.cells if c.column == column}
        assert runs["fedavg"] == runs["fedavg-ft"] and runs["ifca"] == runs["ifca-ft"]
    plain, tuned = (next(c for c in full.cells if c.row.id == r) for r in ("fedavg", "fedavg-ft"))
    assert (plain.stage, plain.reading.steps, tuned.stage, tuned.reading.steps) == (
        "global",
        None,
        "finetuned",
        (48, 49, 50),
    )


def test_a_run_is_the_same_whatever_is_selected_beside_it(table1: Suite) -> None:
    full = ids(expand(table1))
    for selection in (
        {"rows": ["fedavg"]},
        {"columns": ["rmnist-shards"]},
        {"datasets": ["rmnist"], "partitions": ["dirichlet"]},
        {"methods": ["cafeme", "ifca-ft"], "seeds": [4]},
        {"clients": [100]},
    ):
        part = ids(expand(table1, **selection))
        assert part and [i for i in full if i in part] == part
    assert len(ids(expand(table1, datasets=["rmnist"], methods=["cafeme"], seeds=[0]))) == 2


def test_ids_do_not_depend_on_the_order_of_keys() -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(k, shuffled(v)) for k, v in value.items()]
            return dict(random.Random(3).sample(items, len(items)))
        return [shuffled(v) for v in value] if isinstance(value, list) else value

    assert ids(expand(tiny(shuffled(raw())))) == ids(expand(tiny()))


def test_a_default_spelled_out_is_the_same_run() -> None:
    table = raw()
    table["row"][2]["hyper"] |= {"outer_batches": 6, "modulation": "c1"}
    table["column"][0]["dataset"]["rotations"] = 10
    table["column"][0]["weights"] = "uniform"
    assert ids(expand(tiny(table))) == ids(expand(tiny()))


def test_later_layers_win() -> None:
    cafeme = expand(tiny(), methods=["cafeme"]).runs[0]
    fedavg = expand(tiny(), methods=["fedavg"], overrides=["FedAvg.lr=1"]).runs[0]
    assert cafeme.scoring.finetune and cafeme.scoring.finetune.lr == 0.2
    assert fedavg.scoring.finetune and fedavg.scoring.finetune.lr == 0.1
    assert (cafeme.method.hyper["steps"], fedavg.method.hyper) == (3, {"epochs": 2, "lr": 1.0})
    everyone = expand(tiny(), overrides=["finetune.lr=0.3", "finetune.steps=9"], rounds=7).runs
    assert {r.scoring.finetune.lr for r in everyone if r.scoring.finetune} == {0.3}
    assert {r.rounds for r in everyone} == {7}


def test_sources_follow_the_value() -> None:
    assert expand(tiny()).cells[0].sources == {"lr": "code"}
    assert expand(tiny(), overrides=["fedavg.lr=0.01"]).cells[0].sources == {}


def test_the_steps_reported_default_to_the_last() -> None:
    table = raw()
    del table["evaluation"]["report"]
    assert expand(tiny(table)).cells[-1].reading.steps == (5,)


def test_a_column_may_report_steps_of_its_own_from_the_same_runs() -> None:
    table = raw()
    own = {"id": "early", "title": "Early", "report": {"steps": [1, 2]}}
    table["column"].append(table["column"][0] | own)
    first, early = (
        next(c for c in expand(tiny(table)).cells if c.column.id == id and c.stage == "finetuned")
        for id in (table["column"][0]["id"], "early")
    )
    assert early.reading.steps == (1, 2) != first.reading.steps and early.runs == first.runs
    table["column"][-1]["report"] = {"steps": [6]}
    with pytest.raises(UsageError, match=r"column\[\d\].report.steps: step 6 is not there"):
        expand(tiny(table))


def test_columns_answer_to_the_papers_name_under_a_profile(table1: Suite) -> None:
    by_paper = expand(table1, profile="smoke", datasets=["rmnist"], clients=[100])
    assert ids(by_paper) == ids(expand(table1, profile="smoke", datasets=["rotated-digits"], clients=[20]))


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"profile": "quik"}, "Unknown profile 'quik'. Did you mean 'quick'"),
        ({"rows": ["fedavg-tf"]}, "Unknown row 'fedavg-tf'. Did you mean 'fedavg-ft'"),
        ({"columns": ["rmnist-shard"]}, "Unknown column 'rmnist-shard'. Did you mean 'rmnist-shards'"),
        ({"datasets": ["mnist"]}, "Unknown dataset 'mnist'. Did you mean 'rmnist'"),
        ({"partitions": ["shard"]}, "Unknown partition 'shard'. Did you mean 'shards'"),
        ({"clients": [50]}, "Unknown number of clients '50'. Known: 100"),
        ({"methods": ["cafme"]}, "Unknown method 'cafme'. Did you mean 'cafeme'"),
        ({"columns": ["rmnist-shards"], "datasets": ["cifar10"]}, "No column has all"),
        (
            {"overrides": ["fedavg.epoch=3"]},
            "--set fedavg.epoch=3: Unknown hyperparameter of fedavg 'epoch'. Did you mean",
        ),
        ({"overrides": ["fedavg.epochs=x"]}, "--set fedavg.epochs=x: fedavg.epochs must be int, not 'x'"),
        ({"overrides": ["fedvg.lr=1"]}, "--set fedvg.lr=1: Unknown selected method 'fedvg'. Did you mean 'fedavg'"),
        ({"overrides": ["fedavg.lr=1"], "methods": ["ifca"]}, "--set fedavg.lr=1: Unknown selected method 'fedavg'"),
        ({"overrides": ["lr=1"]}, "--set lr=1: Write method.key=value"),
        ({"overrides": ["finetune.rl=1"]}, "--set finetune.rl=1: Unknown option of finetune 'rl'. Did you mean 'lr'"),
        ({"overrides": ["finetune.lr=-1"]}, "finetune.lr: "),
        ({"overrides": ["finetune.steps=9"]}, "evaluation.report.steps: step 50 is not there"),
        ({"rounds": 0}, "At least one round, not 0"),
        ({"methods": ["nowhere.py:Foo"]}, "There is no file"),
    ],
)
def test_wrong_selections(table1: Suite, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(table1, **selection)
    assert message in str(caught.value)


def test_a_users_method_is_a_row_of_its_own(table1: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lab" / "fedfoo.py"
    path.parent.mkdir()
    path.write_text(FEDFOO)
    monkeypatch.chdir(tmp_path)
    mine = expand(table1, methods=["lab/fedfoo.py:FedFoo"], overrides=["FedFoo.lr=0.25"])
    assert [(r.id, r.title, r.stages) for r in mine.rows] == [("fedfoo.py:FedFoo", "FedFoo", ("finetuned",))]
    assert len(mine.runs) == 20 and set(mine.locations) == set(ids(mine))
    assert all(places == {"methods": f"{path.resolve()}:FedFoo"} for places in mine.locations.values())
    assert {r.method.hyper["lr"] for r in mine.runs} == {0.25}
    assert [c.runs[0].scoring.finetune.lr for c in mine.cells if c.runs[0].scoring.finetune] == [0.01, 0.01, 1e-3, 1e-3]
    # It stands in the suite's columns: same setting as the suite's own runs there.
    theirs = {run.setting() for run in expand(table1).runs}
    assert {run.setting() for run in mine.runs} == theirs
    both = expand(table1, methods=["fedavg", str(path) + ":FedFoo"])
    assert [r.id for r in both.rows] == ["fedavg", "fedavg-ft", "fedfoo.py:FedFoo"]


def test_moving_the_file_keeps_the_run_and_editing_it_makes_another(table1: Suite, tmp_path: Path) -> None:
    found = []
    for folder, source in (("a", FEDFOO), ("b", FEDFOO), ("c", FEDFOO + "\nedited = True\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fedfoo.py").write_text(source)
        found.append(ids(expand(table1, methods=[f"{tmp_path}/{folder}/fedfoo.py:FedFoo"])))
    assert found[0] == found[1] and not set(found[0]) & set(found[2])
    with pytest.raises(UsageError, match="same file and class name"):
        expand(table1, methods=[f"{tmp_path}/{folder}/fedfoo.py:FedFoo" for folder in "ac"])


def test_without_finetuning_a_users_row_is_global(tmp_path: Path) -> None:
    table = raw()
    del table["evaluation"]["finetune"], table["evaluation"]["report"], table["row"][1:]
    for column in table["column"]:
        del column["finetune"]
    (tmp_path / "fedfoo.py").write_text(FEDFOO)
    mine = expand(tiny(table), methods=[f"{tmp_path}/fedfoo.py:FedFoo"])
    assert mine.cells[0].stage == "global" and mine.runs[0].scoring.finetune is None
    with pytest.raises(UsageError, match="Unknown selected method 'finetune'"):
        expand(tiny(table), overrides=["finetune.lr=1"])


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", (0, 1, 2, 3, 4)), ("0,2,5", (0, 2, 5)), ("3, 0-1,1", (3, 0, 1)), ("7", (7,))]
)
def test_parse_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1,", "1-", "1.5"])
def test_parse_seeds_refuses(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a list of seeds|is a reversed range of seeds"):
        parse_seeds(text)


def test_the_last_rounds_are_at_most_those_there_are() -> None:
    table = raw()
    table["evaluation"]["last"] = 3
    table["row"][2] |= {"rounds": 2}

    def last(**selection: Any) -> dict[str, int]:
        return {cell.row.id: cell.runs[0].scoring.last for cell in expand(tiny(table), **selection).cells}

    assert last() == {"fedavg": 3, "fedavg-ft": 3, "cafeme": 2}
    assert set(last(rounds=1).values()) == {1}
    assert set(last(rounds=9).values()) == {3, 2}
    table["evaluation"]["last"] = 10
    assert set(last().values()) == {3, 2}


def test_augmentation_and_the_partitions_own_test_rows() -> None:
    table = raw()
    table["federation"] |= {"augment": "crop-flip", "query": "partition"}
    table["column"][1] |= {"augment": "none", "query": 0.5}
    table["evaluation"]["features"] = True
    found = {cell.column.id: cell.runs[0] for cell in expand(tiny(table)).cells}
    assert [(found[c].augment, found[c].query) for c in "ab"] == [("crop-flip", "partition"), ("none", 0.5)]
    assert all(run.scoring.features for run in found.values())


def test_new_keys_left_out_or_at_their_defaults_are_the_same_runs() -> None:
    table = raw()
    plain = ids(expand(tiny(table)))
    table["federation"]["augment"] = "none"
    table["evaluation"] |= {"last": 1, "features": False, "mean": "clients"}
    assert ids(expand(tiny(table))) == plain
    table["evaluation"]["mean"] = "examples"  # how the scores are read
    other = expand(tiny(table))
    assert ids(other) == plain and {cell.reading.mean for cell in other.cells} == {"examples"}
    table["evaluation"]["last"] = 2
    assert not set(ids(expand(tiny(table)))) & set(plain)


def test_a_rows_name_brings_the_rows_that_show_its_runs_at_other_stages(table1: Suite) -> None:
    def rows(suite: Suite, *methods: str, **part: Any) -> list[str]:
        return list(dict.fromkeys(cell.row.id for cell in expand(suite, methods=methods, **part).cells))

    assert rows(table1, "fedavg") == rows(table1, "fedavg-ft") == ["fedavg", "fedavg-ft"]
    assert rows(table1, "fedavg", rows=["fedavg"]) == ["fedavg"]
    assert len(expand(table1, methods=["fedavg"]).runs) == len(expand(table1, methods=["ditto"]).runs)
    assert rows(load("fedec-table2"), "fedec") == ["fedec"], "other hyperparameters, other runs"


def test_a_built_in_method_that_is_no_row_is_a_guest_like_a_users(table1: Suite) -> None:
    (row,) = {cell.row for cell in expand(table1, methods=["fedprox"]).cells}
    assert (row.method, row.title, row.stages) == ("fedprox", "fedprox", ("finetuned",))
    with pytest.raises(UsageError, match="Unknown method 'fedproxx'"):
        expand(table1, methods=["fedproxx"])


def test_a_guest_like_a_row_takes_values_and_sources_where_names_agree(table1: Suite, tmp_path: Path) -> None:
    (tmp_path / "foo.py").write_text(FEDFOO)
    guest = f"{tmp_path / 'foo.py'}:FedFoo"
    for like in ("fedavg", "cafeme", "ditto"):
        cells = expand(table1, methods=[guest], like=like).cells
        rows = {cell.column.id: cell for cell in expand(table1, rows=[like]).cells}
        for cell in cells:
            (run, *_), row = cell.runs, rows[cell.column.id]
            hyper = row.runs[0].method.hyper
            assert run.method.hyper == {"lr": hyper.get("lr", 0.5)}
            assert cell.sources.get("lr") == row.sources.get("lr")
            assert (
                run.scoring.finetune.lr
                == next(one for one in rows.values() if one.column == cell.column).runs[0].scoring.finetune.lr
            )
    chosen = expand(table1, methods=[guest], like="fedavg", overrides=["FedFoo.lr=0.3"]).cells[0]
    assert chosen.runs[0].method.hyper == {"lr": 0.3} and "lr" not in chosen.sources
    with pytest.raises(UsageError, match="Did you mean 'fedavg'"):
        expand(table1, methods=[guest], like="fedavgg")
    for methods in ([], ["ditto"]):
        with pytest.raises(UsageError, match="--like fedavg"):
            expand(table1, methods=methods, like="fedavg")


def test_a_columns_seeds_stand_in_place_of_the_suites() -> None:
    table = raw()
    table["column"][1]["seeds"] = [0, 5, 7]

    def found(profile: str = "paper", **part: Any) -> dict[str, list[int]]:
        made = expand(parse(table, Path("tiny.toml")), profile=profile, **part)
        assert made.seeds == tuple(dict.fromkeys(run.seed for cell in made.cells for run in cell.runs))
        return {cell.column.id: [run.seed for run in cell.runs] for cell in made.cells}

    assert found() == {"a": [0, 1], "b": [0, 5, 7]}
    assert found(seeds=[3]) == {"a": [3], "b": [3]}
    assert found("smoke") == {"a": [0], "b": [0]}
    table["profile"]["smoke"]["column"]["b"]["seeds"] = [5]
    assert found("smoke") == {"a": [0], "b": [5]}
