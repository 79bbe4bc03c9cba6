"""A user's network, dataset and partition in files beside a suite, and the three edits that must not go unseen."""

import json
from pathlib import Path

import numpy as np

SUITE = """
[suite]
name = "own"
title = "Own"
paper = "none"
protocol = "code"
seeds = [0, 1]
spread = { kind = "std", ddof = 0 }

[federation]
clients = 4
query = 0.5

[evaluation]
clients = "all"
average = "examples"

[[column]]
id = "own"
title = "Own"
dataset = { name = "DATA:Npz" }
partition = { name = "DATA:Given" }
model = "NETS:net"
rounds = 1
batch = 4

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stages = ["global"]
hyper = { epochs = 1 }
"""

NETS = '''
from widths import WIDTH

from pflbench.models.convnet import ConvNet


def net(shape, classes):
    """A small network."""
    return ConvNet((WIDTH,), kernel=3, padding=1, flat=4 * WIDTH, hidden=(8,), before=(2, 1), after=(1,)).network(
        shape, classes
    )
'''

WIDTHS = "WIDTH = 4\n"

DATA = '''
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pflbench.data.source import Source, content_hash


@dataclass(frozen=True)
class Npz:
    """Images and labels from an .npz file."""

    shape = (1, 4, 4)
    classes = 2
    seeded = False

    def load(self, root, seed):
        import torch

        with np.load(root / "mine.npz") as found:
            x, y = found["x"], found["y"]
        return Source(torch.from_numpy(x), y, None, 2, content_hash(x, y))

    def fetch(self, root):
        pass

    def status(self, root):
        return "ready" if (root / "mine.npz").is_file() else "missing: mine.npz"

    # data files


@dataclass(frozen=True)
class Given:
    """The split that a file gives."""

    def __call__(self, labels, kind, clients, seed):
        given = json.loads((Path(__file__).parent / "split.json").read_text())
        return [np.array(rows) for rows in given]

    # split files
'''

FILES = {
    "    # data files\n": '    def files(self, root):\n        return [root / "mine.npz"]\n',
    "    # split files\n": '    def files(self, root):\n        return [Path(__file__).parent / "split.json"]\n',
}


def images(path: Path, seed: int = 0) -> None:
    """Write the arrays: forty images of two classes."""
    random = np.random.default_rng(seed)
    labels = np.arange(40, dtype=np.int64) % 2
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=random.integers(256, size=(40, 1, 4, 4), dtype=np.uint8), y=labels)


def split(path: Path, first: int = 0) -> None:
    """Write the split: ten rows for each of four clients, beginning with row `first`."""
    path.write_text(json.dumps(np.roll(np.arange(40), -first).reshape(4, 10).tolist()))


def lab(folder: Path, *, declared: bool = True, module: bool = False, root: Path | None = None) -> None:
    """Write all of it. `declared`: the classes have `files`; `module`: the suite names modules; `root`: for the data."""
    text = DATA
    for place, files in FILES.items():
        text = text.replace(place, files if declared else "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mylab.py").write_text(text)
    (folder / "mynets.py").write_text(NETS)
    (folder / "widths.py").write_text(WIDTHS)
    ending = "" if module else ".py"
    (folder / "own.toml").write_text(SUITE.replace("DATA:", f"mylab{ending}:").replace("NETS:", f"mynets{ending}:"))
    images((root or folder / "data") / "mine.npz")
    split(folder / "split.json")
