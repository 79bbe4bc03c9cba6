"""Whatever is wrong with a request: one message with the near match, exit code 2, no traceback."""

from pathlib import Path

import pytest

RUN = ("run", "-s", "tiny.toml")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run",), ("Which suite?", "pflbench ls suites")),
        (("run", "-s", "cafeme-tabel1"), ("'cafeme-tabel1'", "Did you mean 'cafeme-table1'")),
        (("run", "-s", "elsewhere.toml"), ("Unknown suite file 'elsewhere.toml'",)),
        ((*RUN, "-m", "fedavgg"), ("method 'fedavgg'", "'fedavg'")),
        ((*RUN, "-m", "foo.py"), ("Which class of 'foo.py'? Write foo.py:Class.",)),
        ((*RUN, "-d", "digitss"), ("dataset 'digitss'", "'digits'")),
        ((*RUN, "--partition", "shard"), ("partition 'shard'", "'shards'")),
        ((*RUN, "--column", "shard"), ("column 'shard'", "'shards'")),
        ((*RUN, "--clients", "91"), ("number of clients '91'", "60, 90")),
        ((*RUN, "--column", "shards", "--clients", "60"), ("No column has all of what",)),
        ((*RUN, "--profile", "smoek"), ("profile 'smoek'", "'smoke'")),
        ((*RUN, "--seeds", "4-0"), ("'4-0' is a reversed range of seeds: write 0-4.",)),
        ((*RUN, "--set", "fedavg.lrr=1"), ("'lrr'", "'lr'")),
        ((*RUN, "--set", "fedavgg.lr=1"), ("'fedavgg'", "'fedavg'")),
        ((*RUN, "--set", "fedavg.lr=fast"), ("fedavg.lr must be float, not 'fast'",)),
        ((*RUN, "--set", "nonsense"), ("Write method.key=value",)),
        ((*RUN, "--precision", "fp16"), ("Unknown precision 'fp16'; known: fp32, fp64",)),
        ((*RUN, "--precision", "tf32", "--device", "cpu"), ("--precision tf32 needs a GPU; on a CPU there are fp32",)),
        ((*RUN, "--memory-limit", "0GB"), ("'0GB' is not an amount of memory; write 4GB",)),
        ((*RUN, "--redo", "miss"), ("Unknown --redo 'miss'", "missing")),
        ((*RUN, "--device", "tpu"), ("device 'tpu'",)),
        ((*RUN, "--device", "cuda:99"), ("There is no device 'cuda:99'",)),
        ((*RUN, "--rounds", "0"), ("--rounds", "greater than or equal to 1")),
        ((*RUN, "--rounds", "ten"), ("--rounds", "valid integer")),
        ((*RUN, "--seedz", "1"), ("--seedz", "--seeds")),
        (("run", "tiny"), ("Unknown suite 'tiny'",)),
        (("tune", "tiny.toml", "-s", "partly.toml"), ("one is tuned at a time",)),
        ((*RUN, "--profile", "quick"), ("Known: paper, smoke. Without --profile, tiny runs whole",)),
        ((*RUN, "--seeds", ""), ("'' is not a list of seeds: write 0-4 or 0,2,5, or leave it out",)),
        ((*RUN, "--set", "fedavg.lr=inf"), ("fedavg.lr must be a finite number, not inf",)),
        ((*RUN, "--set", "fedavg.learning_rate=1"), ("'learning_rate'. Did you mean 'lr'?",)),
        ((*RUN, "-m", "fedavg", "--set", "ditto.lr=1"), ("Unknown selected method 'ditto'",)),
        ((*RUN, "--set", "cafeme.lr=1"), ("Unknown selected method 'cafeme'",)),
        (("check", "foo.py"), ("Which class of 'foo.py'? Write foo.py:Class.",)),
        (("runn",), ("'runn'", "'run'")),
        (("plan", "-s", "tiny.toml", "-m", "fedavgg"), ("method 'fedavgg'", "'fedavg'")),
        (("report", "--format", "cvs"), ("'cvs'", "'csv'")),
        (("data", "show", "tiny.toml"), ("'column'",)),
        (("explain", "tiny.toml", "fedavg"), ("'column'",)),
        (("report",), ("No results of any suite in 'results'", "pflbench run")),
        (("report", "-s", "tiny.toml"), ("No results of tiny.toml in 'results'", "pflbench run --suite tiny.toml")),
        (("status", "-s", "tiny"), ("Unknown suite 'tiny'",)),
        (("ls", "method"), ("'method'", "'methods'")),
        (("show", "abc"), ("No run starts with 'abc' in 'results'",)),
        (("check", "fedavgg"), ("method 'fedavgg'", "'fedavg'")),
        (("data", "status", "mnsit"), ("dataset 'mnsit'", "'mnist'")),
        (("data", "fetch", "mnsit"), ("dataset 'mnsit'", "'mnist'")),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_one_message(cli, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("epochs = 1", "epocs = 1", "'epochs'"),
        ('name = "digits"', 'name = "digit"', "'digits'"),
        ('name = "digits"', 'name = "digits", sise = 28', "'size'"),
        ('model = "cnn2"', 'model = "cnn4"', "cnn2"),
        ("batch = 10", "bacth = 10", "batch"),
        ("[layout", "[layout", ""),
    ],
)
def test_a_mistake_in_a_suite_names_file_and_key(cli, old: str, new: str, part: str) -> None:
    toml = Path("tiny.toml")
    toml.write_text(toml.read_text().replace(old, new, 1) + ("" if old != new else "\n[layout"))
    result = cli("run", "-s", "tiny.toml", "--dry-run")
    assert result.code == 2
    assert result.err.startswith("Error: tiny.toml") and part in result.err


def test_what_cannot_be_built_is_said_before_anything_is_trained(cli, no_training) -> None:
    toml = Path("tiny.toml")
    toml.write_text(toml.read_text().replace('name = "digits"', 'name = "digits", size = 20'))
    result = cli("run", "-s", "tiny.toml")
    assert result.code == 2
    assert "cnn2" in result.err and len(result.err.splitlines()) == 1


def test_no_verb_of_a_group_is_answered_with_the_help(cli) -> None:
    result = cli("data")
    assert result.code == 2 and "Usage: pflbench data" in result.err


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("t.tex", "% Needs"),
        ("t.md", "### "),
        ("t.CSV", "suite,profile"),
        ("t.html", "<!DOCTYPE html>"),
        ("t.txt", "Tiny"),
    ],
)
def test_the_suffix_of_the_file_is_the_format_of_a_report(cli, results: Path, file: str, begins: str) -> None:
    assert cli("report", "-s", "tiny.toml", "--profile", "paper", "-o", file).code == 0
    assert Path(file).read_text().startswith(begins)


def test_the_suffix_of_the_file_is_the_format_of_claims_and_compare(cli, results: Path) -> None:
    assert cli("claims", "fedec", "-o", "claims.csv").code == 0
    assert Path("claims.csv").read_text().startswith("paper,claim,")
    assert cli("compare", "results", "results", "-s", "tiny.toml", "-o", "both.csv").code == 0
    assert Path("both.csv").read_text().startswith("suite,profile,")


@pytest.mark.parametrize(
    ("verb", "named"),
    [
        (("report", "-o", "t.xlsx"), ("'xlsx'", "latex")),
        (("claims", "-o", "t.tex"), ("'latex'", "csv")),
        (("scores", "-o", "t.xlsx"), ("csv", "parquet")),
    ],
)
def test_an_unknown_suffix_and_one_of_another_verb_are_refused(
    cli, results: Path, verb: tuple[str, ...], named: tuple[str, ...]
) -> None:
    done = cli(*verb)
    assert done.code == 2 and all(word in done.err for word in named)
    assert not any(path.name.startswith("t.") for path in Path().iterdir())


def test_a_rival_of_several_tables_is_a_row_of_one_of_them(cli, results: Path, folder: Path) -> None:
    other = (folder / "tiny.toml").read_text().replace('name = "tiny"', 'name = "other"')
    (folder / "other.toml").write_text(other.replace('id = "fedavg-ft"', 'id = "tuned"'))
    both = ("report", "-s", "tiny.toml", "-s", "other.toml", "--profile", "paper", "--format", "markdown")
    shown = cli(*both, "--versus", "fedavg-ft")
    assert shown.code == 0 and shown.out.count("Against FedAvg-FT") == 1
    nobody = cli(*both, "--versus", "fedavgg-ft")
    assert nobody.code == 2 and "'fedavg-ft'" in nobody.err


def test_a_named_format_goes_before_the_suffix(cli, results: Path) -> None:
    for file in ("/dev/stdout", "t.txt"):
        assert cli("report", "-s", "tiny.toml", "--format", "csv", "-o", file).code == 0
    assert Path("t.txt").read_text().startswith("suite,profile")


@pytest.mark.parametrize("verb", ["run", "plan", "report", "status", "tune"])
def test_a_suite_needs_no_option(cli, results: Path, verb: str) -> None:
    trials = ["-m", "fedavg", "--column", "shards", "--grid", "lr=0.1", "--dry-run"]
    more = {"run": ["--dry-run"], "tune": trials}
    bare, named = (cli(verb, *how, *more.get(verb, [])) for how in (("tiny.toml",), ("-s", "tiny.toml")))
    assert named.code == 0 and bare == named
