"""Options of datasets and partitions that name a user's files: where they are looked for, and what a spec keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pflbench.report.provenance import instead
from pflbench.running import build
from pflbench.suite.expand import expand
from pflbench.suite.load import loaded

LAB = """
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pflbench.data.datasets.digits import Digits


@dataclass(frozen=True)
class Some:
    \"\"\"As many digits as a file says.\"\"\"

    file: Path
    seeded = False
    shape = (1, 28, 28)
    classes = 10

    def load(self, root, seed):
        whole, n = Digits().load(root, seed), json.loads(self.file.read_text())
        return type(whole)(whole.images[:n], whole.labels[:n], None, 10, whole.hash)

    def status(self, root):
        return "ready" if self.file.is_file() else "missing"

    def files(self, root):
        return [self.file]
"""
SUITE = """
[suite]
name = "paths"
title = "Paths"
paper = "none"
protocol = "ours"
seeds = [0]
spread = { kind = "sem" }

[federation]
clients = 4
query = 0.25

[evaluation]
clients = "all"
average = "examples"

[[column]]
id = "a"
title = "A"
dataset = { name = "lab.py:Some", file = "GIVEN" }
partition = { name = "shards", shards = 8 }
model = "cnn2"
rounds = 1
batch = 10

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stage = "global"
"""


def spec(folder: Path, given: str, root: Path) -> tuple[Any, Any]:
    (folder / "lab.py").write_text(LAB, encoding="utf-8")
    file = folder / "s.toml"
    file.write_text(SUITE.replace("GIVEN", given), encoding="utf-8")
    (suite,) = loaded([str(file)], root)
    table = expand(suite)
    return table.runs[0], table.locations[table.runs[0].id]


@pytest.mark.parametrize("form", ["data/n.json", "{folder}/data/n.json", "below.json"])
def test_a_file_is_looked_for_beside_the_suite_then_in_the_data_root(tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    for path in (tmp_path / "lab" / "data" / "n.json", root / "below.json"):
        path.parent.mkdir(parents=True)
        path.write_text("400", encoding="utf-8")
    given = form.format(folder=tmp_path / "lab")
    run, places = spec(tmp_path / "lab", given, root)
    assert run.dataset.options == {"file": Path(given).name}
    assert run.dataset.content is not None
    assert len(build.federation(run, root, places).labels) == 400


def test_where_a_file_lies_is_no_part_of_a_run_and_what_it_holds_is(tmp_path: Path) -> None:
    ids = []
    for place, held in (("one", 400), ("two/below", 400), ("three", 500)):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "n.json").write_text(json.dumps(held), encoding="utf-8")
        ids.append(spec(folder, "n.json", tmp_path)[0].id)
    assert ids[0] == ids[1] != ids[2]


def test_a_file_that_is_not_there_leaves_a_run_without_content(tmp_path: Path) -> None:
    run, places = spec(tmp_path, "none.json", tmp_path / "root")
    assert run.dataset.content is None
    assert places["datasets.file"] == str(tmp_path / "none.json")


def test_a_number_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(LAB, encoding="utf-8")
    file = tmp_path / "s.toml"
    file.write_text(SUITE.replace('"GIVEN"', "7"), encoding="utf-8")
    with pytest.raises(Exception, match=r"dataset\.file: .*Some\.file must be Path, not 7"):
        expand(loaded([str(file)], tmp_path)[0])


def test_an_edited_file_of_a_built_in_dataset_makes_new_runs_and_is_told(tmp_path: Path) -> None:
    ids, runs = [], []
    for value in (0, 1, 0):
        images = np.full((40, 6, 6), value, dtype=np.uint8)
        np.savez(tmp_path / "mine.npz", train_images=images, train_labels=np.arange(40) % 4)
        file = tmp_path / "s.toml"
        file.write_text(
            SUITE.replace('"lab.py:Some", file = "GIVEN"', '"arrays", file = "mine.npz"').replace("cnn2", "mlp"),
            encoding="utf-8",
        )
        runs.append(expand(loaded([str(file)], tmp_path)[0]).runs)
        ids.append(runs[-1][0].id)
    assert ids[0] == ids[2] != ids[1] and runs[0][0].dataset.version is None
    assert instead(runs[1], runs[0]) == "1 stored run was made with another version of what is read by arrays"
