"""Reference runs that come with pflbench, in a wheel or a clone: shown and labeled, and never taken for the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pflbench as pb
from pflbench import package
from pflbench.errors import UsageError
from pflbench.package import __version__
from pflbench.store import ShownStore, Store
from pflbench.store.shipped import SHORTENED, write_list
from pflbench.store.verbs import pack

LABEL = f"Reference runs that came with pflbench {__version__}: "
ONE = ("-s", "tiny.toml", "--column", "shards", "--method", "fedavg", "--seeds", "0")


def ship(made: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packs of the made-up results, in the place of those that come with pflbench."""
    store = Store(root)
    for run in Store(made).list():
        result = Store(made).read(run.spec.id)
        store.write(replace(result, provenance=result.provenance | {"finished": "2026-11-01T12:00:00+00:00"}))
    pack(store)
    write_list(root / "packs", store.list())
    monkeypatch.setattr("pflbench.store.shipped.shipped_folder", lambda: root / "packs")
    return root / "packs"


@pytest.fixture
def packaged(folder: Path, made: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> Path:
    """Shipped packs in the package."""
    return ship(made, tmp_path_factory.mktemp("package") / "results", monkeypatch)


@pytest.fixture(params=["wheel", "clone"])
def shipped(request: pytest.FixtureRequest, folder: Path, made: Path, tmp_path_factory, monkeypatch) -> Path:
    """Shipped packs in the package, or in the results folder itself."""
    root = folder if request.param == "clone" else tmp_path_factory.mktemp("package")
    return ship(made, root / "results", monkeypatch)


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.usefixtures("packaged")
def test_a_machine_that_never_trained_shows_them(cli, folder: Path, made: Path) -> None:
    own = cli("report", "-s", "tiny.toml", "--format", "csv", "-r", str(made)).out
    shown = cli("report", "-s", "tiny.toml", "--format", "csv")
    assert shown[:2] == (0, own) and shown.err.startswith(
        "tiny (paper): Missing, as they failed: Ditto: Dirichlet (seed 1)."
    )
    for format in ("terminal", "markdown", "latex"):
        assert f"{LABEL}8 of 8." in " ".join(cli("report", "-s", "tiny.toml", "--format", format).out.split())
    assert LABEL in cli("plot", "tiny.toml", "--per-client", "-o", "clients.csv").out
    assert ", came with pflbench" in cli("explain", "tiny.toml", "ditto", "shards", "--no-data").out
    assert pb.table(pb.select("tiny.toml")).to_frame().n.sum() == 11
    assert not (folder / "results").exists()


def test_a_checkouts_packs_are_the_shipped_ones_from_any_folder(
    cli, whole: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole.clear()
    monkeypatch.undo()  # other tests see none
    monkeypatch.chdir(tmp_path)
    checkout = Path(__file__).parents[2] / "results"
    if package.FOLDER.parent != checkout.parent:
        pytest.skip("pflbench is installed, and no checkout")
    there = ShownStore(Path("results")).list()
    assert len(there) > 600 and all(run.shipped for run in there)
    assert cli("report").out.startswith("CAFeMe, Table 1\n"), "without a run of one's own, a paper's table"
    here = ShownStore(checkout)
    assert {run.spec.id for run in here.list()} == {run.spec.id for run in there}
    assert not [run for run in here.list() if not run.shipped], "results/packs/shipped.txt lacks a committed run"
    assert len(here.folders) == 2 and not Store(Path("results")).list()


@pytest.mark.usefixtures("packaged")
def test_the_short_form_labels_them_too(cli, whole: dict[str, tuple[str, ...]]) -> None:
    whole.clear()
    assert LABEL in " ".join(cli("report", "-s", "tiny.toml").out.split())


def test_those_without_early_rounds_say_where_these_are(cli, packaged: Path) -> None:
    assert "begin" not in cli("report", "-s", "tiny.toml").out
    store = Store(packaged.parent)
    result = store.read(next(run.spec.id for run in store.list() if run.failure is None))
    (packaged / "shipped.txt").unlink()
    store = Store(packaged.parent)
    store.write(replace(result, provenance=result.provenance | {SHORTENED: 10}))
    pack(store)
    write_list(packaged, store.list())
    late = f"{LABEL}8 of 8. For 1 of them the package holds the last ten scored rounds alone, so"
    assert late in " ".join(cli("report", "-s", "tiny.toml").out.split())


def test_fresh_leaves_them_out(cli, shipped: Path) -> None:
    result = cli("report", "-s", "tiny.toml", "--fresh")
    assert result.code == 2 and "No results" in result.err and "--fresh`" in result.err
    with pytest.raises(UsageError, match="No results"):
        pb.table(pb.select("tiny.toml"), fresh=True)
    assert "8 runs to do" in cli("plan", "-s", "tiny.toml", "--fresh").out
    assert "8 to do" in cli("run", "-s", "tiny.toml", "--dry-run", "--fresh").out


@pytest.mark.usefixtures("packaged")
def test_ones_own_runs_go_before_them(cli, results: Path) -> None:
    kept, *others = sorted((results / "runs").glob("*.parquet"))
    for path in others:
        path.unlink()
    assert f"{LABEL}7 of 8" in cli("report", "-s", "tiny.toml").out
    store = ShownStore(results)
    assert store.find(kept.stem).path == kept and len(store.list()) == 8
    assert all(store.read(run.spec.id).spec == run.spec for run in store.list())


def test_without_fresh_they_are_done_and_said(cli, shipped: Path) -> None:
    before = tree(shipped)
    said = "came with pflbench; `--fresh` trains"
    assert f"8 of 8 runs {said} them here." in cli("run", "-s", "tiny.toml", "--dry-run").out
    assert f"8 of 8 runs {said} them here." in cli("plan", "-s", "tiny.toml").out
    outcome = cli("run", *ONE)
    assert outcome.code == 0 and f"1 of 1 run {said} it here." in outcome.out
    assert "7 done (7 came with pflbench), 1 failed, 0 missing" in cli("status", "-s", "tiny.toml").out
    assert pb.run(pb.select("tiny.toml", methods=["fedavg"], seeds=[0])).runnable == []
    assert tree(shipped) == before


def test_fresh_trains_them_once_and_the_users_run_is_shown(cli, shipped: Path) -> None:
    before = tree(shipped)
    shown = cli("report", "-s", "tiny.toml", "--format", "csv").out
    assert "1 run finished" in cli("run", *ONE, "--fresh").out
    (path,) = Path("results/runs").glob("*.parquet")
    id = path.stem
    assert "`pflbench run --suite tiny.toml --fresh`" in cli("report", "-s", "tiny.toml", "--fresh").out
    for _ in range(2):  # by itself, then packed
        again = cli("run", *ONE, "--fresh")
        assert again.code == 0 and "1 run: 1 done, 0 failed before, 0 to do." in again.out
        assert "came with" not in cli("run", *ONE).out
        assert f"{LABEL}7 of 8" in cli("report", "-s", "tiny.toml").out
        assert cli("report", "-s", "tiny.toml", "--format", "csv").out != shown
        assert pb.table(pb.select("tiny.toml"), fresh=True).to_frame().n.sum() == 2  # two stages of one run
        assert "7 done (6 came with pflbench), 1 failed" in cli("status", "-s", "tiny.toml").out
        assert cli("report").out.startswith("Tiny")
        assert not ShownStore(Path("results")).find(id).shipped and len(ShownStore(Path("results")).list()) == 8
        assert {name: content for name, content in tree(shipped).items() if name in before} == before
        assert cli("pack").code == 0 and not path.exists()
    assert cli("pack").out.startswith("Nothing to pack")
    assert cli("rm", id, "--yes").code == 0
    assert cli("report", "-s", "tiny.toml", "--format", "csv").out == shown and tree(shipped) == before


def test_a_failure_of_a_fresh_run_is_stored_and_the_shipped_one_is_shown(cli, shipped: Path) -> None:
    (id,) = (
        run.id
        for run in pb.run(
            pb.select("tiny.toml", methods=["fedavg"], columns=["shards"], seeds=[0]), fresh=True
        ).runnable
    )
    store = Store(Path("results"), fresh=True)
    result = store.read(id)
    store.path(id).unlink()
    store.write(replace(result, scores=(), failure="diverged in round 1"))
    assert f"{LABEL}8 of 8" in cli("report", "-s", "tiny.toml").out
    again = cli("run", *ONE, "--fresh")
    assert again.code == 1 and "1 failed before, 0 to do." in again.out
    assert "1 of 1 run came with pflbench" in cli("run", *ONE).out


def test_merge_brings_the_users_run_beside_the_shipped_one(cli, shipped: Path) -> None:
    assert cli("run", *ONE, "--fresh", "-r", "theirs").code == 0
    before = tree(shipped)
    merged = cli("merge", "theirs", "--into", "results")
    assert (merged.code, merged.out) == (0, "1 run merged into 'results', 0 were there.\n")
    assert cli("merge", "theirs", "--into", "results").out == "0 runs merged into 'results', 1 was there.\n"
    assert f"{LABEL}7 of 8" in cli("report", "-s", "tiny.toml").out and tree(shipped) == before
    if shipped.parent == Path("results").resolve():
        assert cli("merge", "results", "--into", "third").out == "8 runs merged into 'third', 0 were there.\n"
        assert cli("merge", "results", "--into", "theirs").out == "7 runs merged into 'theirs', 1 was there.\n"


def test_a_search_takes_shipped_trials(cli, folder: Path, tmp_path_factory, monkeypatch) -> None:
    tune = '\n[tune]\ncolumns = ["shards"]\ngrid.fedavg = { lr = [0.05, 0.01] }\n'
    (folder / "tuned.toml").write_text((folder / "tiny.toml").read_text() + tune)
    search = ("tune", "-s", "tuned.toml", "-m", "fedavg", "--rounds", "1")
    assert cli(*search, "-r", "theirs").code == 0
    ship(folder / "theirs", tmp_path_factory.mktemp("package") / "results", monkeypatch)
    again = cli(*search)
    assert again.code == 0 and "best" in again.out and not Path("results").exists()


def test_no_verb_changes_them(cli, shipped: Path) -> None:
    before = tree(shipped)
    id = ShownStore(Path("results")).list()[0].spec.id
    assert cli("rm", id, "--yes").code == 2
    assert cli("pack").out.startswith("Nothing to pack")
    assert cli("show", id).code == 0
    assert tree(shipped) == before


def test_the_users_runs_alone_are_counted_where_a_suite_has_no_results(cli, packaged: Path, folder: Path) -> None:
    text = (folder / "tiny.toml").read_text().replace("rounds = 2", "rounds = 3").replace('"tiny"', '"longer"')
    (folder / "longer.toml").write_text(text)
    said = cli("report", "-s", "longer.toml")
    assert said.code == 2 and "No results of" in said.err and "runs there have" not in said.err


def test_plain_report_shows_the_users_merged_runs(cli, packaged: Path, folder: Path, made: Path) -> None:
    """Also where no run tells which suite asked for it, or the suite that was asked last is gone."""
    result = Store(made).read(Store(made).list()[0].spec.id)
    gone = {"suite": "gone", "profile": "paper", "file": "gone.toml"}
    here = {"suite": "tiny", "profile": "paper", "file": "tiny.toml"}
    for seed, asked, day in ((0, here, "01"), (1, gone, "02")):
        spec = result.spec.model_copy(update={"seed": seed})
        told = result.provenance | {"asked": asked, "finished": f"2025-01-{day}T00:00:00+00:00"}
        Store(folder / "other").write(replace(result, spec=spec, provenance=told))
    assert cli("merge", "other", "--into", "results").code == 0
    assert cli("report").out.startswith("Tiny")


def test_tables_with_a_run_of_the_user_go_before_all_others(cli, packaged: Path, folder: Path) -> None:
    text = (folder / "tiny.toml").read_text().replace("rounds = 2", "rounds = 1").replace('"tiny"', '"z-mine"')
    (folder / "z-mine.toml").write_text(text)
    assert cli("run", *ONE).code == cli("run", "-s", "z-mine.toml", *ONE[2:]).code == 0
    lines = cli("report", "--all", "--format", "csv").out.splitlines()
    assert list(dict.fromkeys(line.split(",")[0] for line in lines[1:])) == ["z-mine", "tiny"]
    statuses = [line.split(" [")[0] for line in cli("status").out.splitlines() if "missing" in line and "[" in line]
    assert list(dict.fromkeys(statuses)) == ["z-mine.toml", "tiny.toml"]


def test_damaged_ones_stay_as_they_are(cli, packaged: Path) -> None:
    first, second = sorted(packaged.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:1000])
    before = tree(packaged)
    result = cli("report", "-s", "tiny.toml")
    assert f"{LABEL}4 of 4." in result.out
    (line,) = result.err.splitlines()
    assert first.name in line and "left as it is" in line and second.name not in line
    assert tree(packaged) == before
