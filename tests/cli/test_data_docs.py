"""docs/data.md: the split and the snippets work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from pflbench.running.federations import look

TEXT = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


@pytest.fixture
def mine(folder: Path) -> Path:
    (suite,), (split,) = blocks("A split of your own", "toml"), blocks("A split of your own", "json")
    (folder / "mine.toml").write_text(suite)
    (folder / "split.json").write_text(split)
    return folder


def test_a_split_of_ones_own_becomes_a_table(cli, mine: Path) -> None:
    assert cli("run", "-s", "mine.toml").code == 0
    report = cli("report", "-s", "mine.toml")
    assert report.code == 0 and "FedAvg" in report.out and "1 done, 0 failed" in report.out
    federation = look("mine.toml", "digits").federation
    assert [sorted(rows.tolist()) for rows in federation.support][2] == [20, 21, 22, 23]
    assert [rows.tolist() for rows in federation.query] == [[100, 101], [102, 103, 104], [105]]


def test_every_command_of_the_docs_works(cli, mine: Path) -> None:
    (commands,) = blocks("Look at a federation", "bash")
    for line in commands.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "pflbench" and cli(*arguments).code == 0, line
    assert Path("who.png").stat().st_size > 1000


def test_a_split_for_pfllib_is_read_as_pfllib_reads_it(folder: Path) -> None:
    (snippet,) = blocks("Look at a federation", "python")
    exec(compile(snippet, "docs/data.md", "exec"), {})
    federation = look("cafeme-table1", "cifar10-dirichlet", profile="smoke", seed=0).federation
    for part, held in {"train": federation.support, "test": federation.query}.items():
        for client, rows in enumerate(held):
            with Path(f"PFLlib/dataset/Mine/{part}/{client}.npz").open("rb") as file:
                data = np.load(file, allow_pickle=True)["data"].tolist()
            assert data["x"].dtype == np.float32 and data["x"].shape[1:] == (3, 32, 32)
            assert np.array_equal(np.rint(data["x"] * 255).astype(np.uint8), federation.x.numpy()[rows])
            assert np.array_equal(data["y"], federation.labels[rows])
