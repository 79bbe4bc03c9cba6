"""One hostile, odd or damaged run is left out and named with its file; every verb goes on with all else."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attack_kit import Cli, Lab, result
from hypothesis import given, settings
from hypothesis import strategies as st
from test_code import READING

from pflbench.result import RunResult, Score, core_seconds
from pflbench.spec import RunSpec
from pflbench.store import CorruptFile, MissingRun, ShownStore, Store, runfile
from pflbench.store.header import Provenance, RequestRecord, Stored, Unfit, encoded, metadata
from pflbench.store.requests import Request
from pflbench.store.verbs import pack
from pflbench.testing import tiny_spec


def written(lab: Lab, run: RunResult, **texts: str) -> Path:
    """A run's file without checksums, as an older version or somebody else wrote it; `texts`: other metadata."""
    path = Store(lab.results).path(run.spec.id)
    path.parent.mkdir(parents=True, exist_ok=True)
    told = metadata(run) | {f"pflbench.{key}": text for key, text in texts.items()}
    raw = {key.encode(): text.encode(errors="surrogateescape") for key, text in told.items()}
    pq.write_table(runfile.to_table(run).replace_schema_metadata(raw), path)
    return path


def provenance(lab: Lab, run: RunResult, **more: object) -> Path:
    return written(lab, run, provenance=json.dumps(run.provenance | more))


def scored(lab: Lab, run: RunResult, **change: Any) -> Path:
    return written(lab, RunResult(run.spec, tuple(s._replace(**change) for s in run.scores), run.provenance))


def named(lab: Lab, run: RunResult, name: str) -> Path:
    method = run.spec.method.model_copy(update={"name": name})
    return written(lab, RunResult(run.spec.model_copy(update={"method": method}), run.scores, run.provenance))


KEYS = sorted({*Provenance.__annotations__, *RequestRecord.__annotations__})
TINY = {"suite": "tiny", "profile": "paper"}
Odd = Callable[[Lab, RunResult], Path]
HEADERS: dict[str, Odd] = {
    "lone surrogate": lambda lab, run: provenance(lab, run, device="\ud800"),
    "no UTF-8": lambda lab, run: written(lab, run, provenance='{"device": "\udcff"}'),
    "nested": lambda lab, run: written(lab, run, provenance='{"a":' * 50_000 + "1" + "}" * 50_000),
    "nested spec": lambda lab, run: written(lab, run, spec="[" * 100_000),
    "asked": lambda lab, run: provenance(lab, run, asked={"suite": ["tiny"], "profile": "paper"}),
    "asked for nothing": lambda lab, run: provenance(lab, run, asked={"file": "tiny.toml"}),
    "seconds": lambda lab, run: provenance(lab, run, wall_seconds="long", client_seconds={"a": 1}),
    "more than 64 bits": lambda lab, run: provenance(lab, run, wall_seconds=10**400),
    "rounds beyond 64 bits": lambda lab, run: provenance(lab, run, asked=TINY | {"rounds": 2**63}),
    "a seed that is none": lambda lab, run: provenance(lab, run, asked=TINY | {"seeds": [0, 1.5]}),
    "many seeds": lambda lab, run: provenance(lab, run, asked=TINY | {"seeds": [*range(100_001)]}),
    "often": lambda lab, run: provenance(lab, run, evaluate_every="1"),
    "no reference": lambda lab, run: named(lab, run, "a:b:c d"),
    "only a colon": lambda lab, run: named(lab, run, ":"),
    "no scores": lambda lab, run: written(lab, RunResult(run.spec, (), run.provenance)),
}
ROWS: dict[str, Odd] = {
    "client below": lambda lab, run: scored(lab, run, client=-2),
    "no such client": lambda lab, run: scored(lab, run, client=run.spec.clients),
    "accuracy": lambda lab, run: scored(lab, run, accuracy=1.01),
    "percent": lambda lab, run: scored(lab, run, accuracy=50.0),
    "not a number": lambda lab, run: scored(lab, run, accuracy=float("nan")),
    "counts": lambda lab, run: scored(lab, run, correct=9),
    "round": lambda lab, run: scored(lab, run, round=-1),
}


def odd_run(lab: Lab, number: int = 1) -> RunResult:
    """A run that the table would show beside the honest one."""
    hyper = lab.spec.method.hyper | {"lr": number / 100}
    return result(lab.spec.model_copy(update={"method": lab.spec.method.model_copy(update={"hyper": hyper})}))


@pytest.mark.parametrize("verb", [verb for verb in READING if verb not in ("merge", "pack")])
def test_a_verb_goes_on_without_odd_runs(lab: Lab, cli: Cli, verb: str) -> None:
    lab.store(lab.honest())
    for number, odd in enumerate((HEADERS | ROWS).values(), 1):
        odd(lab, odd_run(lab, number))
    said = cli(*READING[verb])
    assert said.code == 0, said.err
    assert verb != "report" or "50.00" in said.out


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), values, max_size=6))
def test_any_provenance_has_the_types_that_readers_expect_or_is_refused(drawn: dict[str, Any]) -> None:
    run = result(tiny_spec())
    texts = metadata(run) | {"pflbench.provenance": json.dumps(drawn)}
    try:
        read = Stored.of(texts, Path(), len(run.scores)).provenance
    except Unfit:
        return
    assert repr(read) == repr(drawn)
    assert core_seconds(read) is None or math.isfinite(core_seconds(read))
    assert isinstance(read.get("evaluate_every"), int | None) and isinstance(read.get("commit"), str | None)
    if asked := read.get("asked"):
        assert all(isinstance(text, str) for text in Request.of(asked))


@pytest.mark.parametrize("odd", ["lone surrogate", "nested spec", "seconds", "only a colon", "no scores", *ROWS])
def test_an_odd_run_is_named_with_its_file_and_costs_no_other(lab: Lab, cli: Cli, odd: str) -> None:
    honest = lab.store(lab.honest())
    path = (HEADERS | ROWS)[odd](lab, odd_run(lab))
    said = cli(*READING["report"])
    assert said.code == 0 and path.name in said.err and "50.00" in said.out
    said = cli(*READING["merge"])
    assert said.code == 1 and path.name in said.err and Store(lab.folder / "merged").status(honest) == "done"
    assert cli("pack").code == 0 and Store(lab.results).status(honest) == "done"


def test_a_pipe_among_the_packs_is_left_out(lab: Lab, cli: Cli) -> None:
    lab.store(lab.honest())
    os.mkfifo(lab.results / "packs" / "pipe.parquet")
    (lab.results / "packs" / "zero.parquet").symlink_to("/dev/zero")
    said = cli(*READING["report"])
    assert said.code == 0 and "50.00" in said.out
    assert "pipe.parquet' is not a readable pack: it is no regular file" in said.err
    assert "zero.parquet" in said.err


def test_what_is_no_file_among_the_packs_is_left_out(lab: Lab, cli: Cli) -> None:
    id = lab.store(lab.honest())
    packs = lab.results / "packs"
    (packs / "folder.parquet").mkdir()
    (packs / "itself.parquet").symlink_to("itself.parquet")
    (packs / "nowhere.parquet").symlink_to("elsewhere.parquet")
    for verb in (READING["report"], ("ls", "runs"), READING["merge"], ("pack",), ("rm", id, "--yes")):
        said = cli(*verb)
        assert said.code == (verb[0] == "merge") and (verb[0] != "report" or "50.00" in said.out), said.err
        for name in ("folder", "itself", "nowhere"):
            assert f"{name}.parquet' is not a readable pack: it is no regular file" in said.err
    assert Store(lab.folder / "merged").status(id) == "done" and Store(lab.results).path(id)


def forged(lab: Lab, runs: list[tuple[RunResult, object]]) -> Path:
    """A stranger's pack of runs, each with a number of rows that its list says."""
    listed = json.dumps([{"rows": rows, "metadata": metadata(run)} for run, rows in runs])
    texts = encoded({"pflbench.pack": "1", "pflbench.runs": listed})
    path = lab.results / "packs" / "forged.parquet"
    with pq.ParquetWriter(path, runfile.COLUMNS.with_metadata(texts)) as writer:
        for run, _ in runs:
            writer.write_table(runfile.to_table(run))
    return path


@pytest.mark.parametrize("rows", [float("inf"), "12", None])
def test_a_pack_with_an_odd_number_of_rows_costs_no_other(lab: Lab, cli: Cli, rows: object) -> None:
    lab.store(lab.honest())
    forged(lab, [(odd_run(lab), rows)])
    said = cli(*READING["report"])
    assert said.code == 0 and "50.00" in said.out


@pytest.mark.parametrize("file", [None, "a" * 300 + ".toml", "a\0.toml"])
def test_an_odd_name_of_the_suite_that_asked_costs_nothing(lab: Lab, cli: Cli, file: object) -> None:
    lab.store(lab.honest())
    id = lab.store(result(odd_run(lab).spec, asked=TINY | {"file": file}))
    for verb in (("report",), ("report", "--all"), ("ls", "runs")):
        said = cli(*verb)
        assert said.code == 0 and (id if verb[0] == "ls" else "50.00") in said.out


def packed(lab: Lab) -> Path:
    lab.store(lab.honest())
    lab.store(odd_run(lab))
    (path,) = (lab.results / "packs").glob("*.parquet")
    return path


def test_a_long_text_of_a_small_file_is_not_written_out_in_each_row(lab: Lab, cli: Cli) -> None:
    size = 8_000_000
    lab.store(lab.honest())
    run = odd_run(lab)
    table = runfile.to_table(run).replace_schema_metadata(encoded(metadata(run)))
    coded = pa.DictionaryArray.from_arrays(pa.array([0] * len(table), pa.int32()), pa.array(["A" * size]))
    path = Store(lab.results).path(lab.store(run, packed=False))
    pq.write_table(table.set_column(0, "stage", coded), path, compression="zstd")
    before = pa.default_memory_pool().max_memory() or 0
    said = cli(*READING["report"])
    assert said.code == 0 and "50.00" in said.out and path.name in said.err
    assert (pa.default_memory_pool().max_memory() or 0) <= max(before, 4 * size)


def read_all(lab: Lab) -> dict[str, tuple[object, ...]]:
    """What a reader sees of all runs."""
    store = ShownStore(lab.results)
    found = {}
    for run in store.list():
        with suppress(MissingRun):
            whole = store.read(run.spec.id)
            found[run.spec.id] = (whole.provenance, tuple(whole.scores), tuple(whole.metrics), whole.failure)
    return found


def test_no_changed_byte_of_metadata_goes_unseen(lab: Lab) -> None:
    path = packed(lab)
    whole, before = path.read_bytes(), read_all(lab)
    commit, finished = whole.rindex(b"c0ffee"), whole.rindex(b"2026-11-01")  # in the footer
    for place, byte in ((commit, ord("d")), (finished, ord("1"))):
        path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            now = read_all(lab)
        assert all(before[id] == now[id] for id in now) and len(now) < len(before)
        assert any("do not fit their checksum" in str(one.message) and path.name in str(one.message) for one in caught)


def test_other_scores_under_the_same_metadata_are_seen(lab: Lab) -> None:
    run = lab.honest()
    path = Store(lab.results).write(run)
    table = pq.read_table(path)
    place = table.column_names.index("accuracy")
    better = table.set_column(place, "accuracy", pa.array([0.75] * len(table)))
    pq.write_table(better, path)
    store = Store(lab.results)
    with pytest.warns(CorruptFile, match="its scores do not fit their checksum"), pytest.raises(MissingRun):
        store.read(run.spec.id)


def test_runs_and_packs_without_checksums_are_read_as_before(lab: Lab) -> None:
    run = lab.honest()
    written(lab, run)
    (stored,) = Store(lab.results).list()
    assert stored.checksum is None and Store(lab.results).read(run.spec.id) == run
    pack(Store(lab.results))
    (stored,) = Store(lab.results).list()
    assert stored.checksum == runfile.checksum(run) and Store(lab.results).read(run.spec.id) == run


def test_a_checksum_depends_on_what_is_stored_alone(lab: Lab) -> None:
    run = lab.honest()
    Store(lab.results).write(run)
    again = Store(lab.results).read(run.spec.id)
    assert runfile.checksum(again) == runfile.checksum(run)
    for field, value in (("accuracy", 0.25), ("client", 1), ("round", 2), ("stage", "other"), ("loss_sum", 2.0)):
        first = run.scores[0]._replace(**{field: value})
        if first != run.scores[0]:
            other = RunResult(run.spec, (first, *run.scores[1:]), run.provenance)
            assert runfile.checksum(other) != runfile.checksum(run), field


def another(lab: Lab, spec: RunSpec, accuracy: float) -> Path:
    """A stranger's pack with a run of this id and other scores."""
    return runfile.write_pack(lab.results / "packs", [result(spec, accuracy, device="elsewhere")])


def test_two_packs_with_other_scores_of_a_run_are_named_until_one_is_gone(lab: Lab, cli: Cli) -> None:
    id = lab.store(lab.honest())
    (mine,) = (lab.results / "packs").glob("*.parquet")
    theirs = another(lab, lab.spec, 0.75)
    both = {mine.name: mine.read_bytes(), theirs.name: theirs.read_bytes()}
    for verb in (("ls", "runs"), READING["report"], ("pack",)):
        said = cli(*verb)
        assert said.code == 0
        for text in (id, mine.name, theirs.name, f"pflbench rm {id}`"):
            assert text in said.err, verb
    assert {path.name: path.read_bytes() for path in (lab.results / "packs").iterdir()} == both
    merged = cli("merge", "results", "--into", "merged")
    assert id in merged.err and mine.name in merged.err and theirs.name in merged.err
    theirs.unlink()
    assert cli("ls", "runs").err == "" and "50.00" in cli(*READING["report"]).out


def test_two_packs_with_the_same_scores_are_one_run(lab: Lab, cli: Cli) -> None:
    lab.store(lab.honest())
    another(lab, lab.spec, 0.5)
    assert cli("ls", "runs").err == ""
    assert cli("pack").code == 0 and len(list((lab.results / "packs").iterdir())) == 1


def test_a_redone_run_is_not_packed_beside_two_that_differ(lab: Lab, cli: Cli) -> None:
    lab.store(lab.honest())
    another(lab, lab.spec, 0.75)
    single = Store(lab.results).write(result(lab.spec, 0.25))
    assert cli("pack").code == 0 and single.exists()
    assert isinstance(Store(lab.results).read(lab.spec.id).scores[0], Score)
