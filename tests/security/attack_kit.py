"""A small honest results folder, and what a stranger may put beside it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.result import RunResult, Score
from pflbench.spec import RunSpec
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load


class Said(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Said]

SUITE = """
[suite]
name = "tiny"
title = "Tiny"
paper = "none"
protocol = "code"
seeds = [0]
spread = { kind = "std", ddof = 0, of = "mean" }

[federation]
clients = 6
query = 0.5

[evaluation]
clients = "all"
average = "examples"

[[column]]
id = "dirichlet"
title = "Dirichlet"
dataset = { name = "digits" }
partition = { name = "dirichlet", alpha = 3.0, minimum = 5 }
model = "cnn2"
rounds = 2
batch = 10

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stages = ["global"]
hyper = { epochs = 1 }
"""

CLAIMED = (
    SUITE.replace('"tiny"', '"claimed"')
    + """
[[row]]
id = "again"
title = "FedAvg again"
method = "fedavg"
stages = ["global"]
hyper = { epochs = 1 }
"""
)
"""The suite with a second row of the same run, so that a claim can compare two."""
CLAIMS = """
[[claim]]
id = "again-alike"
text = "FedAvg is as accurate as FedAvg."
source = "nowhere"
suite = "claimed.toml"
columns = ["dirichlet"]
row = "again"
against = ["fedavg"]
test = "within"
margin = 1.0
"""


@dataclass(frozen=True)
class Lab:
    """The working folder with `tiny.toml`, `claims.toml`, `results/`, and the mark that an attack's code would leave."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def mark(self) -> Path:
        return self.folder / "attacked"

    @property
    def spec(self) -> RunSpec:
        """The one run of the suite."""
        (run,) = expand(load(str(self.folder / "tiny.toml"))).runs
        return run

    def honest(self) -> RunResult:
        return result(self.spec)

    def store(self, run: RunResult, *, packed: bool = True) -> str:
        """Store a run as a stranger's pack would bring it; returns its id."""
        from pflbench.store.verbs import pack

        Store(self.results).write(run)
        if packed:
            pack(Store(self.results))
        return run.spec.id

    def evil(self, path: Path) -> Path:
        """A file that leaves the mark when it is imported, and has a network and a method."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EVIL.replace("MARK", repr(str(self.mark))))
        return path

    def bomb(self) -> Path:
        """A pickle that leaves the mark when it is read."""
        path = self.folder / "bomb.pkl"
        path.write_bytes(pickle.dumps(_Bomb(str(self.mark))))
        return path


EVIL = """
import os
from dataclasses import dataclass

from pflbench.methods import fedavg

os.makedirs(MARK, exist_ok=True)


@dataclass(frozen=True)
class Foo(fedavg.FedAvg):
    more: int = 1 + 1


def net(shape, classes):
    from pflbench.models.convnet import cnn2
    return cnn2(shape, classes)
"""


class _Bomb:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.mark,)


def result(spec: RunSpec, accuracy: float = 0.5, **provenance: object) -> RunResult:
    moments = ((round_, client) for round_ in (1, 2) for client in range(6))
    scores = tuple(Score("global", r, 0, c, round(8 * accuracy), 8, 1.0, accuracy) for r, c in moments)
    asked = {"suite": "tiny", "profile": "paper", "file": "tiny.toml", "row": "fedavg", "column": "dirichlet"}
    told = {"data_hash": "d", "commit": "c0ffee", "finished": "2026-11-01T00:00:00+00:00", "asked": asked}
    return RunResult(spec, scores, told | provenance)
