"""`pflbench ls runs` and `pflbench rm`: what is there, and taking some of it away."""

import csv
import io
from pathlib import Path

import pytest
from cli_kit import method_file, stored

from pflbench import names
from pflbench.result import RunResult, Score
from pflbench.spec import MethodSpec
from pflbench.store import Store
from pflbench.testing import tiny_spec


def ids(results: Path) -> set[str]:
    return {run.spec.id for run in Store(results).list()}


def listed(cli, *options: str) -> list[dict[str, str]]:
    result = cli("ls", "runs", "--format", "csv", *options)
    assert (result.code, result.err) == (0, "")
    return list(csv.DictReader(io.StringIO(result.out)))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """There is a terminal, at which this is answered."""

    def answers(text: str) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr("sys.stdin", Terminal(text))

    return answers


def test_every_run_is_listed_with_where_it_lies(cli, results: Path) -> None:
    cli("pack", "-s", "tiny.toml", "--column", "shards")
    found = listed(cli)
    assert {line["run"] for line in found} == ids(results) and len(found) == 8
    for line in found:
        stored_there = Store(results).find(line["run"])
        assert stored_there is not None and results / line["file"] == stored_there.path
        assert line["status"] == ("failed" if stored_there.failure else "done")
    assert {line["file"].split("/")[0] for line in found} == {"packs", "runs"}
    head, *lines = cli("ls", "runs").out.splitlines()
    assert head.split()[:3] == ["run", "status", "method"] and len(lines) == 8


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (("--failed",), 1),
        (("--done",), 7),
        (("--trials",), 0),
        (("--no-trials",), 8),
        (("-m", "ditto", "--seeds", "1"), 2),
        (("-d", "rotated-digits"), 4),
        (("-s", "tiny.toml", "-m", "fedavg-ft", "--column", "shards"), 2),
        (("-s", "tiny.toml", "--profile", "smoke"), 4),
        (("-s", "cafeme-table1"), 0),
        (("--rounds", "3"), 0),
    ],
)
def test_the_options_of_run_choose(cli, results: Path, options: tuple[str, ...], number: int) -> None:
    found = listed(cli, *options)
    assert len(found) == number
    if not number:
        assert cli("ls", "runs", *options).out == "No run in 'results' matches.\n"
        return
    before = ids(results)
    removed = cli("rm", *options, "--yes")
    assert removed.code == 0 and before - ids(results) == {line["run"] for line in found}
    assert all(line["run"] in removed.out for line in found)


def test_runs_are_removed_by_their_beginnings_and_from_packs(cli, results: Path) -> None:
    cli("pack", "-s", "tiny.toml", "--column", "shards")
    before = {id: Store(results).read(id) for id in ids(results)}
    (old,) = (results / "packs").iterdir()
    packed = next(line["run"] for line in listed(cli) if line["file"].startswith("packs"))
    single = next(line["run"] for line in listed(cli) if line["file"].startswith("runs"))
    result = cli("rm", packed[:12], single, "--yes")
    assert (result.code, result.err) == (0, "")
    (new,) = (results / "packs").iterdir()
    assert new != old and str(new.relative_to(results.parent)) in result.out
    assert ids(results) == before.keys() - {packed, single}
    assert all(Store(results).read(id) == before[id] for id in ids(results))
    cli("rm", "-s", "tiny.toml", "--column", "shards", "--yes")
    assert not list((results / "packs").iterdir()) and len(ids(results)) == 3


def test_it_asks_before(cli, results: Path, terminal) -> None:
    before = stored(results)
    terminal("n\n")
    declined = cli("rm", "-m", "ditto")
    assert "Remove 4 runs from 'results'?" in declined.out
    assert declined.code == 1 and stored(results) == before
    terminal("y\n")
    assert cli("rm", "-m", "ditto").code == 0 and len(ids(results)) == 4


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "Which runs?"),
        (("--yes",), "Which runs?"),
        (("-m", "dito", "--yes"), "Did you mean 'ditto'"),
        (("-m", "scaffold", "--yes"), "No run in 'results' matches."),
        (("abc", "-m", "ditto", "--yes"), "not both"),
        (("0x", "--yes"), "No run starts with '0x'"),
        (("", "--yes"), "8 runs start with ''"),
        (("--column", "shards", "--yes"), "name it with --suite"),
        (("-s", "tiny.toml", "--column", "shard", "--yes"), "Did you mean 'shards'?"),
    ],
)
def test_a_wrong_request_removes_nothing(cli, results: Path, arguments: tuple[str, ...], part: str) -> None:
    before = stored(results)
    result = cli("rm", *arguments)
    assert result.code == 2 and part in result.err and len(result.err.splitlines()) == 1
    assert stored(results) == before


def own(results: Path, *changes: dict[str, object]) -> list[str]:
    """Store a run for each of these changes of a method of one's own; their ids."""
    found = []
    for change in changes:
        hyper = {"epochs": 1, "lr": change.pop("lr", 0.1)}
        method = MethodSpec(name="foo.py:Foo", version=str(change.pop("version", "abc123")), hyper=hyper)
        spec = tiny_spec().model_copy(update={"method": method, **change})
        Store(results).write(RunResult(spec, (Score("global", 1, 0, 0, 1, 2, 1.0, 0.5),), {}, None))
        found.append(spec.id)
    return found


def test_runs_that_look_alike_are_told_apart_by_what_differs(cli, folder: Path) -> None:
    first, *_ = own(
        folder / "results", {}, {"lr": 0.2}, {"version": "def456"}, {"cohort": 4, "seed": 7}, {"rounds": 99}
    )
    differs = {line["run"]: line["differs"] for line in listed(cli)}
    assert differs.pop(first) == "method.version=abc123, lr=0.1, cohort=3"
    assert sorted(differs.values()) == [
        "",  # other rounds: a column shows that
        "method.version=abc123, lr=0.1, cohort=4",
        "method.version=abc123, lr=0.2, cohort=3",
        "method.version=def456, lr=0.1, cohort=3",
    ]
    assert {line["hyper"] for line in listed(cli)} == {"epochs=1, lr=0.1", "epochs=1, lr=0.2"}
    table = cli("ls", "runs").out
    assert table.splitlines()[0].endswith("differs") and "method.version=def456, lr=0.1" in table


def test_of_two_folders_files_of_one_name_each_goes_by_its_path(cli, folder: Path) -> None:
    versions = {}
    for name in ("one", "two"):
        (folder / name).mkdir()
        reference = method_file(folder / name / "foo.py", ("0.05", "0.05" if name == "one" else "0.06"))
        versions[name] = names.code(reference).version
    one, two, gone = own(folder / "results", *({"version": v} for v in (*versions.values(), "abc123")))
    for asked, expected in (
        ("foo.py:Foo", {one, two, gone}),
        ("Foo", {one, two, gone}),
        ("one/foo.py:Foo", {one}),
        (f"{folder}/two/foo.py:Foo", {two}),
        ("./two/foo.py:Foo", {two}),
        ("foo.py:Foo@abc123", {gone}),
        (f"Foo@{versions['two'][:6]}", {two}),
    ):
        assert {line["run"] for line in listed(cli, "-m", asked)} == expected, asked
    assert cli("ls", "runs", "-m", "Fo").code == 2
    missing = cli("rm", "--yes", "-m", "three/foo.py:Foo")
    assert missing.code == 2 and "There is no file" in missing.err and len(ids(folder / "results")) == 3
    assert cli("rm", "--yes", "-m", "one/foo.py:Foo").code == 0 and ids(folder / "results") == {two, gone}


def test_what_clients_choose_by_is_no_trial(cli, folder: Path) -> None:
    whole, choice, trial = own(folder / "results", {}, {"validation": 0.1}, {"validation": 0.1, "lr": 0.2})
    assert {line["run"]: line["why"] for line in listed(cli)} == {whole: "", choice: "choice", trial: "trial"}
    assert [line["run"] for line in listed(cli, "--trials")] == [trial]
    assert cli("rm", "--trials", "--yes").code == 0 and ids(folder / "results") == {whole, choice}


def test_the_options_are_for_runs_alone(cli) -> None:
    for options in (("-m", "fedavg"), ("--failed",), ("--format", "csv")):
        result = cli("ls", "methods", *options)
        assert result.code == 2 and "`pflbench ls runs`, not methods" in result.err
