"""An independent program computes every cell, spread and verdict of the committed results again."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from pflbench.cli import main as program

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "statistics" / "recompute.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recompute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recompute", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CSV of every table that the committed packs fill."""
    path = tmp_path_factory.mktemp("report") / "all.csv"
    asked = ["report", "--all", "--full", "--format", "csv", "-r", str(ROOT / "results"), "-o", str(path)]
    with pytest.raises(SystemExit) as ended:
        program.main(asked)
    assert not ended.value.code
    return path


def test_every_cell_comes_again(recompute: ModuleType, report: Path) -> None:
    assert "pflbench" not in [
        line.split()[1] for line in PROGRAM.read_text().splitlines() if line.startswith("import ")
    ]
    assert "from pflbench" not in PROGRAM.read_text()
    assert len(pd.read_csv(report)) > 300
    assert list(recompute.mismatches(report)) == []


@pytest.mark.parametrize("name", ["mean", "std", "sem", "n", "difference", "difference_low", "difference_high"])
def test_a_number_that_is_off_is_found(recompute: ModuleType, report: Path, tmp_path: Path, name: str) -> None:
    lines = pd.read_csv(report, dtype=str, keep_default_na=False)
    (place, *_) = lines.index[lines["verdict"].isin(["agrees", "close", "inconclusive", "differs"])]
    lines = lines.loc[[place]]
    lines.loc[place, name] = f"{float(lines.loc[place, name]) + 0.001}"
    lines.to_csv(tmp_path / "off.csv", index=False)
    (found,) = recompute.mismatches(tmp_path / "off.csv")
    assert f": {name} is " in found


def test_a_wrong_verdict_is_found(recompute: ModuleType, report: Path, tmp_path: Path) -> None:
    """Scaffold's interval on Fashion-MNIST is within the margin and does not hold 0."""
    lines = pd.read_csv(report, dtype=str, keep_default_na=False)
    lines = lines[lines["verdict"] == "close"].head(1).assign(verdict="differs")
    assert len(lines) == 1
    lines.to_csv(tmp_path / "off.csv", index=False)
    (found,) = recompute.mismatches(tmp_path / "off.csv")
    assert "verdict is 'differs' in the report, 'close' from its runs." in found
