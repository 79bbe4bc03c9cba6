"""`pflbench show`, `scores`, `rm`, `pack` and `merge`: what stored runs hold, and what is done with them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import WANTED, asking, option
from pflbench.errors import UsageError
from pflbench.selection import EVERYTHING, Selection, Wanted
from pflbench.store import ShownStore, Store
from pflbench.units import count

FORMATS: tuple[Literal["csv", "parquet"], ...] = ("csv", "parquet")


def show(
    run: Annotated[str, typer.Argument(help="A run's id, or enough of its beginning.")],
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Print a run's spec, where it came from, and its scores and metrics."""
    from pflbench.report.stored import named

    store = ShownStore(results)
    (stored,) = named(store, [run])
    result = store.read(stored.spec.id)
    out = console().print
    out(f"run {stored.spec.id}: {'failed' if result.failure else 'done'}")
    if result.failure:
        out(f"failure: {result.failure}")
    out("spec:", json.dumps(result.spec.model_dump(mode="json"), indent=2))
    out("provenance:", json.dumps(result.provenance, indent=2))
    moments: dict[tuple[str, int, int], list[float]] = {}
    for s in result.scores:
        moments.setdefault((s.stage, s.round, s.step), []).append(100 * s.accuracy)
    out("accuracy, mean over clients (min … max):")
    for (stage, round_, step), values in moments.items():
        mean = sum(values) / len(values)
        out(f"  {stage:<10} round {round_:>5} step {step:>3}  {mean:6.2f}  ({min(values):.2f} … {max(values):.2f})")
    told: dict[tuple[str, int], list[float]] = {}
    for metric in result.metrics:
        told.setdefault((metric.name, metric.round), []).append(metric.value)
    if told:
        out("numbers about clients, mean (min … max):")
    for (name, round_), values in told.items():
        out(f"  {name:<10} round {round_:>5}  {sum(values) / len(values):.6g}  ({min(values):.6g} … {max(values):.6g})")
    return 0


@asking(wanted=[name for name in WANTED if name not in ("failed", "trials")])
def scores(
    wanted: Wanted,
    trials: Annotated[bool, option("--trials", help="The trials of `pflbench tune` instead.")] = False,
    output: Annotated[
        Path | None, option("--output", "-o", help="A .csv or .parquet file (default: CSV, here).")
    ] = None,
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Write the scores of finished runs as one table: a line per run, stage, round, fine-tuning step and client.

    With --suite: the runs of its tables, each where it stands there; a run of two suites stands in both. Without:
    every run that is asked for, once, with the first suite that asks for it, if there is one. Lines that a table
    averages have `in_table`: group them by suite, profile, row, column, stage and seed. The mean of `accuracy` in a
    group is one seed's number, and the mean over seeds is the table's, where each client counts the same. Trials of
    `pflbench tune` are left out, since they are not scored on test images; --trials has them alone.
    """
    from pflbench.report.scores import score_tables, write_open, write_tables
    from pflbench.report.stored import seeds_beyond
    from pflbench.report.text import ranges

    common.check_output(output, "scores.csv")
    format = common.format_of(None, output, FORMATS)
    wanted, store = replace(wanted, trials=trials), ShownStore(results)
    tables = score_tables(store, wanted)
    if output is None:
        write_open(tables, sys.stdout.buffer)
    else:
        lines = write_tables(tables, output, format)
        console().print(f"Written: {count(lines, 'line')} to {str(output)!r}.")
    if further := seeds_beyond(store, wanted):
        errors().print(f"Left out: runs with seeds that no suite asks for ({ranges(further)}); name them with --seeds.")
    return 0


@asking(wanted=WANTED)
def rm(
    wanted: Wanted,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings.")] = None,
    yes: Annotated[bool, option("--yes", "-y", help="Do not ask.")] = False,
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Remove stored runs, by their ids or by what they are, wherever they lie; those in packs too. Asks before.

    With --suite: the runs of its tables, also those of your own methods. `pflbench ls runs` with the same options lists
    what would be removed. Runs that came with pflbench stay.
    """
    from pflbench.report.stored import list_runs, to_remove
    from pflbench.store.removal import remove

    store = Store(results)
    found = [run for run in to_remove(store, runs or (), wanted) if not run.shipped]
    if not found:
        raise UsageError("These runs came with pflbench and stay: only runs that you trained are removed.")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{count(len(found), 'run')} would be removed: say so with --yes.")
        common.show_runs(list_runs(found, store))
        if not typer.confirm(f"Remove {count(len(found), 'run')} from {str(results)!r}?"):
            console().print("Nothing was removed.")
            return 1
    for path, ids, rest in remove(store, {run.spec.id for run in found}):
        kept = f"; its other runs are in {str(rest)!r} now" if rest else ""
        console().print(f"Removed: {', '.join(ids)} from {str(path)!r}{kept}.")
    return 0


@asking(
    ("suites", "columns"), profile=Annotated[str | None, option("--profile", help="With --suite: only this one's.")]
)
def pack(
    selection: Selection,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings (default: all).")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Put stored runs into one Parquet file per setting, which every verb reads like single runs.

    Runs of one setting differ by method, seed, and fine-tuning rate only. Packing again merges into what is packed.
    With --suite: the runs of its columns, also those of your own methods.
    """
    from pflbench.report.stored import named
    from pflbench.store.packing import pack

    store, ids = Store(results, fresh=True), None
    if selection != EVERYTHING:
        if runs:
            raise UsageError("Name the runs to pack, or a --suite and its columns, not both.")
        ids = _of_suites(selection, store)
    elif runs:
        ids = {run.spec.id for run in named(store, runs)}
    packed = pack(store, ids)
    common.say_packed(packed)
    if not packed:
        console().print(f"Nothing to pack in {str(results)!r}.")
    return 0


def _of_suites(part: Selection, store: Store) -> set[str]:
    from pflbench.report.reading import readable
    from pflbench.suite.expand import expand
    from pflbench.suite.load import load, required

    settings: set[str] = set()
    for suite in (load(name, readable(store)) for name in required(part.suites)):
        for profile in [part.profile] if part.profile else suite.profiles:
            settings |= {run.setting() for run in expand(suite, part, profile=profile).runs}
    return {run.spec.id for run in store.list() if run.spec.setting() in settings}


def merge(
    sources: Annotated[list[Path], typer.Argument(help="Results folders to copy from.")],
    into: Annotated[Path, option("--into", help="The results folder to copy to; it may be new.")],
) -> int:
    """Copy the runs of other results folders into one: those of shards, or of machines without a folder in common.

    All that is copied is read again. A run that is there already stays as it is; if it has other scores, that is said.
    """
    from pflbench.store.merging import merge

    merged = merge(sources, into)
    for text in merged.others:
        errors().print(f"Error: {text}")
    if merged.left:
        errors().print(f"Error: Not merged, or not whole: {', '.join(repr(str(path)) for path in merged.left)}.")
    were = "was" if merged.same == 1 else "were"
    console().print(f"{count(merged.added, 'run')} merged into {str(into)!r}, {merged.same} {were} there.")
    return 0 if merged.good else 1
