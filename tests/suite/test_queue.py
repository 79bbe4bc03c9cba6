"""Queue files: what they may say, and what a mistake in one is answered with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pflbench.errors import UsageError
from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.suite.queue import read_queue
from pflbench.units import parse_seeds, seed_text

from .samples import raw, write

ROOT = Path(__file__).parents[2]
ENTRY = '[[entry]]\nsuite = "tiny.toml"\n'


def queue_file(folder: Path, text: str) -> Path:
    write(folder / "tiny.toml", raw())
    path = folder / "QUEUE.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_queue_of_the_repository() -> None:
    items = read_queue(ROOT / "results" / "QUEUE.toml")
    title = re.compile(r"[\w-]+ \[(paper|half)\] [\w-]+(, [\w-]+)* · [\w-]+(, [\w-]+)* · seeds? \d+([-,]\d+)*")
    assert items and all(title.fullmatch(item.title) for item in items), [item.title for item in items]
    runs = [run for item in items for run in item.table.runs]
    assert len(runs) == len(set(runs)) and all(item.table.runs for item in items)
    assert {run.rounds for run in runs if run.method.name != "local"} == {100, 1000, 2000}, "full protocols"


def test_what_is_left_out_is_the_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ENTRY + 'columns = ["b"]\nmethods = ["cafeme"]\nseeds = [5, 7, 6, 5]\ncost = 1\n' + ENTRY
    path = queue_file(tmp_path, text + 'profile = "smoke"\ncost = "cheap"\nnote = "now"\n')
    monkeypatch.chdir("/")
    some, every = read_queue(path)
    assert [(run.method.name, run.seed, run.rounds) for run in some.table.runs] == [
        ("cafeme", 5, 3),
        ("cafeme", 7, 3),
        ("cafeme", 6, 3),
    ]
    assert (some.part.suites, some.part.methods, some.entry.cost) == ((str(tmp_path / "tiny.toml"),), ("cafeme",), 1)
    assert some.title == "tiny [paper] b · cafeme · seeds 5-7"
    assert every.title == "tiny [smoke] a, b · fedavg, cafeme · seed 0"
    assert (every.part.methods, every.entry.cost, every.entry.note) == ((), "cheap", "now")
    assert every.table.runs == expand(load(*every.part.suites), profile="smoke").runs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "entry: missing"),
        ("entry = []", "entry: List should have at least 1 item"),
        ('[[entries]]\nsuite = "tiny.toml"', "entries: unknown key, did you mean 'entry'?"),
        ("[[entry]]", "entry[0].suite: missing"),
        (ENTRY + ENTRY + 'colums = ["a"]', "entry[1].colums: unknown key, did you mean 'columns'?"),
        (ENTRY + "seeds = [-1]", "entry[0].seeds[0]: Input should be greater than or equal to 0"),
        (ENTRY + 'seeds = "0-2"', "entry[0].seeds: Input should be a valid list"),
        (ENTRY + "methods = []", "entry[0].methods: List should have at least 1 item"),
        (ENTRY + "cost = -1", "entry[0].cost: a cost is the minutes"),
        (ENTRY + "cost = true", "entry[0].cost: a cost is the minutes"),
        (ENTRY + 'profile = "smok"', "entry[0]: Unknown profile 'smok'. Did you mean 'smoke'?"),
        (ENTRY + ENTRY + 'columns = ["aa"]', "entry[1]: Unknown column 'aa'. Did you mean 'a'?"),
        (ENTRY + 'methods = ["cafem"]', "entry[0]: Unknown method 'cafem'. Did you mean 'cafeme'?"),
        ('[[entry]]\nsuite = "cafeme-table"', "entry[0]: Unknown suite 'cafeme-table'. Did you mean 'cafeme-table"),
        ('[[entry]]\nsuite = "no.toml"', "There is no suite file"),
        ("[[entry", "QUEUE.toml: "),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = queue_file(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_queue(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_queue_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no queue file .*QUEUE.toml'; name one with --file\."):
        read_queue(tmp_path / "QUEUE.toml")


@given(st.lists(st.integers(0, 30), min_size=1))
def test_seeds_as_a_text_are_the_same_seeds(seeds: list[int]) -> None:
    assert parse_seeds(seed_text(seeds)) == tuple(sorted(set(seeds)))
