"""Reference runs that come with an installed pflbench: shown and labeled, and nobody's to run, pack or remove."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import pflbench as pb
from pflbench import package
from pflbench.package import __version__
from pflbench.store import ShownStore, Store
from pflbench.store.packing import pack
from pflbench.store.thin import KEPT

LABEL = f"Packaged reference runs, which came with pflbench {__version__}: "


@pytest.fixture
def packaged(folder: Path, made: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> Path:
    """Packs of the made-up results, in a package's place."""
    root = tmp_path_factory.mktemp("package") / "results"
    shutil.copytree(made, root)
    pack(Store(root))
    monkeypatch.setattr("pflbench.store.shown.packaged_folder", lambda: root / "packs")
    return root / "packs"


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
    assert ", packaged" in cli("explain", "tiny.toml", "ditto", "shards", "--no-data").out
    assert pb.table(pb.select("tiny.toml")).to_frame().n.sum() == 11
    assert not (folder / "results").exists()


def test_a_checkouts_packs_are_the_packaged_ones_from_any_folder(
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # other tests see none
    monkeypatch.chdir(tmp_path)
    checkout = Path(__file__).parents[2] / "results"
    if package.FOLDER.parent != checkout.parent:
        pytest.skip("pflbench is installed, and no checkout")
    there = ShownStore(Path("results")).list()
    assert len(there) > 600 and all(run.packaged for run in there)
    assert cli("report").out.startswith("CAFeMe, Table 1\n"), "without a run of one's own, a paper's table"
    # There they are its own runs, counted once.
    own = ShownStore(checkout)
    assert not any(run.packaged for run in own.list()) and len(own.folders) == len(Store(checkout).folders)
    assert not Store(Path("results")).list()


@pytest.mark.usefixtures("packaged")
def test_the_short_form_labels_them_too(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PFLBENCH_REPORT_FULL")
    assert LABEL in " ".join(cli("report", "-s", "tiny.toml").out.split())


def test_those_without_early_rounds_say_where_these_are(cli, packaged: Path) -> None:
    assert "begin" not in cli("report", "-s", "tiny.toml").out
    store = Store(packaged.parent)
    result = store.read(next(run.spec.id for run in store.list() if run.failure is None))
    store.write(replace(result, provenance=result.provenance | {KEPT: 10}))
    pack(store)
    late = f"{LABEL}8 of 8. For 1 of them the package holds the last ten scored rounds alone, so"
    assert late in " ".join(cli("report", "-s", "tiny.toml").out.split())


@pytest.mark.usefixtures("packaged")
def test_they_can_be_left_out(cli) -> None:
    for more in ("--no-packaged", "--fresh"):
        result = cli("report", "-s", "tiny.toml", more)
        assert result.code == 2 and "No results" in result.err
    with pytest.raises(pb.api.UsageError, match="No results"):
        pb.table(pb.select("tiny.toml"), packaged=False)
    assert cli("scores", "-s", "tiny.toml").code == 2 and cli("scores", "-s", "tiny.toml", "--packaged").code == 0


@pytest.mark.usefixtures("packaged")
def test_ones_own_runs_go_before_them(cli, results: Path) -> None:
    kept, *others = sorted((results / "runs").glob("*.parquet"))
    for path in others:
        path.unlink()
    assert f"{LABEL}7 of 8" in cli("report", "-s", "tiny.toml").out
    store = ShownStore(results)
    assert store.find(kept.stem).path == kept and len(store.list()) == 8
    assert all(store.read(run.spec.id).spec == run.spec == store.fetch(run).spec for run in store.list())


def test_no_verb_counts_or_changes_them(cli, packaged: Path) -> None:
    before = tree(packaged)
    id = ShownStore(Path("results")).list()[0].spec.id
    assert "No results in" in cli("status", "-s", "tiny.toml").out
    assert "No run in" in cli("ls", "runs").out
    assert "8 to do" in cli("run", "-s", "tiny.toml", "--dry-run").out
    assert "8 runs to do" in cli("plan", "-s", "tiny.toml", "--no-measure").out
    assert cli("rm", id, "--yes").code == 2
    assert cli("pack").out.startswith("Nothing to pack")
    assert cli("show", id).code == 0 and cli("show", id, "--no-packaged").code == 2
    assert tree(packaged) == before


def test_damaged_ones_stay_as_they_are(cli, packaged: Path) -> None:
    first, second = sorted(packaged.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:1000])
    before = tree(packaged)
    result = cli("report", "-s", "tiny.toml")
    assert f"{LABEL}4 of 4." in result.out
    (line,) = result.err.splitlines()
    assert first.name in line and "left as it is" in line and second.name not in line
    assert tree(packaged) == before
