"""The program called in this process, as a user calls it in a folder with a stranger's results."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from attack_kit import CLAIMED, CLAIMS, SUITE, Cli, Lab, Said

from pflbench.cli import main as program


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name in os.environ:
        if name.startswith("PFLBENCH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PFLBENCH_JOBS", "1")  # in this process, without workers
    monkeypatch.setenv("PFLBENCH_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m pflbench` has it
    (tmp_path / "tiny.toml").write_text(SUITE)
    (tmp_path / "claimed.toml").write_text(CLAIMED)
    (tmp_path / "claims.toml").write_text(CLAIMS)
    return Lab(tmp_path)


@pytest.fixture
def cli(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("report", "-s", "tiny.toml")` → exit code, output, errors."""

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            warnings.simplefilter("default")  # as outside of tests: shown, not raised
            program.main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and "a bug in pflbench" not in err
        return Said(int(ended.value.code or 0), out, err)

    return call
