"""What a release holds: wheel and sdist are built and looked into, and the wheel's program is started."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pflbench.result import RunResult
from pflbench.store import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
MOST = 15_000_000
"""Bytes of a wheel."""
REFERENCE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "results" / "packs").iterdir())
BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def stages(run: RunResult) -> set[str]:
    return {one.stage for one in run.scores}


def built(what: str, into: Path) -> Path:
    command = [sys.executable, "-c", BUILD, what, str(into)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("build_wheel", tmp_path_factory.mktemp("wheel"))


def test_a_wheel_holds_what_tables_read_of_the_reference_runs_and_is_small(wheel: Path, tmp_path: Path) -> None:
    assert wheel.stat().st_size < MOST, "the shipped runs need leave out more (pflbench/store/thin.py)"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert (tmp_path / "pflbench" / "CITATION.cff").read_bytes() == (ROOT / "CITATION.cff").read_bytes()
    packed, whole = Store(tmp_path / "pflbench" / "results"), Store(ROOT / "results")
    assert len(whole.indexed(whole.packs)) == len(packed.indexed(packed.packs)) > 10
    here = {run.spec.id: run for run in whole.list() if run.path.parent.name == "packs"}
    assert here.keys() == {run.spec.id for run in packed.list()}
    shorter = 0
    for id, run in here.items():
        thin, full = packed.read(id), whole.read(id)
        assert (thin.failure, [*thin.metrics]) == (full.failure, [*full.metrics])
        rounds = {stage: sorted({one.round for one in full.scores if one.stage == stage}) for stage in stages(full)}
        if run.provenance.get("evaluate_every") != 1:
            most = max(10, run.spec.scoring.last)
            rounds = {stage: several[-most:] for stage, several in rounds.items()}
        assert [*thin.scores] == [one for one in full.scores if one.round in rounds[one.stage]]
        shorter += len(thin.scores) < len(full.scores)
    assert shorter > 10


def test_an_sdist_holds_what_the_wheel_is_built_from(tmp_path: Path) -> None:
    with tarfile.open(built("build_sdist", tmp_path)) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    assert {*REFERENCE, "hatch_build.py", "CITATION.cff", "pyproject.toml", "benchmarks/cafeme/table1.toml"} <= there


def test_an_installed_wheel_shows_its_tables_where_nothing_was_trained(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PFLBENCH_")}
    clean |= {"PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def call(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-P", "-m", "pflbench", *arguments] if sys.version_info >= (3, 11) else []
        command = command or [sys.executable, "-m", "pflbench", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, said = call("report", "-s", "cafeme-table1", "--profile", "quick")
    assert code == 0 and "CAFeMe" in said and "24 of 24" in said
    assert call("report")[0] == 0
    code, said = call("report", "-s", "cafeme-table1", "--profile", "quick", "--fresh")
    assert code == 2 or "0 of" in said
    code, said = call("run", "-s", "cafeme-table1", "--profile", "smoke", "--seeds", "0", "--dry-run")
    assert code == 0 and ": 0 done" in said
    assert not (tmp_path / "results").exists()
