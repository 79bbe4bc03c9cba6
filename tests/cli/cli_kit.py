"""A suite whose runs take a fraction of a second, methods to write into files, and the stored files' fingerprints."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SUITE = """
[suite]
name = "tiny"
title = "Tiny"
paper = "none"
protocol = "code"
seeds = [0, 1]
spread = { kind = "std", ddof = 0, of = "mean" }

[federation]
clients = 90
training_clients = 88
cohort = 2
query = 0.2

[evaluation]
clients = "held-out"
average = "batches"
finetune = { steps = 2, lr = 0.05 }
report = { steps = [1, 2] }

[[column]]
id = "shards"
title = "Shards"
dataset = { name = "digits" }
partition = { name = "shards", shards = 180 }
model = "cnn2"
rounds = 2
batch = 10

[[column]]
id = "dirichlet"
title = "Dirichlet"
clients = 60
training_clients = 58
dataset = { name = "rotated-digits" }
partition = { name = "dirichlet", alpha = 3.0, minimum = 5 }
model = "cnn2"
rounds = 2
batch = 10

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stage = "global"

[[row]]
id = "fedavg-ft"
title = "FedAvg-FT"
method = "fedavg"
stage = "finetuned"

[[row]]
id = "ditto"
title = "Ditto"
method = "ditto"
stage = "finetuned"

[hyper]
fedavg = { epochs = 1, lr = 0.05 }
ditto = { steps = 1 }

[profile.smoke]
seeds = [0]
"""

MISSING_COLUMN = """
[[column]]
id = "real"
title = "Real"
dataset = { name = "mnist" }
partition = { name = "shards", shards = 180 }
model = "cnn2"
rounds = 2
batch = 10
"""

METHOD = '''
"""A user's method."""
from dataclasses import dataclass

from pflbench.methods.base import Draw, Method, steps


@dataclass(frozen=True)
class Foo(Method):
    """Federated averaging, written again."""

    lr: float = 0.05

    def draws(self, round):
        return (Draw(epochs=1),)

    def client(self, f, server, state, *taken, round):
        (batches,) = taken
        return steps(lambda w, b: w - self.lr * f.grad(w, b), server, batches), state
'''


def method_file(path: Path, *replace: tuple[str, str]) -> str:
    """Write METHOD with replacements; returns the reference."""
    text = METHOD
    for old, new in replace:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return f"{path}:Foo"


def stored(results: Path) -> dict[str, tuple[int, str]]:
    """File name → (mtime, hash) of every finished file."""
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (results / "runs").glob("*.parquet")
    }


def start(*arguments: str, cwd: Path, **environment: str) -> "subprocess.Popen[str]":
    """The real program in a process (and process group) of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PFLBENCH_")}
    if arguments[0] in ("run", "tune") and "--unchecked" not in arguments:
        arguments = (*arguments, "--unchecked")
    return subprocess.Popen(
        [sys.executable, "-m", "pflbench", *arguments],
        cwd=cwd,
        env=clean | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background jobs ignore SIGINT and pass that on; these tests send it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


SEVERAL = """
[[row]]
id = "near"
title = "Near"
method = "ditto"
stage = "finetuned"
hyper = { steps = 2 }
"""
"""A second row of a method, with runs of its own."""

GRID = """
[[row]]
id = "chosen"
title = "Chosen"
method = "ditto"
stage = "finetuned"
grid = { steps = [2, 3] }
validation = 0.2
"""
"""A row whose clients choose their hyperparameters."""


def make_up(results: Path, suite: Path) -> None:
    """Store a result of each run of a suite on digits; the eighth failed."""
    for number, spec in enumerate(expand(load(str(suite))).runs):
        moments = [("global", 2, 0), *(("finetuned", 2, step) for step in (0, 1, 2))]
        scores = tuple(
            Score(*m, client, k, 10, 1.0, k / 10)
            for m in moments
            for client, last in ((spec.clients - 2, 88), (spec.clients - 1, 89))
            for k in [(7 * number + 3 * last + m[2]) % 11]
        )
        failure = "diverged in round 1" if number == 7 else None
        provenance = {"data_hash": "d", "wall_seconds": 1.5}
        Store(results).write(RunResult(spec, () if failure else scores, provenance, failure))
