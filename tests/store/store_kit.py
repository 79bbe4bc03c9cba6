"""Runs to store, made up and drawn."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow.parquet as pq
from hypothesis import strategies as st

from pflbench.result import Metric, RunResult, Score
from pflbench.spec import MethodSpec, Named, RunSpec
from pflbench.store import Store
from pflbench.testing import tiny_spec

Runs = dict[str, RunResult]


def spec(seed: int = 0, name: str = "fedavg") -> RunSpec:
    return tiny_spec(
        seed,
        MethodSpec(name=name, version="1", hyper={"local_lr": 0.1}),
        dataset="digits",
        partition=Named(name="dirichlet", options={"alpha": 0.3}),
        model="cnn2",
        clients=4,
        batch=10,
        rounds=3,
        precision="fp32",
    )


def done(seed: int = 0, **provenance: object) -> RunResult:
    scores = tuple(Score("global", 3, 0, c, c, 4, 0.5, c / 4) for c in (2, 3))
    return RunResult(spec(seed), scores, {"data_hash": "d1", "commit": "c0ffee", "dirty": False, **provenance})


def failed(seed: int = 0) -> RunResult:
    return RunResult(spec(seed), failure="Diverged: the loss is not finite")


def names(store: Store) -> list[str]:
    return sorted(p.name for p in store.runs.iterdir())


def pack_files(store: Store) -> list[Path]:
    return sorted(store.root.glob("packs/*"))


def contents(store: Store) -> Runs:
    """What a newcomer reads, checked to be the same by every way of reading."""
    store = Store(store.root)
    listed = store.list()
    found = {run.spec.id: store.read(run.spec.id) for run in listed}
    assert list(found) == sorted(found)
    for run in listed:
        result = found[run.spec.id]
        assert run[:3] == (result.spec, result.provenance, result.failure) and run.rows == (
            len(result.scores) + len(result.metrics)
        )
        assert store.status(run.spec.id) == ("done" if run.failure is None else "failed")
        assert run.path.is_file()
    assert store.read_several(listed) == found
    return found


def elsewhere(result: RunResult, rounds: int) -> RunResult:
    """The same in a setting of its own."""
    return RunResult(result.spec.model_copy(update={"rounds": rounds}), *list(vars(result).values())[1:])


def snapshots(store: Store, work: Callable[[], object], into: Path) -> list[Path]:
    """Copies of the folder at every moment at which its files were others: what a kill would leave behind."""
    found: list[Path] = []
    last: object = None

    def look(*_: FrameType | object) -> None:
        nonlocal last
        sys.setprofile(None)
        files = sorted((entry.path, entry.stat().st_size, entry.inode()) for f in folders for entry in os.scandir(f))
        if files != last:
            last = files
            found.append(into / str(len(found)))
            shutil.copytree(store.root, found[-1])
        sys.setprofile(look)

    folders = [store.runs, store.packs]
    store.packs.mkdir(exist_ok=True)
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def without_checksums(metadata: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """A file's metadata as a version wrote it that knew no checksums, of a run or of a pack."""
    own = (b"pflbench.checksum", b"pflbench.scores")
    entry = re.compile(rb'"pflbench\.(checksum|scores)": "\w+", ')
    return {key: entry.sub(b"", value) for key, value in metadata.items() if key not in own}


def change_metadata(path: Path, key: str, change: Callable[[bytes], bytes]) -> None:
    """Write the file anew with another value of a key of its metadata and no checksums, in the same row groups."""
    with pq.ParquetFile(path) as file:
        schema, groups = file.schema_arrow, [file.read_row_group(i) for i in range(file.num_row_groups)]
    metadata = {**schema.metadata, key.encode(): change(schema.metadata[key.encode()])}
    metadata = without_checksums(metadata)
    with pq.ParquetWriter(path, schema.with_metadata(metadata)) as writer:
        for group in groups:
            writer.write_table(group.replace_schema_metadata(metadata))


def break_page(path: Path, group: int = 0) -> None:
    """Flip bits in the data of a row group: its checksum fails when it is read."""
    offset = pq.read_metadata(path).row_group(group).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[offset + 30] ^= 0xFF
    path.write_bytes(content)


whole = st.integers(-(2**63), 2**63 - 1)
real = st.floats(allow_nan=False)
stored_text = st.text(st.characters(codec="utf-8"))
stages = stored_text.filter(lambda text: not text.startswith("metric/"))
share, many = st.floats(0, 1), st.integers(0, 2**63 - 1)
score = st.builds(Score, stages, many, many, st.integers(-1, 3), st.just(0), many, real, share)
scores = st.lists(score, min_size=1).map(tuple)
metrics = st.lists(st.builds(Metric, whole, whole, stored_text, real)).map(tuple)
provenance = st.dictionaries(
    st.text().map("own ".__add__), st.none() | st.booleans() | st.integers() | real | st.text()
)
any_spec = st.builds(spec, st.integers(0, 2**31), st.sampled_from(["fedavg", "ü/my.py:Föö"]))
finished = st.builds(
    RunResult, any_spec, scores, provenance.map(lambda p: p | {"wall_seconds": 1.5}), st.none(), metrics
)
broken = st.builds(RunResult, any_spec, st.just(()), st.just({}), st.text())
