"""Counting what datasets hold, as suites of statistics divide them, and reading it from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pflbench.data.partitions.fedec import LetterUsers
from pflbench.report.reading import readable
from pflbench.report.tables import counted_tables
from pflbench.running.datasets import count_datasets
from pflbench.running.events import Counted, Event
from pflbench.running.execution import Execution
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.store.counts import Counts, read_counts
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SUITE = """
row = []

[suite]
name = "sizes"
title = "Sizes"
paper = "none"
protocol = "code"
seeds = [0, 1]
spread = { kind = "std" }

[federation]
clients = 10
query = "partition"

[evaluation]
clients = "all"
average = "examples"

[statistics]

[[column]]
id = "classes"
title = "Classes"
dataset = { name = "digits", test = 300 }
partition = { name = "class-shards", classes_per_client = 3 }
model = "mlp3"
rounds = 3
batch = 10

[[column]]
id = "few"
like = "classes"
title = "Few"
partition = { name = "shards", shards = 10 }
query = "test-split"
clients = 1

[[column]]
id = "users"
like = "classes"
title = "Users"
dataset = { name = "digits" }
partition = { name = "letter-users", users = 10, scale = 0.3 }

[[column]]
id = "missing"
like = "classes"
title = "Missing"
dataset = { name = "cifar10", test = true }
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    path = tmp_path / "sizes.toml"
    path.write_text(SUITE)
    return load(str(path))


def count(suite: Suite, folder: Path, *columns: str, **how: object) -> tuple[list[str], list[Event]]:
    """Count these columns; what is missing, and what was heard."""
    heard: list[Event] = []
    execution = Execution(data_dir=folder / "data")
    part = selection(columns=columns)
    if "redo" in how:
        execution = replace(execution, redo=how.pop("redo"))  # type: ignore[arg-type]
    return count_datasets([suite], part, folder / "results", execution, heard.append, **how), heard  # type: ignore[arg-type]


def stored(suite: Suite, folder: Path, column: str) -> list[Counts | None]:
    (dataset,) = expand(suite, columns=[column]).counted
    return [read_counts(folder / "results", run) for run in dataset.federations]


def test_all_images_of_both_splits(suite: Suite, tmp_path: Path) -> None:
    assert count(suite, tmp_path, "classes", "few")[0] == []
    own = 10 * (1497 // 10)  # that many are in shards of one size
    for column, sizes in (("classes", (1797, 1497, 300, 10)), ("few", (own + 300, own, 300, 10))):
        assert [found and found[:-1] for found in stored(suite, tmp_path, column)] == [sizes] * 2
    assert all(found and found.data for found in stored(suite, tmp_path, "few"))


def test_sizes_that_differ_by_seed(suite: Suite, tmp_path: Path) -> None:
    count(suite, tmp_path, "users")
    users = LetterUsers(users=10, scale=0.3)
    for seed, found in enumerate(stored(suite, tmp_path, "users")):
        assert found and found.total == 3 * int(users.per_class(seed).sum()) == found.train + found.test
        assert found.classes == 10


def test_what_is_counted_is_not_counted_again_unless_asked(suite: Suite, tmp_path: Path) -> None:
    assert [str(one) for one in count(suite, tmp_path, "classes", dry=True)[1]] == ["sizes · Classes: to be counted."]
    assert stored(suite, tmp_path, "classes") == [None, None]
    for redo, earlier in (("missing", False), ("missing", True), ("always", False)):
        (heard,) = count(suite, tmp_path, "classes", redo=redo)[1]
        assert isinstance(heard, Counted) and heard.earlier == earlier and "1797 images" in str(heard)


def test_missing_files_are_named_and_the_rest_is_counted(suite: Suite, tmp_path: Path) -> None:
    (missing,), _ = count(suite, tmp_path)
    assert missing.startswith("sizes · Missing cannot be counted. ") and str(tmp_path) in missing
    store = Store(tmp_path / "results")
    (table,) = counted_tables(selection(suites=[str(suite.path)]), store, readable(store)).values()
    assert [row.cells[0] is None for row in table.rows] == [False, False, False, True]
    assert any(line.startswith("Not counted yet: Missing. `pflbench run --suite ") for line in table.footer)


def test_only_what_a_federation_depends_on_tells_it_apart(suite: Suite, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(SUITE.replace("rounds = 3", "rounds = 4").replace("batch = 10", "batch = 5"))
    (ours, *_), (theirs, *_) = (expand(one).counted for one in (suite, load(str(other))))
    assert [run.id for run in ours.federations] == [run.id for run in theirs.federations]
