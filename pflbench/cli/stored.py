"""`pflbench show`, `scores`, `rm`, `pack` and `merge`: what stored runs hold, and what is done with them."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

import typer

from pflbench.cli import common, options
from pflbench.cli.common import console, errors
from pflbench.cli.options import WANTED, asking, option
from pflbench.errors import UsageError
from pflbench.selection import Wanted
from pflbench.store import ShownStore, Store
from pflbench.units import count


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
    out(f"run {stored.spec.id}: {f'failed: {result.failure}' if result.failure else 'done'}")
    out("spec:", json.dumps(result.spec.model_dump(mode="json"), indent=2))
    out("provenance:", json.dumps(result.provenance, indent=2))
    groups = defaultdict[str, list[float]](list)
    for score in result.scores:
        name = f"{score.stage:<12} round {score.round:>5} step {score.step:>3}  accuracy, %"
        groups[name].append(100 * score.accuracy)
    for metric in result.metrics:
        groups[f"{metric.name:<12} round {metric.round:>5}"].append(metric.value)
    out("mean over clients (min … max):")
    for name, values in groups.items():
        out(f"  {name}  {sum(values) / len(values):.6g}  ({min(values):.6g} … {max(values):.6g})")
    return 0


@asking(wanted=[name for name in WANTED if name not in ("failed", "trials")])
def scores(
    wanted: Wanted,
    trials: Annotated[bool, option("--trials", help="The trials of `pflbench tune` instead.")] = False,
    output: Annotated[Path | None, option("--output", "-o", help="A .csv or .parquet file.")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Write the scores of finished runs as one table: a line per run, stage, round, fine-tuning step and client.

    With --suite: the runs of its tables, each where it stands there; a run of two suites stands in both. Without:
    every run that is asked for, once, with the first suite that asks for it, if there is one. Lines that a table
    averages have `in_table`: group them by suite, profile, row, column, stage and seed. The mean of `accuracy_share`
    in a group is one seed's number, and the mean over seeds is the table's, where each client counts the same. Trials
    of `pflbench tune` are left out, since they are not scored on test images; --trials has them alone.
    """
    from pflbench.report.scores import Format, score_tables, write_open, write_tables
    from pflbench.report.stored import seeds_beyond
    from pflbench.report.text import ranges

    format = common.format_of(output, get_args(Format))
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
    from pflbench.store.verbs import remove

    store = Store(results, fresh=True)
    chosen = to_remove(store, runs or (), wanted)
    if not yes:
        common.show_runs(list_runs(chosen, store))
        try:
            if not typer.confirm(f"Remove {count(len(chosen), 'run')} from {str(results)!r}?"):
                return 1
        except typer.Abort:
            raise UsageError(
                "Nothing is removed, since nobody answered. Add --yes to remove without a question."
            ) from None
    for path, ids, rest in remove(store, {run.spec.id for run in chosen}):
        others = f"; its other runs are in {str(rest)!r} now" if rest else ""
        console().print(f"Removed: {', '.join(ids)} from {str(path)!r}{others}.")
    return 0


@asking(wanted=WANTED)
def pack(
    wanted: Wanted,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs, or their beginnings (default: all).")] = None,
    results: options.Results = options.DEFAULT_RESULTS,
) -> int:
    """Put stored runs into one Parquet file per setting, which every verb reads like single runs.

    Runs of one setting differ by method, seed, and fine-tuning rate only. Packing again merges into what is packed.
    The options choose runs, as in `pflbench ls runs`.
    """
    from pflbench.report.stored import to_remove
    from pflbench.store.verbs import pack

    store, ids = Store(results, fresh=True), None
    if runs or not wanted.everything:
        ids = {run.spec.id for run in to_remove(store, runs or (), wanted)}
    packed = pack(store, ids)
    for path, total, added in packed:
        console().print(f"Packed: {str(path)!r} holds {count(total, 'run')}, {added} of them new.")
    if not packed:
        console().print(f"Nothing to pack in {str(results)!r}.")
    return 0


def merge(
    sources: Annotated[list[Path], typer.Argument(help="Results folders to copy from.")],
    into: Annotated[Path, option("--into", help="The results folder to copy to; it may be new.")],
) -> int:
    """Copy the runs of other results folders into one: those of shards, or of machines without a folder in common.

    All that is copied is read again. A run that is there already stays as it is; if it has other scores, that is said.
    """
    from pflbench.store.verbs import merge

    merged = merge(sources, into)
    for text in merged.others:
        errors().print(f"Error: {text}")
    if merged.unread:
        errors().print(f"Error: Not merged, or not whole: {', '.join(repr(str(path)) for path in merged.unread)}.")
    were = "was" if merged.same == 1 else "were"
    console().print(f"{count(merged.added, 'run')} merged into {str(into)!r}, {merged.same} {were} there.")
    return 1 if merged.others or merged.unread else 0
