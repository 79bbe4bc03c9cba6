"""`pflbench upgrade`, and who uses a method's old name before or after it."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_kit import SUITE, stored

from pflbench.result import RunResult, Score
from pflbench.spec import MethodSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

OLD = Path(__file__).parents[1] / "store" / "from_9e47583"
RENAMED = SUITE.replace(
    'id = "ditto"\ntitle = "Ditto"\nmethod = "ditto"', 'id = "rep"\ntitle = "FedRep"\nmethod = "NAME"'
)
AVERAGED = RENAMED.replace("NAME", "fedrep-averaged").replace(
    "ditto = { steps = 1 }", "fedrep-averaged = { head_steps = 3 }"
)


@pytest.fixture
def results(folder: Path) -> Path:
    """What the tiny suite had of FedRep with averaged heads under its old name, beside its own FedAvg."""
    (folder / "tiny.toml").write_text(AVERAGED)
    store = Store(folder / "results")
    for spec in expand(load("tiny.toml")).runs:
        if spec.method.name == "fedrep-averaged":
            then = MethodSpec(name="fedrep", version=spec.method.version, hyper=spec.method.hyper)
            spec = spec.model_copy(update={"method": then})
        moments = [("global", 0), *(("finetuned", step) for step in (0, 1, 2))]
        scores = tuple(Score(s, 2, t, client, 5, 10, 1.0, 0.5) for s, t in moments for client in (58, 59))
        store.write(RunResult(spec, scores, {"data_hash": "d"}))
    return store.root


@pytest.mark.usefixtures("no_training")
def test_until_then_they_are_named_and_in_no_table(cli, results: Path) -> None:
    before = stored(results)
    for verb in ("report", "status", "plan"):
        told = cli(verb, "-s", "tiny.toml")
        assert told.code == 0
        (warning,) = [line for line in told.err.splitlines() if "named" in line]
        assert warning == (
            "Warning: In 'results' there are 4 runs of the method that was named 'fedrep' and is 'fedrep-averaged' now, "
            "which are left out: run `pflbench upgrade --results results`."
        )
        assert "fedrep\n" not in told.out and "head_steps" not in told.out
    assert "4 done, 0 failed, 4 missing\n" in cli("status", "-s", "tiny.toml").out
    assert "beside" not in cli("status", "-s", "tiny.toml").out
    assert cli("upgrade", "--dry-run").out.splitlines() == [
        "4 runs to be named as their methods are called now.",
        "4 runs to be given the costs of their clients, as far as they can be counted here.",
    ]
    assert stored(results) == before
    upgraded = cli("upgrade")
    assert (upgraded.code, upgraded.err) == (0, "") and "\n4 runs were named as" in upgraded.out
    assert "8 done, 0 failed, 0 missing" in cli("status", "-s", "tiny.toml").out
    assert "FedRep " in cli("report", "-s", "tiny.toml").out and cli("report", "-s", "tiny.toml").err == ""
    after = stored(results)
    assert cli("upgrade").out.endswith("Nothing to upgrade in 'results'.\n") and stored(results) == after
    old, new = (
        next(iter(one)).removesuffix(".parquet") for one in (set(before) - set(after), set(after) - set(before))
    )
    assert f"run {new}: done" in cli("show", new).out
    assert f"run {next(run.spec.id for run in Store(results).list() if old in run.ids)}: done" in cli("show", old).out


@pytest.mark.usefixtures("no_training")
def test_a_folder_of_9e47583(cli, folder: Path) -> None:
    shutil.copytree(OLD, folder / "results")
    assert cli("upgrade").out.splitlines()[1:] == [
        "5 runs were named as their methods are called now.",
        "7 runs were given the columns that their files lacked.",
    ]
    assert cli("upgrade").out.splitlines()[1:] == ["Nothing to upgrade in 'results'."]
    assert cli("upgrade", "-r", "elsewhere").out == "Nothing to upgrade in 'elsewhere'.\n"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("-s cafeme-table1 --set fedrep.head_steps=3", "With head_steps it is called 'fedrep-averaged' now."),
        ("-s cafeme-table1 -m fedrep", "With head_steps it is called 'fedrep-averaged' now."),
        ("-s pfedvem-table1 --set fedrep-personal.lr=1", "With head_epochs it is called 'fedrep' now."),
        ("-s pfedvem-table1 -m fedrep-personal", "With head_epochs it is called 'fedrep' now."),
        (
            "-s pfedvem-table1 --set fedrep.head_steps=3",
            "Unknown hyperparameter of fedrep 'head_steps'. "
            "The 'fedrep' of before, which has it, is called 'fedrep-averaged' now.",
        ),
    ],
)
def test_old_names_on_the_command_line(cli, folder: Path, arguments: str, part: str) -> None:
    result = cli("plan", *arguments.split())
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1


EXTENDING = '[suite]\nname = "mine"\ntitle = "Mine"\nextends = "{}"\n'
GRID = EXTENDING.format("pfedvem-table1") + '[[column]]\nid = "a"\nlike = "fashion-mnist-100"\ntitle = "A"\n'
GRID += '[tune]\ncolumns = ["a"]\n[tune.grid.fedrep-personal]\nlr = [0.1]\n'
LIKE = EXTENDING.format("cafeme-table1") + '[[row]]\nid = "mine"\nlike = "fedrep"\ntitle = "Mine"\n'


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            RENAMED.replace("NAME", "fedrep-personal"),
            "row[2].method: Unknown method 'fedrep-personal'. With head_epochs it is",
        ),
        (
            RENAMED.replace("NAME", "fedrep").replace("ditto = { steps = 1 }", "fedrep = { head_steps = 3 }"),
            "hyper.fedrep.head_steps: Unknown hyperparameter of fedrep 'head_steps'. The 'fedrep' of before",
        ),
        (
            AVERAGED.replace("fedrep-averaged = {", "fedrep = {"),
            "Unknown method 'fedrep'. With head_steps it is called",
        ),
        (GRID, "tune.grid: Unknown method 'fedrep-personal'. With head_epochs it is called 'fedrep' now."),
        (LIKE, "like: Unknown row 'fedrep'. With head_steps it is called 'fedrep-averaged' now."),
    ],
    ids=["row", "hyper", "hyper's method", "tune", "like"],
)
def test_old_names_in_a_suite(cli, folder: Path, text: str, part: str) -> None:
    (folder / "mine.toml").write_text(text)
    result = cli("plan", "-s", "mine.toml")
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1


@pytest.mark.usefixtures("no_training")
def test_old_names_in_a_queue(cli, folder: Path) -> None:
    (folder / "queue.toml").write_text('[[entry]]\nsuite = "cafeme-table1"\nmethods = ["fedrep"]\n')
    result = cli("queue", "--list", "--file", "queue.toml")
    assert result.code == 2 and "With head_steps it is called 'fedrep-averaged' now." in result.err


@pytest.mark.usefixtures("no_training")
def test_a_run_in_the_place_of_another_versions_file_is_refused_before_it_is_trained(cli, results: Path) -> None:
    runs = [run for file in Store(results).singles.all() for run in file.entries.values()]
    first = next(run for run in runs if run.spec.method.name == "fedavg")
    table = pq.read_table(first.path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"pflbench.schema": b"2"}), first.path)
    whole = first.path.read_bytes()
    result = cli("run", "-s", "tiny.toml", "-m", "fedavg")
    assert (
        result.code == 1 and "is not replaced: schema version 2, where this version of pflbench reads 1." in result.err
    )
    named = [line for line in cli("status", "-s", "tiny.toml").err.splitlines() if "left out: schema version 2" in line]
    assert len(named) == 1
    assert first.path.read_bytes() == whole and {path.suffix for path in first.path.parent.iterdir()} == {".parquet"}
