"""Figures of who holds which classes, from the federation itself."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from pflbench.cli.main import main
from pflbench.data.datasets.mnist import MNIST
from pflbench.data.root import data_root
from pflbench.report.figures.panels import to_csv
from pflbench.report.figures.pictures import picture
from pflbench.running.federations import classes, look
from pflbench.suite.figure import Classes
from pflbench.suite.load import loaded


@pytest.mark.parametrize("seed", [None, 3])
def test_bars_are_what_clients_hold(seed: int | None) -> None:
    (suite,) = loaded(["cafeme-fig6"], None)
    drawing = classes(suite, "smoke", Classes(kind="classes", clients=4), seed, None)
    assert drawing.panels[0].title.endswith("Shards") and len(drawing.panels) == 3
    held = look("cafeme-table1", "rmnist-shards", profile="smoke", seed=seed).holdings
    found = np.array([[point.y for point in series.points] for series in drawing.panels[0].series])
    np.testing.assert_array_equal(found.T, (held.support + held.query)[:4])
    assert {series.mark for series in drawing.panels[0].series} == {"stacked"}
    assert f"seed {seed or 0}." in drawing.notes[1]
    assert len(picture(drawing, "png")) > 5000
    head, *rows = csv.reader(io.StringIO(to_csv(drawing)))
    assert head[4:6] == ["client", "rows"] and len(rows) == 3 * 10 * 4


def test_it_is_drawn_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "six.csv"
    with pytest.raises(SystemExit) as ended:
        main(["plot", "cafeme-fig6", "--profile", "smoke", "--seeds", "1", "-o", str(file)])
    assert ended.value.code == 0
    assert "seed 1." in capsys.readouterr().out and file.read_text().startswith(
        "figure,profile,panel,series,client,rows"
    )


@pytest.mark.data
def test_figure_6_is_the_sheets() -> None:
    """RMNIST by shards: 600 images each, and few clients with one or three classes (CAFeMe, authors' code)."""
    if not (status := MNIST().status(data_root())).startswith("ready"):
        pytest.skip(status)
    for seed in range(5):
        held = look("cafeme-table1", "rmnist-shards", seed=seed).holdings
        counts = held.support + held.query
        several = np.bincount((counts > 0).sum(axis=1), minlength=4)
        assert set(counts.sum(axis=1)) == {600}
        assert 6 <= several[3] <= 8 and 77 <= several[2] <= 90 and 2 <= several[1] <= 15
