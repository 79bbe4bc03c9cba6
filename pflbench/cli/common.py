"""What the verbs share: option types, consoles, and small printing functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pflbench.errors import UsageError
from pflbench.units import count

if TYPE_CHECKING:
    from rich.console import Console

    from pflbench.reading.runs import Listed
    from pflbench.store.packing import Packed


def option(*names: str, help: str, **more: Any) -> Any:
    """An option of a verb, which may be an environment variable, too: its first name behind `PFLBENCH_`."""
    variable = names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(*names, envvar=f"PFLBENCH_{variable}", help=help, **more)


Suites = Annotated[list[str] | None, option("--suite", "-s", help="A suite's name, or a .toml file.")]
Methods = Annotated[list[str] | None, option("--method", "-m", help="A method or row id, or path/to/file.py:Class.")]
Datasets = Annotated[list[str] | None, option("--dataset", "-d", help="Only columns on this dataset.")]
Partitions = Annotated[list[str] | None, option("--partition", help="Only columns with this partition.")]
Clients = Annotated[list[int] | None, option("--clients", help="Only columns with this number of clients.")]
Columns = Annotated[list[str] | None, option("--column", help="Only this column, by id.")]
Seeds = Annotated[str | None, option("--seeds", help="These seeds instead of the suite's: 0-4 or 0,2,5.")]
Profile = Annotated[
    str, option("--profile", help="Which profile of the suite: paper (full protocol), quick, or smoke.")
]
Rounds = Annotated[int | None, option("--rounds", min=1, help="So many rounds instead of the suite's.")]
Sets = Annotated[list[str] | None, option("--set", help="A hyperparameter: method.key=value, or finetune.key=value.")]
Precision = Annotated[str, option("--precision", help="fp32, bf16, tf32 (GPU) or fp64; part of a run's identity.")]
AnyProfile = Annotated[str | None, option("--profile", help="With --suite: only the runs of this profile.")]
AnyPrecision = Annotated[
    str | None, option("--precision", help="Only runs in fp32, bf16, tf32 or fp64 (a suite's: in fp32).")
]
Failed = Annotated[bool | None, option("--failed/--done", help="Only runs that failed, or are done.")]
Trials = Annotated[bool | None, option("--trials/--no-trials", help="Only trials of `pflbench tune`, or none of them.")]
Results = Annotated[Path, option("--results", "-r", help="The folder that holds the results.")]
DataDir = Annotated[Path | None, option("--data-dir", help="Where the datasets are (~/.cache/pflbench/data).")]
Jobs = Annotated[
    int | None,
    option(
        "--jobs",
        "-j",
        min=1,
        help="Processor cores to use, one run on each; a last run's clients share them (default: all; on a GPU, 1).",
    ),
]
Device = Annotated[str, option("--device", help="auto, cpu, cuda, or cuda:0.")]
MemoryLimit = Annotated[
    str | None,
    option(
        "--memory-limit",
        help="What one process may hold on the GPU, or on a CPU: 16GB. (On a GPU by default: all there is.)",
    ),
]
Deterministic = Annotated[
    bool,
    option(
        "--deterministic",
        help="Only algorithms that give the same bits every time; slower on a GPU, nothing new on a CPU.",
    ),
]
Redo = Annotated[
    str, option("--redo", help="missing: what has no result; failed: also what failed; always: everything.")
]
DryRun = Annotated[bool, option("--dry-run", help="Say what would run, and stop.")]
Unchecked = Annotated[
    bool,
    option(
        "--unchecked", help="Train a method of your own that was not held against the contract; every report says so."
    ),
]
EvaluateEvery = Annotated[
    int | None, option("--evaluate-every", min=1, help="Score not only at the end, but after every so many rounds.")
]
FailFast = Annotated[bool, option("--fail-fast", help="Start nothing more after a run that fails.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print problems only.")]
DEFAULT_RESULTS = Path("results")
show_tracebacks = False  # --debug
PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
"""A console prints text as it is: it may hold paths and other programs' messages."""


def console() -> Console:
    """Standard output."""
    from rich.console import Console  # which a verb that prints nothing but lines does not wait for

    return Console(**PLAIN)


def errors() -> Console:
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, **PLAIN)


def show_runs(runs: Sequence[Listed]) -> None:
    """Print stored runs, a line for each; what only few runs have is a column where one of them has it."""
    head = ["run", "status", "method", "dataset", "partition", "clients", "rounds", "seed", "validation"]
    rare = ("dataset_version", "dataset_content", "partition_version", "partition_content", "model_version")
    head += [key for key in ("why", *rare, "unchecked") if any(getattr(run, key) for run in runs)]
    head += ["file", *(["differs"] if any(run.differs for run in runs) else [])]
    lines = [head, *([str(getattr(run, key)) for key in head] for run in runs)]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    for line in lines:
        console().print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def say_packed(packed: Iterable[Packed]) -> None:
    """A line for each pack that was written."""
    for path, runs, added in packed:
        new = f", {added} of them new" if added < runs else ""
        console().print(f"Packed: {str(path)!r} holds {count(runs, 'run')}{new}.")


def required(suites: Sequence[str] | None) -> Sequence[str]:
    """The suites of a verb that needs one; the error lists what there is."""
    if suites:
        return suites
    from pflbench.suite.load import available

    raise UsageError(
        f"Which suite? Write --suite NAME. There are: {', '.join(available())}; or the path of a .toml file."
    )
