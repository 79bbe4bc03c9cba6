"""Verbs that read change nothing in a results folder, whatever they find there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pflbench.store import Store
from pflbench.store.verbs import pack

LOOKS = (
    *(("report", "-s", "tiny.toml", "--format", format) for format in ("terminal", "markdown", "latex", "csv")),
    ("explain", "tiny.toml", "ditto", "shards", "--no-data"),
    ("plot", "tiny.toml", "--per-client", "-o", "../clients.csv"),
    ("status",),
    ("ls", "runs"),
    ("scores", "-o", "../scores.csv"),
    ("scores", "-s", "tiny.toml", "-o", "../scores.csv"),
    ("compare", "results", "results", "-s", "tiny.toml"),
    ("plan", "-s", "tiny.toml"),
)


def spoil(path: Path) -> None:
    """Flip bits of the first page: its checksum fails when it is read, its footer tells nothing."""
    offset = pq.read_metadata(path).row_group(0).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[offset + 30] ^= 0xFF
    path.write_bytes(content)


def damage(results: Path) -> None:
    """A pack of four runs whose first is spoiled, and of the others one is whole; a pack of nothing that can be read."""
    specs = [run.spec for run in Store(results).list()]
    shards = {spec.id for spec in specs if spec.partition.name == "shards"}
    ((path, *_),) = pack(Store(results), shards)
    spoil(path)
    truncated, foreign, spoiled, _whole = sorted((results / "runs").glob("*.parquet"))
    (path.parent / "half.parquet").write_bytes(path.read_bytes()[:1000])
    truncated.write_bytes(truncated.read_bytes()[:1000])
    pq.write_table(pa.table({"a": [1]}), foreign)
    spoil(spoiled)
    (results / "runs" / ".x.host.1.ab.tmp").write_bytes(b"half")
    (results / "runs" / "asked.jsonl").write_text("{torn\n")


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_a_verb_that_reads_changes_nothing(cli, results: Path, look: tuple[str, ...]) -> None:
    damage(results)
    before = tree(results)
    result = cli(*look)
    assert result.code == 0 and "is not a readable" in result.err
    assert tree(results) == before
    assert cli(*look)[:2] == result[:2]


def test_a_run_made_again_changes_nothing(cli, results: Path) -> None:
    damage(results)
    before = tree(results)
    whole = sorted((results / "runs").glob("*.parquet"))[3]
    result = cli("rerun", whole.stem, "--quiet")
    assert result.code == 1 and result.out.startswith(
        f"Run {whole.stem}: another result. "
    )  # the stored one is made up
    assert tree(results) == before


@pytest.mark.parametrize("what", ["show", "rm"])
def test_a_run_that_cannot_be_read(cli, results: Path, what: str) -> None:
    """It is named where it is to be read, and only a verb that writes puts it away."""
    damage(results)
    before = tree(results)
    spoiled = sorted((results / "runs").glob("*.parquet"))[2]
    if what == "show":
        result = cli("show", spoiled.stem)
        assert result.code == 1 and "There is no run" in result.err and tree(results) == before
    else:
        assert cli("rm", spoiled.stem, "--yes").code == 0 and not spoiled.exists()
