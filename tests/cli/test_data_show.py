"""`pflbench data show`: the text and the picture of a federation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pflbench.running.federations import look
from pflbench.suite.expand import expand
from pflbench.suite.load import load

COLUMNS = {
    "share": 'dataset = { name = "digits" }\npartition = { name = "dirichlet", alpha = 1.0 }\nquery = 0.2',
    "split": 'dataset = { name = "digits", test = 297 }\npartition = { name = "classes-per-client", classes = 3 }\n'
    'query = "test-split"',
    "dealt": 'dataset = { name = "digits", test = 300 }\npartition = { name = "class-shards" }\nquery = "partition"',
    "shared": 'dataset = { name = "digits" }\npartition = { name = "letter-users", mode = "released", scale = 0.2 }\n'
    'query = "partition"',
    "seeded": 'dataset = { name = "rotated-digits", rotations = 5 }\npartition = { name = "kinds" }\nquery = 0.2',
}
SUITE = """
[suite]
name = "own"
title = "Own"
paper = "none"
protocol = "our own choice"
seeds = [3, 4]
spread = { kind = "sem" }

[federation]
clients = 10
training_clients = 8
cohort = 2
query = 0.2

[evaluation]
clients = "held-out"
average = "examples"

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stage = "global"

[hyper.fedavg]
lr = 0.1
"""


def column(name: str, body: str) -> str:
    return f'\n[[column]]\nid = "{name}"\ntitle = "{name}"\n{body}\nmodel = "mlp"\nrounds = 2\nbatch = 10\n'


@pytest.fixture
def own(folder: Path) -> Path:
    path = folder / "own.toml"
    path.write_text(SUITE + "".join(column(name, body) for name, body in COLUMNS.items()))
    return path


def test_another_seed(own: Path) -> None:
    first, other = (look(str(own), "share", seed=seed) for seed in (None, 4))
    assert first.spec.seed == 3 and other.spec.seed == 4 and other.holdings.split != first.holdings.split


def test_it_is_what_runs_train_on(cli, own: Path) -> None:
    from pflbench.running.build import federation

    run = expand(load(str(own)), columns=["share"]).runs[0]
    built, looked = federation(run, own.parent), look(str(own), "share")
    assert looked.spec.id == run.id
    for mine, other in zip(built.support, looked.federation.support, strict=True):
        assert np.array_equal(mine, other)


def test_what_is_printed(cli, own: Path) -> None:
    shown = cli("data", "show", "own.toml", "split")
    assert shown.code == 0 and not shown.err
    assert "own · split, profile paper, seed 3 · support rows of each class" in shown.out
    assert "10 clients, 2 held out: " in shown.out and "Of a client's support: classes 3." in shown.out
    assert "The global model is scored on 297 rows." in shown.out
    assert re.search(r"Several clients are scored on 2\d\d rows\.", shown.out)
    assert (
        "Dataset digits(" in shown.out and "partition classes-per-client(classes=3); query = 'test-split'." in shown.out
    )
    assert "kinds 1" in cli("data", "show", "own.toml", "seeded").out
    smoke = cli("data", "show", "cafeme-table1", "rmnist-shards", "--profile", "smoke")
    assert smoke.code == 0 and "profile smoke" in smoke.out


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_picture(cli, own: Path, form: str) -> None:
    assert cli("data", "show", "own.toml", "share", "-o", f"who.{form}").code == 0
    if form == "png":
        with Image.open("who.png") as image:
            assert image.width > 400


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("own.toml", "shares"), "Unknown column 'shares'"),
        (("nowhere.toml", "share"), "Unknown suite file 'nowhere.toml'"),
        (("own", "share"), "Unknown suite 'own'"),
        (("own.toml", "share", "--profile", "quick"), "quick"),
        (("own.toml", "share", "-o", "who.gif"), "Unknown format 'gif'"),
        (("cafeme-table1", "rmnist-shards"), "pflbench data fetch mnist"),
        (("fedec-table1", "x"), "Unknown column 'x'"),
        (("fedec-table1", "femnist"), "trains nothing"),
    ],
)
def test_what_cannot_be_shown(cli, own: Path, arguments: tuple[str, ...], says: str) -> None:
    result = cli("data", "show", *arguments)
    assert result.code in (1, 2) and says in " ".join(result.err.split())


def test_a_split_of_ones_own_becomes_a_table_and_an_edit_computes_anew(cli, folder: Path) -> None:
    def write(clients: list[dict[str, list[int]]]) -> None:
        split.write_text(json.dumps(clients))

    split = folder / "split.json"
    write([{"train": list(range(client, 1797, 10)), "test": [client + 1700]} for client in range(10)])
    body = 'dataset = { name = "digits", test = 97 }\npartition = { name = "given", file = "split.json" }\n'
    (folder / "mine.toml").write_text(SUITE + column("given", body + 'query = "partition"'))
    wrong = cli("run", "-s", "mine.toml", "--seeds", "0")
    assert wrong.code == 2 and "row 1700" in wrong.err
    clients = [{"train": list(range(client, 1700, 10)), "test": [client + 1700]} for client in range(10)]
    write(clients)
    again = ("run", "-s", "mine.toml", "--seeds", "0", "--dry-run")
    assert cli("run", "-s", "mine.toml", "--seeds", "0").code == 0 and "1 run: 1 done" in cli(*again).out
    write([{"train": client["train"], "test": [1799 - client["test"][0] + 1690]} for client in clients])
    assert "1 run: 0 done" in cli(*again).out
    split.unlink()
    lacking = cli("data", "show", "mine.toml", "given")
    assert lacking.code == 1 and "split.json" in lacking.err
