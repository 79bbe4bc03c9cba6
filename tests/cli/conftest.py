"""The program called in this process, in an empty folder that holds one tiny suite."""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_kit import MISSING_COLUMN, SEVERAL, SUITE, make_up

from pflbench.cli import main as program


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def no_measurements(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured on this machine is nobody's business here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def no_contract(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users' methods train without being held against the contract, which takes seconds; `checked` brings it back."""
    if "checked" not in request.fixturenames:
        monkeypatch.setattr("pflbench.running.training._check_contract", lambda jobs, on_event: None)


@pytest.fixture
def checked() -> None:
    """Users' methods are held against the contract, as outside of tests."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    for name in os.environ:
        if name.startswith("PFLBENCH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PFLBENCH_JOBS", "1")  # in this process, without workers
    monkeypatch.setenv("PFLBENCH_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(SUITE)
    (tmp_path / "partly.toml").write_text(SUITE + MISSING_COLUMN)
    (tmp_path / "several.toml").write_text(SUITE + SEVERAL)
    return tmp_path


@pytest.fixture
def whole() -> dict[str, tuple[str, ...]]:
    """Options that `cli` adds to a verb; short forms have tests of their own, which clear this."""
    return {"report": ("--full", "--all"), "explain": ("--full",), "ls": ("--all",)}


@pytest.fixture
def cli(folder: Path, whole: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("run", "-s", "tiny.toml")` → exit code, output, errors."""

    def call(*arguments: str) -> Result:
        arguments = (*arguments, *(whole.get(arguments[0], ()) if arguments else ()))
        capsys.readouterr()
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            warnings.simplefilter("default")  # as outside of tests: shown, not raised
            program.main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err or "--debug" in arguments
        return Result(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is an error."""

    def simulate(*_: object) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr("pflbench.running.job.Simulation.run", simulate)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the tiny suite in two columns, and of a run that failed, made up."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "tiny.toml").write_text(SUITE)
    make_up(folder / "results", folder / "tiny.toml")
    return folder / "results"


@pytest.fixture
def results(folder: Path, made: Path) -> Path:
    return Path(shutil.copytree(made, folder / "results"))
