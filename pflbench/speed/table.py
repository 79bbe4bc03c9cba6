"""The table that `pflbench speed` prints of one network."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.box import SIMPLE
from rich.table import Table

from pflbench.speed.measuring import FOREIGN, machine_of
from pflbench.speed.results import Range, Result
from pflbench.units import count


def table(result: Result) -> Table:
    """Steps a second, floating-point operations a second, and the comparisons, with the machine below them."""
    work = result.timings[result.field.alone].ready["workload"]
    grid = Table(
        title=f"{result.network} · {work['clients']} clients × {work['steps']} steps × batch {work['batch']}"
        " · training only, equal client-steps",
        caption=_caption(result),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE,
        pad_edge=False,
    )
    grid.add_column("", no_wrap=True)
    for head in ("steps/s", "GFLOP/s", "share", "times as fast"):
        grid.add_column(head, justify="right", no_wrap=True)
    grid.add_column("as")
    titles = {c.id: c.title for c in result.field.contenders}
    for line in result.lines:
        share = result.share(line.contender)
        grid.add_row(
            titles[line.contender],
            _short(line.rate.median),
            _giga(result.operations(line.contender)),
            f"{100 * share.median:.0f} %" if share else "",
            _spread(line.ratio) if line.ratio else "–",
            titles[line.against] if line.against else "",
        )
    for id in dict.fromkeys(result.field.matmul.values()):
        grid.add_row(titles[id], "", _giga(result.operations(id)), "", "", "")
    return grid


def _caption(result: Result) -> str:
    torch = result.timings[result.field.alone].ready["torch"]
    notes = [f"{machine_of(result)}, {count(result.options.cores, 'core')}; torch {torch}"]
    notes += [f"load average before: {result.load:.2f}"] if result.load is not None else []
    if (foreign := result.foreign_cores) is not None:
        busy = ": do not trust these numbers" if foreign > FOREIGN else ""
        notes.append(f"other processes took up to {foreign:.2f} cores{busy}")
    share = "share: of the rate at which the same cores do plain matrix products (matmul)"
    return f"{'; '.join(notes)}. Medians over passes (range); {share}."


def _giga(operations: Sequence[float] | None) -> str:
    return _short(median(operations) / 1e9) if operations else ""


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _spread(values: Range) -> str:
    return f"{values.median:.2f} ({values.min:.2f}–{values.max:.2f})"
