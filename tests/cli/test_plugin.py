"""An installed package adds a method, a dataset, a model and a partition by entry points."""

import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import SUITE, start

pytestmark = pytest.mark.slow

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder the package is installed into."""
    pytest.importorskip("hatchling", reason="hatchling builds the package")
    found = tmp_path_factory.mktemp("target")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", found, PLUGIN], check=True)
    return found


@pytest.mark.parametrize(
    ("what", "name", "text"),
    [
        ("methods", "local-sgd", "A few local SGD steps, then a mean.\n    count=2, lr=0.1"),
        ("datasets", "stripes", "8x8 images with one bright column, which is the class.\n    rows=400"),
        ("models", "tiny", "A very small convolutional network."),
        ("partitions", "equal", "Shuffled rows, in equal parts."),
    ],
)
def test_it_is_listed(target: Path, folder: Path, what: str, name: str, text: str) -> None:
    out, err = start("ls", what, cwd=folder, PYTHONPATH=str(target)).communicate(timeout=30)
    assert not err
    (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
    assert line.split(None, 1)[1] == text.split("\n")[0]
    assert text.split("\n")[-1] in out


def test_it_runs_to_a_table(target: Path, folder: Path) -> None:
    head, _, tail = SUITE.partition("[[column]]")
    rows = tail[tail.index("[[row]]") :].replace('method = "ditto"', 'method = "local-sgd"').replace('"ditto"', '"own"')
    column = """
[[column]]
id = "own"
title = "Own"
clients = 20
training_clients = 18
dataset = { name = "stripes", rows = 600 }
partition = { name = "equal" }
model = "tiny"
rounds = 2
batch = 10
hyper = { local-sgd.lr = 0.2 }

"""
    (folder / "own.toml").write_text(head + column + rows.replace("ditto = { steps = 1 }", "local-sgd.count = 3"))
    for arguments in (("run", "-s", "own.toml", "--jobs", "1"), ("report", "-s", "own.toml", "--format", "csv")):
        process = start(*arguments, cwd=folder, PYTHONPATH=str(target))
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    assert ",local-sgd,own,stripes,equal,20,finetuned," in out
