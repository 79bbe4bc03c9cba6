from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from store_kit import broken, change_metadata, done, failed, finished, names, spec, without_checksums

from pflbench.errors import StoreError
from pflbench.result import RunResult, Score
from pflbench.spec import Named
from pflbench.store import CorruptFile, MissingRun, Store, runfile
from pflbench.store.verbs import pack


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


@settings(max_examples=60, deadline=None)
@given(finished | broken)
def test_round_trip(result: RunResult) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.write(result)
        assert store.read(result.spec.id) == result
        (stored,) = store.list()
        assert stored[:3] == (result.spec, result.provenance, result.failure)
        assert store.status(result.spec.id) == ("done" if result.failure is None else "failed")


def test_nan_survives(store: Store) -> None:
    store.write(RunResult(spec(), (Score("global", 1, 0, 0, 0, 1, math.nan, 0.0),)))
    assert math.isnan(store.read(spec().id).scores[0].loss_sum)


def test_nothing_is_created_before_a_write(store: Store) -> None:
    assert store.status(spec().id) == "missing"
    assert store.list() == []
    with pytest.raises(MissingRun, match=spec().id):
        store.read(spec().id)
    assert not store.root.exists()


def test_plain_pandas_reads_a_glob(store: Store) -> None:
    for seed in range(3):
        store.write(done(seed, device="cpu", wall_seconds=2))
    store.write(failed(3))
    frame = pd.concat([pd.read_parquet(p) for p in store.runs.glob("*.parquet")])
    assert len(frame) == 6
    assert set(frame.seed) == {0, 1, 2}
    assert set(frame.run_id) == {spec(seed).id for seed in range(3)}
    first = frame.iloc[0]
    assert (first.method, first.method_version, first.hyper) == ("fedavg", "1", '{"local_lr": 0.1}')
    assert (first.dataset, first.partition, first.partition_options) == ("digits", "dirichlet", '{"alpha": 0.3}')
    assert (first.model, first.clients, first.rounds, first.batch) == ("cnn2", 4, 3, 10)
    assert (first.precision, first.data_hash, first.commit) == ("fp32", "d1", "c0ffee")
    assert frame.protocol.isna().all()  # of older files "code"
    assert (first.device, first.wall_seconds) == ("cpu", 2.0)
    assert frame.groupby("seed").accuracy.mean().tolist() == [0.625] * 3


def test_specs_that_differ_by_seed_are_read_as_they_were(store: Store) -> None:
    """One parse serves them all."""
    options = Named(name="dirichlet", options={"alpha": 0.3, "seed": 4, "zeta": '","seed":9,"'})
    for seed in (3, 0, 2**40):
        one = done(seed)
        store.write(RunResult(one.spec.model_copy(update={"partition": options}), one.scores))
        store.write(one)
    specs = [run.spec for run in Store(store.root).list()]
    assert sorted(run.seed for run in specs) == [0, 0, 3, 3, 2**40, 2**40]
    assert all(Store(store.root).read(run.id).spec == run for run in specs)
    assert sum(run.partition == options for run in specs) == 3


def test_list_is_sorted_by_id(store: Store) -> None:
    for seed in range(5):
        store.write(done(seed))
    ids = [stored.spec.id for stored in store.list()]
    assert ids == sorted(spec(seed).id for seed in range(5))


@pytest.mark.parametrize(
    ("place", "function", "error"),
    [(Path, "replace", OSError(errno.EIO, "I/O error")), (os, "fsync", KeyboardInterrupt())],
)
def test_an_interrupted_write_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: object, function: str, error: BaseException
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(place, function, interrupt)
    with pytest.raises(StoreError if isinstance(error, OSError) else KeyboardInterrupt):
        store.write(done())
    assert names(store) == []


def test_an_interrupted_rewrite_keeps_the_old_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(done(device="cpu"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match=r"results.*No space left on device"):
            store.write(done(device="cuda"))
    assert store.read(spec().id) == done(device="cpu")
    assert names(store) == [f"{spec().id}.parquet"]


def test_results_replace_failures_and_never_the_other_way(store: Store) -> None:
    store.write(failed())
    assert store.status(spec().id) == "failed"
    assert store.read(spec().id).failure == "Diverged: the loss is not finite"
    store.write(done())
    store.write(failed())
    assert store.read(spec().id) == done()
    store.write(done(device="other"))
    assert store.read(spec().id).provenance["device"] == "other"


def test_check_writable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.check_writable()
    assert names(store) == []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.check_writable()
    assert names(store) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("not a folder")
    store = Store(tmp_path / "results")
    for use in (store.check_writable, lambda: store.write(done())):
        with pytest.raises(StoreError, match="Cannot write results to") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert store.status(spec().id) == "missing"
    assert store.list() == []


def not_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1 no more than that")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def no_metadata(path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), path)


def no_spec(path: Path) -> None:
    change_metadata(path, "pflbench.spec", lambda _: b'{"seed": ')


def other_version(path: Path) -> None:
    change_metadata(path, "pflbench.schema", lambda _: b"2")


def with_another_field(path: Path) -> None:
    change_metadata(path, "pflbench.spec", lambda text: text.replace(b"{", b'{"attention":"all",', 1))


def with_another_id(path: Path) -> None:
    """As a version wrote it in which uniform weights were not the default."""
    uniform = lambda text: json.dumps({**json.loads(text), "weights": "uniform"}).encode()  # noqa: E731
    change_metadata(path, "pflbench.spec", uniform)


def under_another_name(path: Path) -> None:
    shutil.copy(path.with_name(f"{spec(1).id}.parquet"), path)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (not_parquet, "footer|magic"),
        (empty, "Parquet"),
        (truncated, "footer|magic"),
        (no_metadata, "schema version None"),
        (no_spec, "unreadable metadata"),
        (other_version, "schema version 2, where this version of pflbench reads 1"),
        (with_another_field, "attention Extra inputs are not permitted"),
        (with_another_id, f"the run is {spec(0).id} to this version of pflbench"),
        (under_another_name, "a single run under its id"),
    ],
)
def test_a_damaged_file_is_named_stays_and_is_trained_again(store: Store, damage: object, reason: str) -> None:
    store.write(done(1))
    path = store.write(done())
    damage(path)  # type: ignore[operator]
    content = path.read_bytes()
    with pytest.warns(CorruptFile, match=rf"{path.name}.*({reason}).*left as it is"):
        assert [stored.spec for stored in store.list()] == [spec(1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # named once
        assert store.status(path.stem) == "missing"
        pack(store)
    assert path.read_bytes() == content
    store.write(done())
    assert Store(store.root).read(path.stem) == store.read(path.stem) == done()


def repeated(path: Path, rows: int) -> None:
    """Have a run's file say its first score so many times, which takes few bytes."""
    table = pq.read_table(path)
    metadata = without_checksums(table.schema.metadata)
    pq.write_table(table.take([0] * rows).replace_schema_metadata(metadata), path)


def test_more_rows_than_the_spec_allows_are_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.write(done())
    repeated(path, spec().most_rows)
    assert len(Store(store.root).read(path.stem).scores) == spec().most_rows
    repeated(path, spec().most_rows + 1)
    monkeypatch.setattr(runfile, "_opened", None)
    with pytest.warns(CorruptFile, match=rf"{path.name}.*has 1,381 rows, where its spec allows 1,380"):
        assert Store(store.root).list() == []


def test_damaged_data_pages_are_found_when_read(store: Store) -> None:
    path = store.write(done())
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    assert store.status(path.stem) == "done"
    with pytest.warns(CorruptFile, match=path.name), pytest.raises(MissingRun):
        store.read(path.stem)
    assert store.status(path.stem) == "missing"


def test_missing_columns_are_found_when_read(store: Store) -> None:
    path = store.write(done())
    pq.write_table(pq.read_table(path).drop_columns(["accuracy"]), path)
    with pytest.warns(CorruptFile, match="accuracy"), pytest.raises(MissingRun):
        store.read(path.stem)


def test_an_unreadable_file_is_an_error_and_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.write(done())

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(StoreError, match=rf"{path.name}.*Permission denied"):
        Store(store.root).status(path.stem)
    assert names(store) == [path.name]


def test_other_files_are_left_alone(store: Store) -> None:
    store.write(done())
    (store.runs / "deeper").mkdir()
    others = ("notes.txt", "old.parquet.corrupt", "deeper/x.parquet", ".x.host.1.ab.tmp", "mine.tmp")
    for name in others:
        (store.runs / name).write_text("?")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(store.list()) == 1
        store.write(done(1))
    assert all((store.runs / name).exists() for name in others)


def test_leftovers_of_killed_processes_are_cleaned_at_write(store: Store) -> None:
    store.runs.mkdir(parents=True)
    old, new = (store.runs / f".{name}.ab12.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 3700,) * 2)
    store.write(done())
    assert [path.name for path in store.runs.glob("*.tmp")] == [new.name]


def test_stores_merge_by_copying(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    shutil.copy(other.write(done(1)), store.write(done()).parent)
    assert {stored.spec.seed for stored in store.list()} == {0, 1}


def test_a_file_that_became_another_is_read_again(store: Store) -> None:
    store.write(failed(2))
    reader = Store(store.root)
    assert reader.status(spec(2).id) == "failed"
    store.write(done(2))
    assert reader.status(spec(2).id) == "done"
    assert [run.failure for run in reader.list()] == [None]


THREADS = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from pflbench.store import Store
from pflbench.store.verbs import pack
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
    for result in (done(0), done(1), failed(2)):
        store.write(result)
    found = subprocess.run([sys.executable, "-c", THREADS, str(store.root)], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "3 0"


def test_torch_stays_out() -> None:
    code = "import sys, pflbench.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
