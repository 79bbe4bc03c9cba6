"""A user's own method file: good, edited, and broken in every way."""

import csv
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cli_kit import method_file, stored

from pflbench.store import Store
from pflbench.testing import CHECKS

SHORT = ("run", "-s", "tiny.toml", "--column", "shards", "--seeds", "0")


def test_an_edited_method_runs_again_beside_the_old_result(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    assert cli(*SHORT, "-m", method).code == 0
    before = stored(folder / "results")
    assert cli(*SHORT, "-m", method).out.startswith("1 run: 1 done, 0 failed before, 0 to do.\n")

    method_file(folder / "foo.py", ("server, batches), state", "0.5 * server, batches), state"))
    again = cli(*SHORT, "-m", "foo.py:Foo")  # a relative path is the same method
    assert again.code == 0 and "1 run finished" in again.out
    after = stored(folder / "results")
    assert len(after) == 2 and before.items() <= after.items()

    (old,) = [run.spec.method.version for run in Store(folder / "results").list() if run.spec.id in str(before)]
    text = cli("report", "-s", "tiny.toml", "--seeds", "0").out
    today = datetime.now(timezone.utc).date()
    assert f"{old} ({today})" in " ".join(text.split()), "the other version is counted, with its date"
    lines = text.splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("(not in the suite)"))
    assert lines[heading - 1].startswith("──")
    assert lines[heading + 1].split()[0] == "Foo", "the file's present version alone"


def test_an_own_row_is_compared_on_the_tables_seeds(cli, folder: Path) -> None:
    (folder / "one.toml").write_text((folder / "tiny.toml").read_text().replace("seeds = [0, 1]", "seeds = [0]"))
    both = ("-m", "fedavg", "-m", method_file(folder / "foo.py"))
    assert cli("run", "-s", "one.toml", "--column", "shards", "--seeds", "0-2", *both).code == 0
    asked = ("report", "-s", "one.toml", "--profile", "paper", "--column", "shards")
    for more, seeds in (((), "0"), (("--seeds", "0-2"), "0 1 2"), (("--seeds", "2"), "2")):
        lines = csv.DictReader(cli(*asked, *more, "--format", "csv").out.splitlines())
        found = {line["row"]: (line["seeds"], line["n"], line["expected"]) for line in lines}
        assert found.keys() == {"FedAvg", "FedAvg-FT", "Foo", "Foo (global)"}
        assert set(found.values()) == {(seeds, str(len(seeds.split())), str(len(seeds.split())))}
    table = cli(*asked).out
    assert "Not shown: 4 stored run(s) of Foo, fedavg with other seeds than the table's (1, 2)." in table
    assert "±" not in table


def test_a_methods_own_options(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    assert cli(*SHORT, "-m", method, "--set", "Foo.lr=0.5").code == 0
    (run,) = Store(folder / "results").list()
    assert (run.spec.method.name, run.spec.method.hyper) == ("foo.py:Foo", {"lr": 0.5})
    wrong = cli(*SHORT, "-m", method, "--set", "Foo.lrr=0.5")
    assert wrong.code == 2 and "Did you mean 'lr'?" in wrong.err


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("import Draw, Method", "import Draw, Metod", "cannot import name 'Metod'"),
        ("@dataclass(frozen=True)", "1 / 0\n@dataclass(frozen=True)", "(line 8)"),
        ("class Foo(Method)", "class Fooo(Method)", "Did you mean 'Fooo'?"),
        ("class Foo(Method):", "class Foo(Method)", "line 9"),
        ("class Foo(Method):", "class Foo:", "is not a pflbench method"),
        ("lr: float = 0.05", "lr: float", "needs a value for lr"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_a_file_that_makes_no_method(cli, folder: Path, old: str, new: str, part: str) -> None:
    reference = method_file(folder / "foo.py", (old, new))
    result = cli(*SHORT, "-m", reference)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: ") and "foo.py" in line and part in line
    assert not Store(folder / "results").list()


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("(batches,) = taken", "raise ValueError('what now')", "ValueError: what now"),
        ("(batches,) = taken", "open('/nowhere/at/all')", "FileNotFoundError: "),
        ("(batches,) = taken", "raise SystemExit(3)", "SystemExit: 3"),
        ("server, batches), state", "server[:-1], batches), state", "foo.py, line 19"),
        ("server, batches), state", "server, batches)[:3], state", "the upload of client()"),
        ("server, batches), state", "server, batches)", "Foo.client()"),
    ],
)
def test_a_method_that_fails_in_a_run(cli, folder: Path, old: str, new: str, part: str) -> None:
    method = method_file(folder / "foo.py", (old, new))
    result = cli(*SHORT, "-m", method, "-m", "ditto", "--rounds", "1")
    assert result.code == 1
    *_, line = result.err.splitlines()  # behind a warning that an error is tried once more
    assert line.startswith("Error: shards · foo.py:Foo · seed 0 · 1 round: ")
    assert part in line.split("round: ")[1]
    failures = {run.spec.method.name: run.failure for run in Store(folder / "results").list()}
    assert failures.pop("ditto") is None and all(part in str(failure) for failure in failures.values())


INPLACE = ("return steps(", "server -= self.lr * f.grad(server, batches[0]); return steps(")


@pytest.mark.usefixtures("checked", "no_training")
def test_a_method_that_breaks_the_contract_is_refused_before_anything_is_trained(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py", INPLACE)
    for verb in (SHORT, ("tune", *SHORT[1:-2], "--grid", "lr=0.1")):
        result = cli(*verb, "-m", method)
        assert result.code == 2
        (line,) = result.err.splitlines()
        assert "client() changes its argument `server` in place; return new values instead" in line
        assert "pflbench check" in line and "--unchecked" in line and "vmap" not in line
    assert not Store(folder / "results").list()


@pytest.mark.usefixtures("checked")
def test_unchecked_trains_it_nevertheless_and_every_report_says_so(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py", INPLACE)
    assert cli(*SHORT, "-m", method, "-m", "ditto", "--unchecked").code == 0
    runs = {run.spec.method.name: run for run in Store(folder / "results").list()}
    assert runs["foo.py:Foo"].provenance["unchecked"] is True and "unchecked" not in runs["ditto"].provenance
    for form in ("terminal", "markdown", "csv"):
        assert "Foo (unchecked)" in cli("report", "-s", "tiny.toml", "--seeds", "0", "--format", form).out
    assert "not held against the contract of methods: Foo" in cli("report", "-s", "tiny.toml", "--seeds", "0").out


@pytest.mark.usefixtures("checked")
def test_a_method_that_keeps_the_contract_is_checked_and_has_the_same_id_unchecked(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py")
    first = cli(*SHORT, "-m", method)
    assert first.code == 0 and "Checking foo.py:Foo against the contract of methods.\n" in first.out
    assert cli(*SHORT, "-m", method, "--unchecked").out.startswith("1 run: 1 done, 0 failed before, 0 to do.\n")


def test_debug_shows_where_a_method_raised(cli, folder: Path) -> None:
    method = method_file(folder / "foo.py", ("(batches,) = taken", "raise ValueError('what now')"))
    result = cli(*SHORT, "-m", method, "--debug")
    assert result.code == 1 and "Traceback" in result.err and "raise ValueError('what now')" in result.err


def test_a_method_that_warns_is_heard_once(cli, folder: Path) -> None:
    method = method_file(
        folder / "foo.py", ("(batches,) = taken", "(batches,) = taken; import warnings; warnings.warn('careful')")
    )
    result = cli(*SHORT, "-m", method)
    assert (result.code, result.err) == (0, "Warning: careful\n")


def test_check_passes_a_good_method_and_fails_a_bad_one(cli, folder: Path) -> None:
    good = cli("check", "fedavg")
    assert good.code == 0 and "FAIL" not in good.out and len(good.out.splitlines()) == len(CHECKS) + 1
    bad = cli("check", method_file(folder / "foo.py", ("server, batches), state", "server, batches)[:3], state")))
    assert bad.code == 1 and "FAIL" in bad.out and bad.out.splitlines()[-1].startswith("1 of the checks failed.")


def test_check_takes_a_network(cli, folder: Path) -> None:
    (folder / "nets.py").write_text(
        "from torch import nn\n\ndef net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))\n"
    )
    good = cli("check", "fedavg", "--model", "nets.py:net")
    assert good.code == 0 and len(good.out.splitlines()) == len(CHECKS) + 1
    for method, model, said in (
        ("fo-maml", "nets.py:net", "FOMaml"),
        ("fedavg", "nets.py:none", "none"),
        ("fedavg", "nett", "nett"),
    ):
        result = cli("check", method, "--model", model)
        assert result.code == 2 and said in result.err and len(result.err.splitlines()) == 1


def test_check_of_what_is_no_method(cli, folder: Path) -> None:
    for change in (("class Foo(Method):", "class Foo:"), ("lr: float = 0.05", "lr: float")):
        result = cli("check", method_file(folder / "foo.py", change))
        assert result.code == 2 and "foo.py" in result.err and len(result.err.splitlines()) == 1


def test_the_source_of_a_users_method_is_stored_with_its_runs(cli, folder: Path) -> None:
    source = Path(method_file(folder / "foo.py").rpartition(":")[0]).read_text()
    assert cli(*SHORT, "-m", "foo.py:Foo").code == 0
    (run,) = Store(folder / "results").list()
    assert run.provenance["method_source"] == source
