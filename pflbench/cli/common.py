"""What the verbs share: option types, consoles, and the way from options to an expanded suite."""

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

Suites = Annotated[
    list[str] | None, typer.Option("--suite", "-s", envvar="PFLBENCH_SUITE", help="A suite's name, or a .toml file.")
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", "-m", envvar="PFLBENCH_METHOD", help="A method or row id, or path/to/file.py:Class."),
]
Datasets = Annotated[
    list[str] | None, typer.Option("--dataset", "-d", envvar="PFLBENCH_DATASET", help="Only columns on this dataset.")
]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", envvar="PFLBENCH_PARTITION", help="Only columns with this partition."),
]
Clients = Annotated[
    list[int] | None,
    typer.Option("--clients", envvar="PFLBENCH_CLIENTS", help="Only columns with this number of clients."),
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", envvar="PFLBENCH_COLUMN", help="Only this column, by id.")
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", envvar="PFLBENCH_SEEDS", help="Instead of the suite's: 0-4 or 0,2,5.")
]
Profile = Annotated[
    str, typer.Option("--profile", envvar="PFLBENCH_PROFILE", help="paper (full protocol), quick, or smoke.")
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", min=1, envvar="PFLBENCH_ROUNDS", help="Instead of the suite's.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", envvar="PFLBENCH_SET", help="A hyperparameter: method.key=value, or finetune.key=value."),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision", envvar="PFLBENCH_PRECISION", help="fp32, bf16, tf32 (GPU) or fp64; part of a run's identity."
    ),
]
AnyProfile = Annotated[
    str | None, typer.Option("--profile", envvar="PFLBENCH_PROFILE", help="With --suite: only this one's.")
]
AnyPrecision = Annotated[
    str | None,
    typer.Option(
        "--precision", envvar="PFLBENCH_PRECISION", help="Only runs in fp32, bf16, tf32 or fp64 (a suite's: in fp32)."
    ),
]
Failed = Annotated[
    bool | None, typer.Option("--failed/--done", envvar="PFLBENCH_FAILED", help="Only runs that failed, or are done.")
]
Trials = Annotated[
    bool | None,
    typer.Option(
        "--trials/--no-trials", envvar="PFLBENCH_TRIALS", help="Only trials of `pflbench tune`, or none of them."
    ),
]
Results = Annotated[
    Path, typer.Option("--results", "-r", envvar="PFLBENCH_RESULTS", help="The folder that holds the results.")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="PFLBENCH_DATA_DIR", help="Where the datasets are (~/.cache/pflbench/data)."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        envvar="PFLBENCH_JOBS",
        help="Processor cores to use, one run on each; a last run's clients share them (default: all; on a GPU, 1).",
    ),
]
Device = Annotated[str, typer.Option("--device", envvar="PFLBENCH_DEVICE", help="auto, cpu, cuda, or cuda:0.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        envvar="PFLBENCH_MEMORY_LIMIT",
        help="What one process may hold on the GPU, or on a CPU: 16GB. (On a GPU by default: all there is.)",
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        envvar="PFLBENCH_DETERMINISTIC",
        help="Only algorithms that give the same bits every time; slower on a GPU, nothing new on a CPU.",
    ),
]
Redo = Annotated[
    str,
    typer.Option(
        "--redo",
        envvar="PFLBENCH_REDO",
        help="missing: what has no result; failed: also what failed; always: everything.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", envvar="PFLBENCH_DRY_RUN", help="Say what would run, and stop.")]
Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        envvar="PFLBENCH_UNCHECKED",
        help="Train a method of your own that was not held against the contract; every report says so.",
    ),
]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        "--evaluate-every", min=1, envvar="PFLBENCH_EVALUATE_EVERY", help="Score after every so many rounds, too."
    ),
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", envvar="PFLBENCH_FAIL_FAST", help="Start nothing more after a run that fails.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", envvar="PFLBENCH_QUIET", help="Print problems only.")]
DEFAULT_RESULTS = Path("results")
show_tracebacks = False  # --debug
PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
"""What a console prints is text from anywhere: paths, other people's messages."""


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
