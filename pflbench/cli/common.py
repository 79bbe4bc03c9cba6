"""What the verbs share: option types, consoles, and the way from options to an expanded suite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer
from rich.console import Console

from pflbench.errors import UsageError

if TYPE_CHECKING:
    from pflbench.reading.runs import Listed
    from pflbench.reading.selection import Wanted
    from pflbench.suite.document import Suite
    from pflbench.suite.expand import Expansion

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
        "--trials/--no-trials", envvar="PFLBENCH_TRIALS", help="Only trials of `pflbench tune`, or no trials."
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
DEFAULT_RESULTS = Path("results")
show_tracebacks = False  # --debug
PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
"""What a console prints is text from anywhere: paths, other people's messages."""


def count(n: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def duration(seconds: float) -> str:
    """`12 s`, `7 min`, `3.5 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours = round(seconds / 60), round(seconds / 3600, 1)
    return f"{minutes} min" if minutes < 120 else f"{hours} h"


def size(text: str) -> int:
    """Bytes in `4GB`, `512 MB` or `1.5 GiB`. Raises `UsageError` for anything else."""
    match = re.fullmatch(r"([0-9.]+)\s*([kMGT])(i?)B?", text.strip(), re.IGNORECASE)
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or number <= 0:
        raise UsageError(f"{text!r} is not an amount of memory; write 4GB, 512MB or 1.5GiB.")
    return int(number * (1024 if match[3] else 1000) ** ("kmgt".index(match[2].lower()) + 1))


def console() -> Console:
    """Standard output."""
    return Console(**PLAIN)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, **PLAIN)


def check_precision(precision: str) -> None:
    """Raise `UsageError` for a precision that does not exist."""
    from pflbench.spec import Precision

    known = get_args(Precision)
    if precision not in known:
        raise UsageError(f"Unknown precision {precision!r}; known: {', '.join(known)}.")


class Part(NamedTuple):
    """What is asked for of a suite. `labels`: what a run is called beside its column and seed, by its id."""

    table: Expansion
    labels: Mapping[str, str]


def parts(
    suites: Sequence[Suite],
    *,
    profile: str,
    methods: list[str] | None = None,
    datasets: list[str] | None = None,
    partitions: list[str] | None = None,
    clients: list[int] | None = None,
    columns: list[str] | None = None,
    seeds: str | None = None,
    rounds: int | None = None,
    sets: list[str] | None = None,
    precision: str = "fp32",
) -> list[Part]:
    """The asked-for part of each suite. Raises `UsageError` for anything unknown."""
    from pflbench.suite.expand import expand, parse_seeds

    check_precision(precision)
    found = []
    for suite in suites:
        table = expand(
            suite,
            profile=profile,
            methods=methods or None,
            datasets=datasets or None,
            partitions=partitions or None,
            clients=clients or None,
            columns=columns or None,
            seeds=parse_seeds(seeds) if seeds else None,
            rounds=rounds,
            sets=sets or (),
            precision=precision,  # type: ignore[arg-type]
        )
        found.append(Part(table, run_labels(table, row_labels(suite, profile))))
    return found


def row_labels(suite: Suite, profile: str) -> dict[str, str]:
    """What the runs of each row of a suite are called, by the row's id.

    It is their method, but the row's id where another row has other runs of the same method. All verbs that show runs
    call them so, whatever part of the suite they were asked for.
    """
    from pflbench.suite.expand import expand

    table = expand(suite, profile=profile, seeds=suite.document(profile).suite.seeds[:1])
    runs: dict[str, set[str]] = {}
    for cell in table.cells:
        runs.setdefault(cell.row.id, set()).update(spec.id for spec in cell.needed)
    several = {a.method for a in table.rows for b in table.rows if a.method == b.method and runs[a.id] != runs[b.id]}
    return {row.id: row.id if row.method in several else row.method for row in table.rows}


def run_labels(table: Expansion, rows: Mapping[str, str]) -> dict[str, str]:
    """What each run of a table is called, by its id; a run of several rows goes by the first of them.

    `rows`: of `row_labels`; a row that is none of the suite's, a guest, goes by its method.
    """
    labels: dict[str, str] = {}
    for cell in table.cells:
        for spec in cell.needed:
            labels.setdefault(spec.id, rows.get(cell.row.id, cell.row.method))
    return labels


def loaded(suites: Iterable[str], data_dir: Path | None) -> list[Suite]:
    """The suites by these names, with the data of their users' datasets below the data root.

    Raises:
        UsageError: Something is unknown or wrong.
    """
    from pflbench.data.root import data_root
    from pflbench.suite.load import load
    from pflbench.suite.own import Own

    return [load(name, Own(data_root(data_dir))) for name in suites]


def wanted(
    *,
    suites: list[str] | None,
    methods: list[str] | None,
    datasets: list[str] | None,
    columns: list[str] | None,
    partitions: list[str] | None,
    clients: list[int] | None,
    seeds: str | None,
    profile: str | None,
    rounds: int | None,
    precision: str | None,
    trials: bool | None = None,
    failed: bool | None = None,
) -> Wanted:
    """The stored runs that options ask for. Raises `UsageError` for a precision or list of seeds that is none."""
    from pflbench.reading.selection import Wanted
    from pflbench.suite.expand import parse_seeds

    if precision is not None:
        check_precision(precision)
    return Wanted(
        suites=tuple(suites or ()),
        methods=tuple(methods or ()),
        datasets=tuple(datasets or ()),
        columns=tuple(columns or ()),
        partitions=tuple(partitions or ()),
        clients=tuple(clients or ()),
        seeds=parse_seeds(seeds) if seeds else (),
        profile=profile,
        rounds=rounds,
        precision=precision,  # type: ignore[arg-type]
        trials=trials,
        failed=failed,
    )


def show_runs(runs: Sequence[Listed]) -> None:
    """Print stored runs, a line for each."""
    head = ("run", "status", "method", "dataset", "partition", "clients", "rounds", "seed", "validation", "file")
    lines = [head, *(tuple(str(getattr(run, key)) for key in head) for run in runs)]
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    for line in lines:
        console().print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def required(suites: list[str] | None) -> list[str]:
    """The suites of a verb that needs one; the error lists what there is."""
    if suites:
        return suites
    from pflbench.suite.load import available

    raise UsageError(
        f"Which suite? Write --suite NAME. There are: {', '.join(available())}; or the path of a .toml file."
    )
