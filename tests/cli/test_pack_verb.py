"""`pflbench pack`: what it packs, and that no other verb notices."""

from pathlib import Path

import pytest
from cli_kit import stored

from pflbench.store import Store

LOOKS = (
    ("report", "-s", "tiny.toml", "--format", "csv"),
    ("report", "-s", "tiny.toml"),
    ("status", "-s", "tiny.toml"),
    ("plan", "-s", "tiny.toml", "--seeds", "0-3"),
    ("run", "-s", "tiny.toml"),
)


@pytest.mark.usefixtures("no_training")
def test_no_verb_notices(cli, results: Path) -> None:
    ids = [run.spec.id for run in Store(results).list()]
    looks = (*LOOKS, *(("show", id) for id in ids))
    cli("run", "-s", "tiny.toml")  # notes who asks for the runs
    before = [cli(*look) for look in looks]
    packed = cli("pack")
    assert (packed.code, packed.err) == (0, "")
    assert sorted(line.split(" holds ")[1] for line in packed.out.splitlines()) == ["4 runs, 4 of them new."] * 2
    assert not stored(results) and len(list((results / "packs").iterdir())) == 2
    assert [cli(*look) for look in looks] == before
    assert cli("pack") == (0, "Nothing to pack in 'results'.\n", "")
    assert cli("pack", "-r", "elsewhere") == (0, "Nothing to pack in 'elsewhere'.\n", "")


@pytest.mark.usefixtures("no_training")
def test_some_runs(cli, results: Path) -> None:
    by_setting = sorted(Store(results).list(), key=lambda run: (run.spec.setting(), run.spec.id))
    first, second, *_, other = [run.spec.id for run in by_setting]
    assert cli("pack", first[:10], second).out.endswith(" holds 2 runs, 2 of them new.\n")
    assert len(stored(results)) == 6
    out = cli("pack", first, other).out
    assert out.endswith(" holds 1 run, 1 of them new.\n") and out.count("\n") == 1
    more = cli("pack").out
    assert "holds 4 runs, 2 of them new." in more and "holds 4 runs, 3 of them new." in more


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("-s", "tiny.toml"), 0),
        (("-s", "tiny.toml", "--column", "shards"), 4),
        (("-s", "tiny.toml", "--profile", "smoke"), 4),  # fewer seeds
    ],
)
def test_a_suites_runs(cli, results: Path, options: tuple[str, ...], left: int) -> None:
    result = cli("pack", *options)
    assert (result.code, result.err) == (0, "")
    assert len(stored(results)) == left


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("pack", "0x"), "No run starts with '0x' in 'results'; `pflbench ls runs` lists"),
        (("pack", "abc", "-s", "tiny.toml"), "not both"),
        (("pack", "-s", "tiny.toml", "--profile", "smoek"), "Did you mean 'smoke'?"),
    ],
)
def test_a_wrong_request(cli, results: Path, arguments: tuple[str, ...], part: str) -> None:
    result = cli(*arguments)
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1
    assert len(stored(results)) == 8


def test_redo_always_goes_before_the_packed_run(cli, results: Path) -> None:
    cli("pack")
    short = ("-s", "tiny.toml", "--column", "shards", "-m", "fedavg", "--seeds", "0")
    result = cli("run", *short, "--redo", "always")
    assert result.code == 0 and "1 done, 0 failed before, 1 to do" in result.out
    (name,) = stored(results)
    id = name.removesuffix(".parquet")
    assert '"torch"' in cli("show", id).out  # made by a real run, not made up
    assert "holds 4 runs, 1 of them new." in cli("pack").out
    assert '"torch"' in cli("show", id).out and not stored(results)


def test_a_corrupt_pack_is_named_and_its_runs_are_missing(cli, results: Path) -> None:
    cli("pack")
    first, second = sorted((results / "packs").iterdir())
    first.write_bytes(first.read_bytes()[:1000])
    status = cli("status", "-s", "tiny.toml")
    (line,) = status.err.splitlines()
    assert line.startswith("Warning: ") and first.name in line and "is not a readable pack" in line
    assert missing_of_paper(status.out) == 4
    assert "left as it is" in cli("pack").err
    assert {path.name for path in (results / "packs").iterdir()} == {second.name, first.name}


def missing_of_paper(out: str) -> int:
    """Of the paper's profile, how many runs are missing."""
    return int(out.split("[paper]: ")[1].split(" missing")[0].split()[-1])
