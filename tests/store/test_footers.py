"""What is remembered of files' footers is what the files say, and reading leaves no thread behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from store_kit import done, failed, spec

from pflbench.store import Store
from pflbench.store.packing import pack

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three runs that have lain there for a while, two of them packed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(tmp_path / "results")
    store.write(done(0))
    store.write(done(1))
    pack(store)
    store.write(failed(2))
    age(store)
    return store


def age(store: Store, seconds: float = 60) -> None:
    for path in store.root.rglob("*.parquet"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def remembered(store: Store) -> list[Path]:
    return sorted((store.root.parent / "cache/pflbench/footers").glob("*"))


def python(program: str, store: Store) -> str:
    run = [sys.executable, "-c", program, str(store.root)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(run, env=environment, check=True, capture_output=True, text=True).stdout.strip()


LISTS = """
import sys
from pathlib import Path
from pflbench.store import Store
print(*(run.spec.id for run in Store(Path(sys.argv[1])).list()), "pyarrow" in sys.modules)
"""


def test_a_second_listing_needs_no_arrow(store: Store) -> None:
    ids = [run.spec.id for run in store.list()]
    assert len(ids) == 3 and len(remembered(store)) == 1
    assert python(LISTS, store) == " ".join([*ids, "False"])
    assert Store(store.root).list() == store.list()
    assert all(Store(store.root).read(id).spec.id == id for id in ids)


def test_a_file_that_became_another_is_read_again(store: Store) -> None:
    store.list()
    assert Store(store.root).status(spec(2).id) == "failed"
    store.write(done(2))
    assert Store(store.root).status(spec(2).id) == "done"
    assert [run.failure for run in Store(store.root).list()] == [None] * 3


def test_what_was_written_a_moment_ago_is_not_remembered(store: Store) -> None:
    age(store, -120)
    assert len(store.list()) == 3
    assert not remembered(store)


def test_what_is_gone_is_forgotten(store: Store) -> None:
    store.list()
    store.path(spec(2).id).unlink()
    store.write(done(3))
    age(store)
    assert len(Store(store.root).list()) == 3
    (file,) = remembered(store)
    assert all(Path(path).exists() for path in json.loads(file.read_text()))


@pytest.mark.parametrize("damage", ["", "[", "[]", "7", "values", "numbers", "short", "texts"])
def test_a_damaged_memory_costs_nothing(store: Store, damage: str) -> None:
    listed = store.list()
    (file,) = remembered(store)
    known = json.loads(file.read_text())
    broken = {
        "values": dict.fromkeys(known),
        "numbers": dict.fromkeys(known, 7),
        "short": {path: kept[:2] for path, kept in known.items()},
        "texts": {path: [kept[0], [], *kept[2:]] for path, kept in known.items()},
    }
    file.write_text(json.dumps(broken[damage]) if damage in broken else damage)
    assert Store(store.root).list() == listed
    assert json.loads(file.read_text()) == known


@pytest.mark.parametrize("wrong", ["groups", "metadata", "columns"])
def test_a_wrong_memory_makes_no_good_file_look_damaged(store: Store, wrong: str) -> None:
    listed = store.list()
    (file,) = remembered(store)
    known = json.loads(file.read_text())
    for kept in known.values():
        if wrong == "groups":
            kept[3] = [count + 1 for count in kept[3]]
        elif wrong == "columns":
            kept[2] = kept[3] = None
        else:
            kept[1] = {}
    file.write_text(json.dumps(known))
    assert [run.spec for run in Store(store.root).list()] == [run.spec for run in listed]
    assert not list(store.root.rglob("*.corrupt"))
    assert all(store.read(run.spec.id) for run in listed)


def test_a_cache_that_cannot_be_written_costs_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert len(store.list()) == 3


THREADS = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from pflbench.store import Store
from pflbench.store.packing import pack
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
store = Store(Path(sys.argv[1]))
for run in store.list():
    store.write(store.read(run.spec.id))
pack(store)
print(len(store.list()), threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not list a process's threads")
def test_reading_and_writing_start_no_thread(store: Store) -> None:
    assert python(THREADS, store) == "3 0"
