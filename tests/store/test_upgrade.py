"""`upgrade`: every run is readable all the way, keeps its scores, and is changed once."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import Runs, change_metadata, contents, done, elsewhere, failed, pack_files, snapshots, spec

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.spec import MethodSpec, Named, RunSpec
from pflbench.store import CorruptFile, ForeignFile, OutdatedRuns, Store, runfile, schema
from pflbench.store.folder import Folder
from pflbench.store.header import Stored
from pflbench.store.packing import pack
from pflbench.store.store import renamed
from pflbench.store.upgrade import COLUMNS, STEPS, Step, upgrade

RENAMED = STEPS[0].title
OLD = Path(__file__).with_name("from_9e47583")
OLD_COLUMNS = schema.COLUMNS.names[: schema.COLUMNS.names.index("validation")]
AVERAGED, PERSONAL = {"head_steps": 5, "head_lr": 0.1}, {"head_epochs": 10, "lr": 0.1}
METHODS = {
    "fedavg": ("fedavg", {"lr": 0.1}),
    "averaged, then": ("fedrep", AVERAGED),
    "averaged, now": ("fedrep-averaged", AVERAGED),
    "paper's, then": ("fedrep-personal", PERSONAL),
    "paper's, now": ("fedrep", PERSONAL),
}
NOW = {"averaged, then": "averaged, now", "paper's, then": "paper's, now"}


def of(method: str, result: RunResult) -> RunResult:
    """The same run of another method."""
    name, hyper = METHODS[method]
    of = MethodSpec(name=name, version="1", hyper=hyper)
    return RunResult(result.spec.model_copy(update={"method": of}), *list(vars(result).values())[1:])


def current(run: RunSpec) -> RunSpec:
    return renamed(run) or run


def raw(store: Store) -> list[RunResult]:
    """Every run in every file, whatever it is called and however often it is there."""
    store = Store(store.root)
    return [file.read(id) for file in [*store.singles.all(), *store.packs.all()] for id in file.entries]


def best(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """By id of today: the runs that may be kept there, the finished ones if there are any."""
    found: dict[str, list[RunResult]] = {}
    for run in runs:
        found.setdefault(current(run.spec).id, []).append(run)
    return {id: [run for run in several if run.failure is None] or several for id, several in found.items()}


def numbers(run: RunResult) -> tuple[object, ...]:
    """All that no step may touch."""
    origin = {key: value for key, value in run.provenance.items() if key != "former_ids"}
    return run.scores, run.metrics, run.failure, origin


def bytes_of(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


def without_new_columns(path: Path, columns: Sequence[str] = OLD_COLUMNS) -> None:
    """Rewrite a file as pflbench wrote it before there were other columns; now: those from `validation` on."""
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(i).select(columns) for i in range(file.num_row_groups)]
        empty = file.schema_arrow.empty_table().select(columns)
    with pq.ParquetWriter(path, empty.schema) as writer:
        for group in groups:
            writer.write_table(group)


run = st.builds(
    lambda method, seed, fails, note: of(method, failed(seed) if fails else done(seed, note=note)),
    st.sampled_from(sorted(METHODS)),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 99),
)


def filled(root: Path, singles: Sequence[RunResult], packs: Sequence[Sequence[RunResult]], old: bool) -> Store:
    """A folder with these runs; of a pack's runs with one id the last is packed. `old`: without the new columns."""
    store = Store(root)
    for number, members in enumerate(packs):
        other = Store(root.with_name(f"pack-{number}"))
        for member in members:
            other.write(member)
        pack(other)
        store.packs.folder.mkdir(parents=True, exist_ok=True)
        for path in pack_files(other):
            shutil.copy(path, store.packs.folder)
    for single in singles:
        Store(root.with_name("single")).write(single)
    if singles:
        shutil.copytree(root.with_name("single") / "runs", store.runs)
    if old:
        for path in store.root.glob("*/*.parquet"):
            without_new_columns(path)
    return Store(root)


@settings(max_examples=25, deadline=None)
@given(st.lists(run, max_size=5), st.lists(st.lists(run, min_size=1, max_size=5), max_size=3), st.booleans())
def test_no_run_is_lost_scores_stay_and_a_second_time_nothing_changes(
    singles: list[RunResult], packs: list[list[RunResult]], old: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        store = filled(Path(folder) / "results", singles, packs, old)
        before = raw(store)
        untouched = bytes_of(store)
        announced = upgrade(store, dry_run=True)
        assert bytes_of(store) == untouched
        done = upgrade(store)
        assert announced.get(RENAMED, 0) == len({run.spec.id for run in before if renamed(run.spec)})
        assert announced.get(COLUMNS, 0) == (len({run.spec.id for run in before}) if old else 0)
        assert done.keys() == announced.keys() and done.get(RENAMED) == announced.get(RENAMED)
        assert all(number <= announced[title] for title, number in done.items())  # one may take the other's file
        after = contents(store)
        assert not [run for run in raw(store) if renamed(run.spec)]
        kept = best(before)
        assert after.keys() == kept.keys()
        for id, run in after.items():
            assert numbers(run) in [numbers(one) for one in kept[id]]
            former = run.provenance.get("former_ids")
            assert former in [one.spec.id if renamed(one.spec) else None for one in kept[id]]
        for path in store.root.glob("*/*.parquet"):
            assert set(pq.read_schema(path).names) == set(schema.COLUMNS.names)
        finished = bytes_of(store)
        assert upgrade(Store(store.root)) == {} and bytes_of(store) == finished
        pack(store)
        assert contents(store) == after


def a_bit_of_all(root: Path) -> Store:
    then = [of(method, done(seed)) for method in NOW for seed in (0, 1)]
    return filled(root, [*then[:3], of("averaged, now", failed(0)), of("fedavg", done(3))], [then, [then[1]]], old=True)


def test_killed_at_any_moment_every_run_is_read_and_upgrading_goes_on(tmp_path: Path) -> None:
    store = a_bit_of_all(tmp_path / "results")
    kept = {id: [numbers(run) for run in runs] for id, runs in best(raw(store)).items()}
    left = snapshots(store, lambda: upgrade(store), tmp_path / "left")
    assert len(left) >= 10
    last = contents(store)
    for number, root in enumerate(left):
        there = best(raw(Store(root)))
        assert there.keys() == kept.keys()
        assert all(numbers(run) in kept[id] for id, runs in there.items() for run in runs)
        if number % 4 == 0:
            upgrade(Store(root))
            assert contents(Store(root)) == last


@pytest.mark.parametrize(("place", "name"), [(os, "fsync"), (Path, "replace"), (Path, "unlink")])
def test_a_full_disk_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: type, name: str) -> None:
    store = a_bit_of_all(tmp_path / "results")
    kept = {id: [numbers(run) for run in runs] for id, runs in best(raw(store)).items()}
    real, moment = getattr(place, name), 0

    def fail(*arguments: object, **options: object) -> object:
        nonlocal moment
        moment -= 1
        if moment == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    for first in range(1, 40, 3):
        here, moment = Store(tmp_path / str(first)), first
        shutil.copytree(store.root, here.root)
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            try:
                upgrade(here)
            except StoreError as error:
                assert "\n" not in str(error)
        there = best(raw(here))
        assert there.keys() == kept.keys()
        assert all(numbers(run) in kept[id] for id, runs in there.items() for run in runs)
        if moment > 0:  # it was over before
            break
    assert first > 1


def test_a_finished_run_goes_before_a_failed_one_of_the_same_id(tmp_path: Path) -> None:
    for number, (then, now) in enumerate([(done(0), failed(0)), (failed(0), done(0))]):
        for packed in (False, True):
            runs = [of("averaged, then", then), of("averaged, now", now)]
            store = filled(
                tmp_path / f"{number}{packed}" / "x", [] if packed else runs, [runs] if packed else [], False
            )
            upgrade(store)
            (kept,) = contents(store).values()
            assert kept.failure is None and len(raw(store)) == 1


def test_users_methods_and_other_hyperparameters_keep_their_names() -> None:
    for name, hyper in [("fedrep", PERSONAL), ("fedrep-averaged", AVERAGED), ("mine.py:fedrep", AVERAGED), ("x", {})]:
        method = MethodSpec(name=name, version="1", hyper=hyper)
        assert renamed(spec().model_copy(update={"method": method})) is None


def test_ids_that_a_run_had_are_kept_in_their_order(tmp_path: Path) -> None:
    def next_seed(run: RunResult) -> RunResult | None:
        if run.spec.seed:
            return None
        return RunResult(run.spec.model_copy(update={"seed": 9}), *list(vars(run).values())[1:])

    store = Store(tmp_path / "results")
    first = of("averaged, then", done(0))
    store.write(first)
    upgrade(store)
    ((second, _),) = contents(store).items()
    assert upgrade(store, (Step("moved to another seed", next_seed),)) == {"moved to another seed": 1}
    ((_, last),) = contents(store).items()
    assert last.spec.seed == 9 and last.provenance["former_ids"] == f"{first.spec.id},{second}"


@pytest.fixture
def old(tmp_path: Path) -> Store:
    return Store(Path(shutil.copytree(OLD, tmp_path / "results", ignore=shutil.ignore_patterns("*.md"))))


def test_a_store_of_9e47583_is_read_and_its_renamed_runs_are_named(old: Store) -> None:
    untouched = bytes_of(old)
    with pytest.warns(OutdatedRuns) as caught:
        listed = old.list()
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "3 runs of the method that was named 'fedrep' and is 'fedrep-averaged' now" in text
    assert "2 runs of the method that was named 'fedrep-personal' and is 'fedrep' now" in text
    assert f"pflbench upgrade --results {old.root}" in text
    assert [run.spec.method.name for run in listed] == ["fedavg", "fedavg"]
    assert bytes_of(old) == untouched


def test_a_store_of_9e47583_is_upgraded(old: Store) -> None:
    before = raw(old)
    assert upgrade(old) == {RENAMED: 5, COLUMNS: 7}
    after: Runs = contents(old)
    assert len(after) == len(before) == 7
    assert {run.spec.method.name for run in after.values()} == {"fedavg", "fedrep", "fedrep-averaged"}
    for run in before:
        now = after[current(run.spec).id]
        assert numbers(now) == numbers(run) and now.provenance.get("former_ids", run.spec.id) == run.spec.id
    assert upgrade(old) == {}


def test_a_glob_tells_trials_of_a_search_from_results(old: Store) -> None:
    def read() -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # pandas on columns that one of the frames lacks
            return pd.concat(map(pd.read_parquet, sorted(old.root.glob("*/*.parquet"))))

    Store(old.root).write(done(5))
    mixed = read()
    assert mixed.validation.isna().sum() == 18 and mixed.validation.notna().sum() == 2  # absent in the old files
    upgrade(old)
    frame = read()
    trials = frame[frame.validation > 0]
    assert set(trials.method) == {"fedrep"} and trials.run_id.nunique() == 1 and frame.run_id.nunique() == 7
    first = trials.iloc[0]
    assert (first.validation, first.training_clients, first.cohort, first["query"]) == (0.1, 2, 2, "0.25")
    assert (first.arrival, first.weights, first.batches, first.augment) == (1.0, "uniform", "static", "none")
    assert (first["tail"], first.tiny_client, first.average, first.global_on) == (
        "drop",
        "single-batch",
        "batches",
        "clients",
    )
    assert (first.scored_clients, first.scored_rounds, first.scored_moment) == ("held-out", 1, "after-aggregation")
    assert pd.isna(first.scored_first) and (first.finetune_steps, first.finetune_lr) == (2, 0.1)
    assert (first.finetune_decay, first.finetune_every) == (1.0, 1)
    assert RunSpec.model_validate_json(first.spec).id == first.run_id


def test_a_file_that_lacks_the_columns_of_a_users_own_alone_is_given_them(tmp_path: Path) -> None:
    own = {"model": "net.py:net", "model_version": "m1", "dataset": Named(name="x.py:X", version="d1", content="c1")}
    run = done(0, unchecked=True)
    run = RunResult(run.spec.model_copy(update=own), *list(vars(run).values())[1:])
    store = filled(tmp_path / "results", [run], [[done(1)]], old=False)
    new = ["dataset_version", "dataset_content", "partition_version", "partition_content", "model_version", "unchecked"]
    for path in store.root.glob("*/*.parquet"):
        without_new_columns(path, [name for name in schema.COLUMNS.names if name not in new])
    store = Store(store.root)
    assert len(contents(store)) == 2
    assert upgrade(store) == {COLUMNS: 2} and upgrade(store) == {}
    frame = pd.concat(map(pd.read_parquet, store.root.glob("*/*.parquet"))).set_index("seed")[new]
    frame = frame.astype(object).where(frame.notna(), None)
    assert frame.loc[0].to_numpy().tolist() == [["d1", "c1", None, None, "m1", True]] * 2
    assert frame.loc[1].to_numpy().tolist() == [[None, None, None, None, None, False]] * 2


def test_a_file_of_another_version_in_the_place_of_the_new_name_is_not_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    store.write(of("averaged, then", done(0)))
    there = store.write(of("averaged, now", done(0)))
    change_metadata(there, "pflbench.schema", lambda _: b"2")
    before = bytes_of(store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignFile)
        with pytest.raises(StoreError, match="is not replaced: schema version 2"):
            upgrade(store)
    assert bytes_of(store) == before


def test_a_run_redone_while_it_is_upgraded_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "results")
    for method in ("averaged, then", "fedavg"):
        without_new_columns(store.write(of(method, done(0))))
    real = Folder.read

    def read(self: Folder, run: Stored) -> RunResult | None:
        found = real(self, run)
        assert found is not None
        Store(store.root).write(
            of("fedavg" if found.spec.method.name == "fedavg" else "averaged, then", done(0, note=1))
        )
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "read", read)
        upgrade(store)
    assert [run.provenance["note"] for run in raw(store)] == [1, 1]


def test_a_damaged_pack_that_could_not_be_rescued_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path / "results", [], [[of("averaged, then", done(seed)) for seed in (0, 1)]], old=False)
    (path,) = pack_files(store)
    change_metadata(path, "pflbench.runs", lambda listing: listing.replace(b'"pflbench.schema": "1"', b'"x": "1"', 1))
    before, write, tried = path.read_bytes(), runfile.write_pack, []

    def full_once(*arguments: object) -> object:
        tried.append(arguments)
        if len(tried) == 1:
            raise StoreError("No space left on device")
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runfile, "write_pack", full_once)
    with pytest.warns(CorruptFile, match="left as it is"):
        assert upgrade(store) == {}
    assert path.read_bytes() == before and len(tried) == 1


def test_many_packs_beside_their_upgraded_selves(tmp_path: Path) -> None:
    """Upgrading each replaces a pack that was listed already: more often than packs may change by chance."""
    members = [[elsewhere(done(seed), 10 * seed)] for seed in range(1, 7)]
    store = filled(tmp_path / "results", [], members, old=True)
    old = bytes_of(store)
    upgrade(store)
    new = bytes_of(store)
    for path, content in old.items():
        path.with_name(f"{path.stem[:-8]}{'0' * 8}.parquet").write_bytes(content)  # each just before its new self
    assert upgrade(Store(store.root)) == {COLUMNS: 6}
    assert bytes_of(store) == new
