"""A user's own network, dataset and partition: an edit of any of it makes new runs, and never shows old ones."""

import csv
import os
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent

import pytest
from cli_kit import method_file, start, stored
from own_kit import images, lab, split

from pflbench import names
from pflbench.store import Store

RUN = ("run", "-s", "own.toml")
CSV = ("report", "-s", "own.toml", "--profile", "paper", "--format", "csv")


def comment(path: Path) -> None:
    path.write_text(path.read_text() + "# Nothing that runs.\n")


EDITS: dict[str, Callable[[Path], None]] = {
    "network": lambda folder: (folder / "mynets.py").write_text(
        (folder / "mynets.py").read_text().replace("hidden=(8,)", "hidden=(9,)")
    ),
    "neighbor": lambda folder: (folder / "widths.py").write_text("WIDTH = 5\n"),
    "arrays": lambda folder: images(folder / "data/mine.npz", seed=1),
    "split": lambda folder: split(folder / "split.json", first=3),
}


def shown(cli) -> list[tuple[str, str, str]]:
    """Row, done runs and mean of every line of the table."""
    return [(line["row"], line["n"], line["mean"]) for line in csv.DictReader(cli(*CSV).out.splitlines())]


@pytest.mark.parametrize("module", [False, True], ids=["file.py:Name", "module:Name"])
@pytest.mark.parametrize("declared", [True, False], ids=["files", "no files"])
def test_each_edit_makes_new_runs_beside_the_old(
    cli, folder: Path, declared: bool, module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab(folder, declared=declared, module=module)
    monkeypatch.syspath_prepend(folder)
    first = cli(*RUN)
    assert first.code == 0, first.err
    assert cli(*RUN).out.startswith("2 runs: 2 done, 0 failed before, 0 to do.\n")
    before = shown(cli)
    assert [line[:2] for line in before] == [("FedAvg", "2")]
    for number, edit in enumerate(EDITS.values(), 2):
        old, table = stored(folder / "results"), shown(cli)
        edit(folder)
        assert shown(cli) == table  # a report reads no code: it shows the newest runs
        again = cli(*RUN)
        assert again.code == 0 and "2 runs finished" in again.out, again.err
        now = stored(folder / "results")
        assert len(now) == 2 * number and old.items() <= now.items()
        assert [line[:2] for line in shown(cli)] == [("FedAvg", "2")]
        newest = sorted(Store(folder / "results").list(), key=lambda run: run.finished)[-2:]
        (line,) = csv.DictReader(cli(*CSV).out.splitlines())
        assert set(line["runs"].split()) == {run.spec.id for run in newest}
    lab(folder, declared=declared, module=module)  # everything as it was
    assert cli(*RUN).out.startswith("2 runs: 2 done, 0 failed before, 0 to do.\n")


def test_a_comment_makes_no_new_run(cli, folder: Path) -> None:
    lab(folder)
    assert cli(*RUN, "--seeds", "0", "-m", "fedavg").code == 0
    before, ids = cli(*CSV, "--seeds", "0"), set(stored(folder / "results"))
    for name in ("mylab.py", "mynets.py", "widths.py"):
        comment(folder / name)
    assert cli(*RUN, "--seeds", "0").out.startswith("1 run: 1 done, 0 failed before, 0 to do.\n")
    assert "0 runs to do:" in cli("plan", "-s", "own.toml", "--seeds", "0").out
    assert cli("status", "-s", "own.toml").out == "own.toml [paper]: 1 done, 0 failed, 1 missing\n"
    assert cli(*CSV, "--seeds", "0") == before
    again = cli(*RUN)
    assert "2 runs: 1 done, 0 failed before, 1 to do." in again.out and again.code == 0, again.err
    assert shown(cli)[0][:2] == ("FedAvg", "2") and "MIXED" not in cli(*CSV[:-2]).out
    assert set(stored(folder / "results")) > ids


def test_a_table_shows_the_newest_version_of_a_file_and_counts_the_others(cli, folder: Path) -> None:
    foo, today = Path("foo.py"), str(datetime.now(timezone.utc).date())
    run = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "foo.py:Foo")

    def rows() -> list[tuple[str, str, str]]:
        lines = csv.DictReader(
            cli("report", "-s", "tiny.toml", "--column", "shards", "--format", "csv").out.splitlines()
        )
        rows = [(line["row"], line["n"], line["mean"]) for line in lines]
        return [row for row in rows if row[0].startswith("Foo") and "(global)" not in row[0]]

    method_file(foo)
    assert cli(*run).code == 0
    first = names.code("foo.py:Foo").version
    (before,) = rows()
    method_file(foo, ("lr: float = 0.05", "lr: float = 0.0"))
    assert rows() == [before]
    assert "2 to do" in cli(*run, "--seeds", "0,1").out
    second = names.code("foo.py:Foo").version
    ((title, seeds, mean),) = rows()
    assert (title, seeds) == ("Foo", "2")
    note = f"foo.py:Foo is shown in its newest version ({second}). Not shown: 2 runs of version {first} ({today})."
    assert note in cli("report", "-s", "tiny.toml", "--column", "shards", "--format", "markdown").out
    foo.unlink()
    assert rows() == [(title, seeds, mean)]
    assert cli("explain", "tiny.toml", "Foo", "shards", "--no-data").code == 0


def test_values_set_on_the_command_line_are_a_row_of_their_own(cli, folder: Path) -> None:
    lab(folder)
    method_file(folder / "foo.py")
    row = '[[row]]\nid = "foo"\nmethod = "foo.py:Foo"\nhyper = { lr = 0.2 }\n'
    (folder / "own.toml").write_text((folder / "own.toml").read_text() + row)
    assert cli(*RUN).code == 0
    before = shown(cli)
    assert [line[:2] for line in before] == [("FedAvg", "2"), ("foo", "2")]
    assert cli(*RUN, "--set", "Foo.lr=0.3").code == 0
    assert shown(cli)[:2] == before and [line[0] for line in shown(cli)[2:]] == ["Foo (lr=0.3)"]


def test_where_files_lie_is_no_part_of_a_run(cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab(folder / "here")
    monkeypatch.setenv("PFLBENCH_DATA_DIR", str(folder / "here/data"))
    assert cli("run", "-s", "here/own.toml").code == 0
    (spec, _) = (run.spec for run in Store(folder / "results").list())
    assert (spec.dataset.name, spec.partition.name, spec.model) == ("mylab.py:Npz", "mylab.py:Given", "mynets.py:net")
    assert str(folder) not in spec.canonical() and "here" not in spec.canonical()
    shutil.move(folder / "here", folder / "there")
    moved = cli("run", "-s", "there/own.toml", "--data-dir", "there/data")
    assert moved.out.startswith("2 runs: 2 done, 0 failed before, 0 to do.\n")


def test_the_sources_are_stored(cli, folder: Path) -> None:
    lab(folder)
    method = method_file(folder / "foo.py")
    assert cli(*RUN, "--seeds", "0", "-m", method).code == 0
    (run,) = Store(folder / "results").list()
    assert run.provenance["model_source"] == (folder / "mynets.py").read_text()
    assert run.provenance["model_neighbors"] == {"widths.py": "WIDTH = 4\n"}
    for kind in ("dataset", "partition"):
        assert run.provenance[f"{kind}_source"] == (folder / "mylab.py").read_text()
        assert f"{kind}_neighbors" not in run.provenance
    assert run.provenance["method_source"] == (folder / "foo.py").read_text()
    assert "mynets.py:net" in cli("show", run.spec.id).out


def test_lists_tell_versions_and_contents_apart(cli, folder: Path) -> None:
    lab(folder)
    method = method_file(folder / "foo.py")
    assert cli("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0", "-m", "fedavg").code == 0
    assert "_version" not in cli("ls", "runs").out and "unchecked" not in cli("ls", "runs").out
    assert cli(*RUN, "--seeds", "0").code == 0
    EDITS["arrays"](folder)
    assert cli(*RUN, "--seeds", "0", "-m", method, "-m", "fedavg", "--unchecked").code == 0
    runs = {run.spec.id: run for run in Store(folder / "results").list()}
    for verb in (("ls", "runs", "--format", "csv"), ("scores",)):
        lines = list(csv.DictReader(cli(*verb).out.splitlines()))
        assert len({line["dataset_content"] for line in lines} - {""}) == 2
        for line in lines:
            spec = runs[line["run"]].spec
            told = {
                "dataset_version": spec.dataset.version,
                "dataset_content": spec.dataset.content,
                "partition_version": spec.partition.version,
                "partition_content": spec.partition.content,
                "model_version": spec.model_version,
            }
            assert {key: line[key] or None for key in told} == told
            unchecked = bool(runs[line["run"]].provenance.get("unchecked"))
            assert line["unchecked"] == (("yes" if unchecked else "") if verb[0] == "ls" else str(unchecked).lower())
    assert {"unchecked", *told} <= set(cli("ls", "runs").out.splitlines()[0].split())


@pytest.mark.slow
def test_workers_find_the_files_too(cli, folder: Path) -> None:
    lab(folder / "sub")
    shutil.move(folder / "sub/data", folder / "data")
    done = cli("run", "-s", "sub/own.toml", "--jobs", "2")
    assert done.code == 0 and "2 runs finished" in done.out, done.err


def test_what_changes_after_the_runs_are_planned_is_refused(cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pflbench.running import build

    lab(folder)
    check = build.check_all
    for name, what in (("arrays", "mylab.py:Npz"), ("split", "mylab.py:Given"), ("neighbor", "mynets.py")):

        def edited(specs, name: str = name) -> None:
            check(specs)
            EDITS[name](folder)

        monkeypatch.setattr(build, "check_all", edited)
        refused = cli(*RUN, "--seeds", "0")
        assert refused.code == 1 and re.search(f"{what}.* changed while the suite was running", refused.err)
        assert not Store(folder / "results").list()
        lab(folder)


def gone(folder: Path) -> None:
    """Draw the user's files away, all but the suite."""
    for name in ("mylab.py", "mynets.py", "widths.py", "split.json", "foo.py", "data/mine.npz"):
        (folder / name).unlink(missing_ok=True)


def test_a_report_needs_none_of_the_files(cli, folder: Path) -> None:
    lab(folder)
    method_file(folder / "foo.py")
    text = (folder / "own.toml").read_text()
    row = '[[row]]\nid = "foo"\ntitle = "Foo"\nmethod = "foo.py:Foo"\nstages = ["global"]\nhyper = { lr = 0.2 }\n'
    (folder / "own.toml").write_text(text + row)
    assert cli(*RUN).code == 0
    table, lines = cli("report", "-s", "own.toml").out, cli(*CSV).out
    gone(folder)
    assert cli("report", "-s", "own.toml").out == table
    assert cli(*CSV).out == lines
    assert cli("status", "-s", "own.toml").out == "own.toml [paper]: 4 done, 0 failed, 0 missing\n"
    assert cli("explain", "own.toml", "foo", "own").code == 0
    assert cli("scores", "-s", "own.toml").out.count("mylab.py:Npz") == 16  # clients of two runs of two rows
    refused = cli(*RUN)
    assert refused.code == 2 and "There is no file" in refused.err


def test_without_the_files_the_newest_version_is_shown(cli, folder: Path) -> None:
    lab(folder)
    assert cli(*RUN).code == 0
    EDITS["network"](folder)
    assert cli(*RUN, "--seeds", "0").code == 0
    here = cli(*CSV).out
    gone(folder)
    assert cli(*CSV).out == here and [line[:2] for line in shown(cli)] == [("FedAvg", "1")]


def test_the_footer_names_the_data_by_content(cli, folder: Path) -> None:
    lab(folder)
    text = (folder / "mylab.py").read_text()
    (folder / "mylab.py").write_text(text.replace("content_hash(x, y))", '"whatever")'))
    assert cli(*RUN, "--seeds", "0").code == 0
    (run,) = Store(folder / "results").list()
    assert run.provenance["data_hash"] == "whatever" and run.spec.dataset.content
    assert f"Data: {run.spec.dataset.content[:12]}" in cli("report", "-s", "own.toml").out


def test_missing_data_is_told_as_for_other_datasets(cli, folder: Path) -> None:
    lab(folder)
    assert cli(*RUN).code == 0
    (folder / "data/mine.npz").unlink()
    assert [line[:2] for line in shown(cli)] == [("FedAvg", "2")]
    plan = cli("plan", "-s", "own.toml")
    assert plan.code == 0
    refused = cli(*RUN)
    assert refused.code == 1 and "The dataset 'mylab.py:Npz' is not there" in refused.err


def test_a_missing_file_is_told_before_anything_is_trained(cli, folder: Path) -> None:
    lab(folder)
    (folder / "split.json").unlink()
    said = "The partition 'mylab.py:Given' lacks what it reads, so its columns are left out."
    refused = cli(*RUN)
    assert refused.code == 1 and said in " ".join(refused.err.split()) and "Running on" not in refused.out
    assert not Store(folder / "results").list()
    plan = cli("plan", "-s", "own.toml")
    assert plan.code == 0 and " ".join(plan.out.split()).count(said) == 1
    lab(folder)
    text = (folder / "mylab.py").read_text()
    (folder / "mylab.py").write_text(text.replace('[root / "mine.npz"]', '[root / "mine.npz", root / "more.npz"]'))
    refused = cli(*RUN)
    assert refused.code == 1 and "The dataset 'mylab.py:Npz' lacks what it reads" in " ".join(refused.err.split())


def test_every_verb_takes_them(cli, folder: Path) -> None:
    lab(folder)
    tried = cli("tune", "-s", "own.toml", "-m", "fedavg", "--column", "own", "--grid", "lr=0.1,0.01")
    assert tried.code == 0, tried.err
    assert cli(*RUN, "--dry-run").out.count("own · fedavg") == 2
    assert cli(*RUN, "--seeds", "0").code == 0
    assert "2 runs to do" not in cli("plan", "-s", "own.toml").out
    assert cli("pack", "-s", "own.toml").code == 0
    assert cli("status", "-s", "own.toml").out == "own.toml [paper]: 1 done, 0 failed, 1 missing\n"
    explained = cli("explain", "own.toml", "fedavg", "own")
    assert explained.code == 0 and "4 clients: 4 train." in explained.out


@pytest.mark.slow
def test_a_module_elsewhere_on_the_import_path_makes_new_runs(folder: Path) -> None:
    lab(folder)
    (folder / "lib").mkdir()
    (folder / "widths.py").rename(folder / "lib/widths.py")
    path = os.pathsep.join(filter(None, [str(folder / "lib"), os.environ.get("PYTHONPATH")]))
    for width, how, done in ((4, "--jobs=1", 0), (5, "--jobs=2", 0), (5, "--dry-run", 2)):
        (folder / "lib/widths.py").write_text(f"WIDTH = {width}\n")
        program = start(*RUN, how, "--data-dir", "data", cwd=folder, PYTHONPATH=path)
        out, err = program.communicate(timeout=300)
        assert program.returncode == 0 and f"2 runs: {done} done" in out, err
    runs = Store(folder / "results").list()
    assert {run.provenance["model_neighbors"]["widths.py"] for run in runs} == {"WIDTH = 4\n", "WIDTH = 5\n"}
    assert len(runs) == 4 and len({run.spec.model_version for run in runs}) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def net(text, more):\n    return text.lower()\n", "makes no network of (1, 4, 4) images"),
        (
            "def net(text):\n    return text\n",
            "takes 1 positional argument but 2 were given (",
        ),
        ("from torch import nn\nnet = nn.Linear(16, 2)\n", "Write `def net(shape, classes)`"),
        ("", "is a module of Python itself"),
    ],
)
def test_what_makes_no_network_is_refused_before_a_dry_run_says_what_would_run(
    cli, folder: Path, source: str, said: str
) -> None:
    lab(folder)
    (folder / "mynets.py").write_text(source)
    if "Python" in said:
        (folder / "own.toml").write_text((folder / "own.toml").read_text().replace("mynets.py:net", "json:loads"))
    for options in ((), ("--dry-run",)):
        refused = cli(*RUN, *options)
        assert refused.code == 2 and said in refused.err and "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mynets.py:net", "mynets.py:nett", "Did you mean 'net'"),
        ("mynets.py:net", "nowhere.py:net", "There is no file"),
        ("mylab.py:Npz", "mylab.py:Nzp", "Did you mean 'Npz'?"),
        ("mylab.py:Given", "nolab:Given", "Cannot find the module 'nolab'"),
    ],
)
def test_a_wrong_reference_is_named(cli, folder: Path, old: str, new: str, said: str) -> None:
    lab(folder)
    (folder / "own.toml").write_text((folder / "own.toml").read_text().replace(old, new))
    for verb in ("run", "plan"):
        refused = cli(verb, "-s", "own.toml")
        assert refused.code == 2 and said in refused.err


@pytest.mark.parametrize(
    ("file", "broken", "said"),
    [
        ("mylab.py", "class Npz:\n    pass\n", "Npz is not a dataclass: write @dataclass"),
        ("mynets.py", "import sys\ndef net(shape, classes):\n    pass\nsys.exit(4)\n", "SystemExit: 4"),
        (
            "mylab.py",
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Npz:\n    pass\n@dataclass(frozen=True)\nclass Given(Npz):\n    pass\n",
            "mylab.py:Npz is no dataset: its class has no shape, classes, load, status.",
        ),
    ],
)
def test_code_that_is_no_such_thing_or_ends_the_process_is_refused(
    cli, folder: Path, file: str, broken: str, said: str
) -> None:
    lab(folder)
    (folder / file).write_text(broken)
    refused = cli("run", "-s", "own.toml")
    assert refused.code == 2 and said in refused.err and "bug in pflbench" not in refused.err


OWN_FORWARD = """
    made = ConvNet((WIDTH,), kernel=3, padding=1, flat=4 * WIDTH, hidden=(8,), before=(2, 1), after=(1,)).network(
        shape, classes
    )

    def forward(ops, p, x, gate):
        h = made.forward(ops, p, x, gate)
        BODY

    from dataclasses import replace

    return replace(made, forward=forward)
"""


def line_of(file: Path, part: str) -> str:
    (number,) = [i for i, line in enumerate(file.read_text().splitlines(), 1) if part in line]
    return f"{file.name}, line {number})"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("raise KeyError('heart')", 2, "KeyError: 'heart' ("),
        ("return h @ h", 2, "mat1 and mat2 shapes cannot be multiplied (3x2 and 3x2) ("),
        ("return h[:, :1]", 2, "must return logits [rows, classes], for three images (3, 2), not (3, 1)."),
        # Only a minibatch has four rows: nothing shows before it trains.
        ("return h if x.shape[-4] < 4 else h + torch.rand(3)", 1, "NameError: name 'torch' is not defined ("),
    ],
)
def test_an_error_in_a_network_is_the_networks(cli, folder: Path, body: str, code: int, said: str) -> None:
    lab(folder)
    text = (folder / "mynets.py").read_text()
    (folder / "mynets.py").write_text(text[: text.index("    return ConvNet(")] + OWN_FORWARD.replace("BODY", body))
    refused = cli(*RUN, "--seeds", "0")
    assert refused.code == code and said in refused.err and "fedavg.py" not in refused.err
    if said.endswith("("):
        assert line_of(folder / "mynets.py", body) in refused.err and "round.noise" not in refused.err


OWN_MODULE = """
from torch import nn


class net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.dense = nn.Linear(shape[0] * shape[1] * shape[2], 5)
        self.fc = nn.Linear(5, classes)

    def forward(self, x):
        h = self.dense(x.flatten(1)).relu()
        RETURN
"""


@pytest.mark.parametrize(("end", "warned"), [("self.fc(h).softmax(1)", True), ("self.fc(h).log_softmax(1)", False)])
def test_a_network_that_ends_in_a_softmax_is_warned_of_once(cli, folder: Path, end: str, warned: bool) -> None:
    lab(folder)
    (folder / "mynets.py").write_text(OWN_MODULE.replace("RETURN", f"return {end}"))
    done = cli(*RUN)
    assert done.code == 0, done.err
    assert done.err.count("mynets.py:net returns probabilities") == warned


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("return self.fc(h)", 0, ""),
        ("return self.fc(x)", 2, "mat1 and mat2 shapes cannot be multiplied (12x4 and 5x2) ("),
        ("return self.fc(h)[:1]", 2, "must return logits [rows, classes], for three images (3, 2), not (1, 2)."),
        ("return self.fc(h - h.mean(0))", 2, "mixes the rows of a batch, other than by batch normalization."),
        # Scoring has other numbers of rows than training and the checks.
        ("return self.fc(h if len(h) < 5 else self.dense(h))", 1, "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_a_module_trains_and_its_errors_are_its_own(cli, folder: Path, end: str, code: int, said: str) -> None:
    lab(folder)
    (folder / "mynets.py").write_text(OWN_MODULE.replace("RETURN", end))
    ran = cli(*RUN, "--seeds", "0")
    assert ran.code == code and said in ran.err
    if "shapes" in said:
        assert line_of(folder / "mynets.py", end) in ran.err


@pytest.mark.parametrize("declared", [True, False], ids=["files", "no files"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "with np.load(",
            "with np.zeros(3).reshape(2, 2), np.load(",
            "cannot reshape array of size 3 into shape (2,2) (",
        ),
        ("return Source(", "Source(", "load() of the dataset mylab.py:Npz must return a pflbench.data.source.Source"),
        (", y, None", ", y.astype(float), None", "must return labels and kind as int64 numpy arrays"),
        (", y, None", ", y[:7], None", "of shape (40,)"),
        (", y, None", ", y + 5, None", "labels from 0 to 1."),
        ("torch.from_numpy(x)", "x", "must return images as a uint8 tensor"),
        ("torch.from_numpy(x)", "torch.from_numpy(x)[:, :, :3]", "must return images as a uint8 tensor"),
        ("return [np.array(", "[np.array(", "The partition must return a list of one int64 array of row numbers"),
        ("np.array(rows)", "rows", "per client, not a list of list."),
        ("given = json", "given = None + json", "unsupported operand type(s) for +: 'NoneType' and 'list' ("),
    ],
)
def test_an_error_in_data_or_partition_is_theirs(
    cli, folder: Path, declared: bool, old: str, new: str, said: str
) -> None:
    lab(folder, declared=declared)
    text = (folder / "mylab.py").read_text()
    assert old in text
    (folder / "mylab.py").write_text(text.replace(old, new, 1))
    refused = cli(*RUN, "--seeds", "0")
    assert refused.code == 1 and said in refused.err and "pflbench/" not in refused.err
    if said.endswith("("):
        assert "mylab.py, line" in refused.err
    assert not Store(folder / "results").list()


def test_a_methods_neighbor_makes_another_version(cli, folder: Path) -> None:
    method_file(folder / "foo.py", ("lr: float = 0.05", "lr: float = RATE"))
    (folder / "foo.py").write_text("from rates import RATE\n" + (folder / "foo.py").read_text())
    (folder / "rates.py").write_text("RATE = 0.05\n")
    short = ("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0", "-m", "foo.py:Foo")
    assert cli(*short).code == 0
    (folder / "rates.py").write_text("RATE = 0.06\n")
    assert "1 run finished" in cli(*short).out
    runs = Store(folder / "results").list()
    assert {run.spec.method.hyper["lr"] for run in runs} == {0.05, 0.06}
    table = cli("report", "-s", "tiny.toml", "--seeds", "0").out
    now = names.code("foo.py:Foo").version
    (before,) = {run.spec.method.version for run in runs} - {now}
    assert f"foo.py:Foo is shown in its newest version ({now}). Not shown: 1 run of version {before} (" in table
    assert "Foo@" not in table


def seeded(folder: Path) -> None:
    """Let the partition deal other rows for each seed."""
    lab(folder, declared=False)
    text = (folder / "mylab.py").read_text()
    dealt = "return [np.array(rows) for rows in given]"
    assert dealt in text
    by_seed = "return list(np.roll(np.array(given).ravel(), seed).reshape(4, 10))"
    (folder / "mylab.py").write_text(text.replace(dealt, by_seed))


def test_what_is_dealt_anew_for_each_seed_is_no_other_version(cli, folder: Path) -> None:
    seeded(folder)
    assert cli(*RUN, "--seeds", "0-2").code == 0
    assert len({run.spec.partition.content for run in Store(folder / "results").list()}) == 3
    here = cli("report", "-s", "own.toml").out
    assert "another version" not in here and "MIXED" not in here
    assert "Not shown: 1 stored run(s) of fedavg with other seeds than the table's (2)." in here
    assert [line[:2] for line in shown(cli)] == [("FedAvg", "2")]
    gone(folder)
    assert cli("report", "-s", "own.toml").out == here


def test_without_the_files_seeds_of_two_versions_are_never_averaged_silently(cli, folder: Path) -> None:
    seeded(folder)
    text = (folder / "mylab.py").read_text()
    (folder / "mylab.py").write_text(text.replace("content_hash(x, y))", '"whatever")'))
    assert cli(*RUN, "--seeds", "0").code == 0
    EDITS["arrays"](folder)
    assert cli(*RUN, "--seeds", "1-2").code == 0
    gone(folder)
    table = " ".join(cli("report", "-s", "own.toml", "--seeds", "0-2").out.split())
    assert re.search(
        r"† MIXED VERSIONS of what is read by mylab\.py:Npz in Own: \w{12} in FedAvg \(seeds 0\); \w{12} in FedAvg "
        r"\(seeds 1, 2\)\. These cells cannot be compared\.",
        table,
    )
    assert " † " in table.split("Paper:")[0] and "Given in Own" not in table


MINE = """
    from dataclasses import dataclass

    from pflbench.methods.BASE import CLASS


    @dataclass(frozen=True)
    class Mine(CLASS):
        '''A method by another name.'''
    """
ROW = '[[row]]\nid = "mine"\nmethod = "mine.py:Mine"\nhyper = { HYPER }\n'


def mine(folder: Path, module: str, name: str) -> None:
    (folder / "mine.py").write_text(dedent(MINE.replace("BASE", module).replace("CLASS", name)))


def lines(cli, suite: str) -> list[tuple[str, str]]:
    """Done runs and stage of every line of a table."""
    said = cli("report", "-s", suite, "--format", "csv")
    return [(line["n"], line["stage"]) for line in csv.DictReader(said.out.splitlines())]


def test_suites_that_show_other_stages_of_a_method_keep_their_tables(cli, folder: Path) -> None:
    lab(folder)
    mine(folder, "ditto", "Ditto")
    head, _ = (folder / "own.toml").read_text().split("[[row]]")
    row = ROW.replace("HYPER", "lr = 0.1, lam = 1.0, steps = 1")
    tables = {"a": 'stages = ["personalized"]\n', "b": 'stages = ["global"]\n', "c": ""}
    for name, stages in tables.items():
        (folder / f"{name}.toml").write_text(head.replace('"own"', f'"{name}"', 1) + row + stages)
        ran = cli("run", "-s", f"{name}.toml")
        assert ran.code == 0, ran.err
    for name, stage in (("a", "personalized"), ("b", "global"), ("c", "personalized")):
        assert lines(cli, f"{name}.toml") == [("2", stage)]


def test_a_method_that_has_lost_a_stage_keeps_its_table(cli, folder: Path) -> None:
    lab(folder)
    head, _ = (folder / "own.toml").read_text().split("[[row]]")
    (folder / "own.toml").write_text(head + ROW.replace("HYPER", "lr = 0.1"))
    for module, name, stage in (("fedrep", "FedRep", "personalized"), ("fedavg", "FedAvg", "global")):
        mine(folder, module, name)
        ran = cli(*RUN)
        assert ran.code == 0, ran.err
        assert lines(cli, "own.toml") == [("2", stage)]
