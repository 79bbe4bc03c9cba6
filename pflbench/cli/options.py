"""The options of the verbs, and the objects that verbs take for them: what to run, where, and which stored runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import typer
from typer.models import ArgumentInfo

from pflbench.commands import DEFAULT_RESULTS as DEFAULT_RESULTS

Verb = Callable[..., int]


def option(*names: str, help: str, **more: Any) -> Any:
    """An option of a verb and its environment variable: its first name behind `PFLBENCH_`."""
    variable = names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    how = {"envvar": f"PFLBENCH_{variable}", "show_envvar": False, "callback": _finite, **more}
    return typer.Option(*names, help=help, **how)


def _finite(value: Any) -> Any:
    """The value of an option. Raises an error of the command line for infinity and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number: write a number such as 1.5.")
    return value


Results = Annotated[Path, option("--results", "-r", metavar="FOLDER", help="Folder of the results.")]
Fresh = Annotated[bool, option("--fresh", help="Leave out the runs that came with pflbench.")]
DataDir = Annotated[
    Path | None, option("--data-dir", metavar="FOLDER", help="Folder of the datasets (~/.cache/pflbench/data).")
]
DryRun = Annotated[bool, option("--dry-run", help="List what would run, and stop.")]
ShardText = Annotated[str | None, option("--shard", help="Only part K of N of the runs, as 1/3.")]
Quiet = Annotated[bool, option("--quiet", "-q", help="Print problems only.")]
TEXTS: Any = list[str] | None
TEXT: Any = str | None
NUMBER: Any = int | None
FLAG: Any = bool | None


class Asked(NamedTuple):
    """An option that sets a field of an object: its type for Typer, and its default."""

    annotation: Any
    default: Any = None


METAVARS = {TEXTS: "TEXT", TEXT: "TEXT", str: "TEXT", NUMBER: "N", list[int] | None: "N", float | None: "N"}
"""Words for an option's value in the help, by its type."""


def _asked(kind: Any, *names: str, help: str, default: Any = None, **more: Any) -> Asked:
    """An option of many verbs. Its help names the default."""
    how = {"metavar": METAVARS.get(kind), "show_default": False, **more}
    return Asked(Annotated[kind, option(*names, help=help, **how)], default)


SELECTION = {
    "suites": _asked(TEXTS, "--suite", "-s", help="A suite's name, or a .toml file."),
    "methods": _asked(TEXTS, "--method", "-m", help="A method or row id, or path/to/file.py:Class."),
    "datasets": _asked(TEXTS, "--dataset", "-d", help="Only columns on this dataset."),
    "clients": _asked(list[int] | None, "--clients", help="Only columns with this number of clients."),
    "partitions": _asked(TEXTS, "--partition", help="Only columns with this partition."),
    "columns": _asked(TEXTS, "--column", help="Only this column, by id."),
    "seeds": _asked(TEXT, "--seeds", help="Seeds; override the suite's: 0-4 or 0,2,5."),
    "profile": _asked(str, "--profile", help="paper (default: the whole protocol), quick, smoke.", default="paper"),
    "rounds": _asked(NUMBER, "--rounds", min=1, help="Number of rounds; overrides the suite's."),
    "overrides": _asked(TEXTS, "--set", help="Hyperparameter: method.key=value, finetune.key=…"),
    "precision": _asked(str, "--precision", help="fp32 (default), bf16, tf32, fp64; part of the id.", default="fp32"),
}
"""By the field of a `Selection`."""
EXECUTION = {
    "device": _asked(str, "--device", help="auto (default), cpu, cuda, or cuda:0,cuda:1.", default="auto"),
    "jobs": _asked(
        NUMBER,
        *("--jobs", "-j"),
        min=1,
        help="Cores, one run on each; the last run's clients share them (default: all; 1 a GPU).",
    ),
    "evaluate_every": _asked(NUMBER, "--evaluate-every", min=1, help="Score every N rounds, not only at the end."),
    "checkpoint_every": _asked(
        TEXT, "--checkpoint-every", help="Write a checkpoint every N rounds (50) or every interval (10m)."
    ),
    "keep_models": _asked(bool, "--keep-models", help="Keep the last scored models in results/models/.", default=False),
    "follow": _asked(TEXT, "--follow", help="File that gets a line of JSON per round, or tensorboard:FOLDER."),
    "memory_limit": _asked(TEXT, "--memory-limit", help="Memory of one process: 16GB (GPU default: all)."),
    "deterministic": _asked(
        bool, "--deterministic", help="Bitwise reproducible algorithms; slower on a GPU.", default=False
    ),
    "fresh": _asked(bool, "--fresh", help="Train also what came with pflbench as a finished run.", default=False),
    "redo": _asked(str, "--redo", help="missing (default), failed (these too), or always.", default="missing"),
    "data_dir": Asked(DataDir),
    "unchecked": _asked(
        bool,
        "--unchecked",
        help="Train user-supplied methods without holding them against the contract; every report says so.",
        default=False,
    ),
    "shard": _asked(TEXT, "--shard", help="Only part K/N of the runs, alike everywhere: 1/3."),
    "wait": _asked(
        bool,
        "--wait/--no-wait",
        help="Wait for runs that others train (default), and take them over if these die.",
        default=True,
    ),
    "executor": _asked(str, "--executor", help="local (default), slurm (jobs), or ray (actors).", default="local"),
    "slots": _asked(NUMBER, "--slots", min=1, help="Slurm jobs (8) or Ray actors (all fitting)."),
    "gpus_per_task": _asked(
        float | None, "--gpus-per-task", min=0.0, help="GPUs of a Slurm job or Ray actor (Ray: or 0.5)."
    ),
    "slurm_partition": _asked(TEXT, "--slurm-partition", help="Partition where Slurm jobs run."),
    "slurm": _asked(TEXTS, "--slurm", help="More options of Slurm jobs: time=240 (minutes), account=…"),
    "ray_address": _asked(TEXT, "--ray-address", help="Ray cluster's address, auto (default: a new one)."),
    "fail_fast": _asked(bool, "--fail-fast", help="Start nothing more after a run that fails.", default=False),
}
"""By the field of an `Execution`."""
WANTED = {
    **{name: asked for name, asked in SELECTION.items() if name != "overrides"},
    "profile": _asked(TEXT, "--profile", help="With --suite: only the runs of this profile."),
    "precision": _asked(TEXT, "--precision", help="Only runs in fp32, bf16, tf32 or fp64 (a suite's: in fp32)."),
    "failed": _asked(FLAG, "--failed/--done", help="Only runs that failed, or are done."),
    "trials": _asked(FLAG, "--trials/--no-trials", help="Only trials of `pflbench tune`, or none of them."),
}
"""By the field of a `Wanted`."""
SUITES = Asked(Annotated[TEXTS, typer.Argument(metavar="[SUITE]...", help="Same as --suite.", show_default=False)])
"""Suites without an option's name before them, for verbs that have no other arguments."""


def asking(
    selection: Iterable[str] = (), execution: Iterable[str] = (), wanted: Iterable[str] = (), **other: Any
) -> Callable[[Verb], Verb]:
    """A decorator for verbs whose parameters `selection`, `execution` and `wanted` are asked for field by field.

    `other`: further fields of the selection, each with a type of the verb's own for Typer; left out by default.
    """
    groups = {
        "selection": {name: SELECTION[name] for name in selection}
        | {name: Asked(kind) for name, kind in other.items()},
        "execution": {name: EXECUTION[name] for name in execution},
        "wanted": {name: WANTED[name] for name in wanted},
    }

    def made(verb: Verb) -> Verb:
        asked: dict[str, Asked] = {}
        for name, parameter in inspect.signature(verb).parameters.items():
            asked |= groups.get(name) or {name: Asked(eval(parameter.annotation, verb.__globals__), parameter.default)}
        asked |= _arguments(asked)

        @wraps(verb)
        def called(**given: Any) -> int:
            if "suites" in given:
                given["suites"] = [*(given.pop("named", None) or ()), *(given["suites"] or ())]
            for kind, options in groups.items():
                if options:
                    given[kind] = _object(kind, {name: given.pop(name) for name in options})
            return verb(**given)

        del called.__wrapped__  # its options are others
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=a)
                for name, (a, d) in asked.items()
            ]
        )
        called.__annotations__ = {name: one.annotation for name, one in asked.items()}
        return called

    return made


def _arguments(asked: Mapping[str, Asked]) -> dict[str, Asked]:
    """The suites as arguments of a verb that has `--suite` and no arguments of its own; else nothing."""
    own = any(isinstance(one, ArgumentInfo) for kind, _ in asked.values() for one in get_args(kind))
    return {} if own or "suites" not in asked else {"named": SUITES}


def _object(kind: str, fields: dict[str, Any]) -> Any:
    """The selection, execution or `Wanted` that was typed."""
    from pflbench.running.execution import Execution
    from pflbench.selection import EVERYTHING, Wanted
    from pflbench.units import interval, pairs, parse_seeds, parse_shard, size

    texts = {
        "seeds": parse_seeds,
        "memory_limit": size,
        "checkpoint_every": interval,
        "shard": parse_shard,
        "slurm": pairs,
    }
    for name, read in texts.items():
        if fields.get(name) is not None:
            fields[name] = read(fields[name])
    if fields.get("slurm", 0) is None:
        fields["slurm"] = {}
    return Execution(**fields) if kind == "execution" else (Wanted() if kind == "wanted" else EVERYTHING).but(**fields)
