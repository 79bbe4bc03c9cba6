"""The lines under a table: which protocol, what its numbers are, and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pflbench.report import rules
from pflbench.report.figures import steps
from pflbench.report.mixtures import Used
from pflbench.report.table import CellValue
from pflbench.report.text import ranges
from pflbench.report.unlisted import short_name
from pflbench.spec import RunSpec
from pflbench.store import Stored
from pflbench.suite.cells import Cell, Expansion

_LONGEST = 120


class Footer(NamedTuple):
    """All lines below a table, warnings first; of these, the ones that nobody may miss; and the rest in a line."""

    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: str


def footer(
    table: Expansion,
    grid: Mapping[tuple[str, str], CellValue],
    titles: Mapping[str, str],
    used: Sequence[Used],
    mixed: Sequence[str],
    spare: Sequence[RunSpec],
) -> Footer:
    """What is said below a table. `titles`: those of all rows, by id."""
    done = {u.stored.spec.id: u.stored for u in used if u.stored.failure is None}
    lines = [
        *mixed,
        *_failures(used),
        rules.shortfall(table),
        f"{rules.paper(table)} Protocol: {table.protocol}.",
        rules.departures(table),
        rules.selection(table.cells),
        rules.seeds(table.cells, grid.values(), table.spread if table.shows_spread else None),
        rules.other_seeds(table, grid),
        rules.clients(table),
        rules.plain(table, grid),
        rules.left_out(table, grid),
        rules.rounds(table),
        *rules.recent(table, grid),
        *rules.choices(table, grid),
        *rules.unprinted(table, grid, titles),
        *rules.differences(table),
        _precision(table.cells),
        _progress(table.cells, used),
        _provenance(list(done.values())),
        _unchecked(used),
        _guards(done.values()),
        _shared(done.values()),
        _data(table, used),
        *_spare(table.cells, used, spare),
        *(_costs(used) if table.costs else []),
        *table.notes,
    ]
    warnings = [*mixed, *_failures(used), rules.shortfall(table), rules.other_seeds(table, grid)]
    warnings += [_unchecked(used), _guards(done.values())]
    summary = f"{rules.seeds(table.cells, grid.values(), table.spread if table.shows_spread else None)}"
    return Footer(
        tuple(filter(None, lines)), tuple(filter(None, warnings)), f"{summary} {_progress(table.cells, used)}"
    )


def _progress(cells: Sequence[Cell], used: Sequence[Used]) -> str:
    failed = {u.stored.spec.id: u.stored.failure is not None for u in used}
    asked = {run.id for cell in cells for run in cell.needed}
    broken = sum(failed.get(id, False) for id in asked)
    return f"Runs: {sum(id in failed for id in asked) - broken} of {len(asked)} done, {broken} failed."


def _provenance(done: Sequence[Stored]) -> str:
    commits = _values(
        f"{str(s.provenance.get('commit') or 'unknown')[:12]}{' (dirty)' if s.provenance.get('dirty') else ''}"
        for s in done
    )
    devices = _values(str(s.provenance.get("device") or "unknown") for s in done)
    torch = _values(str(s.provenance.get("torch") or "unknown") for s in done)
    return f"Commit: {commits}. Device: {devices}. torch: {torch}." if done else ""


def _unchecked(used: Sequence[Used]) -> str:
    """Which rows trained without their method having been held against the contract."""
    rows = list(dict.fromkeys(u.row for u in used if u.stored.provenance.get("unchecked")))
    return f"Trained with --unchecked, not held against the contract of methods: {', '.join(rows)}." if rows else ""


def _guards(done: Iterable[Stored]) -> str:
    """Which runs had numbers that were not finite, and went on without them."""
    fell = {(s.spec.method.name, s.spec.seed): s.provenance["guards"] for s in done if s.provenance.get("guards")}
    where = ", ".join(f"{name} seed {seed} ({count}×)" for (name, seed), count in fell.items())
    return f"Clients fell back on their last finite numbers in {where}." if where else ""


def _shared(done: Iterable[Stored]) -> str:
    """Which federations have rows that several clients hold."""
    counts: dict[str, dict[int, None]] = {}
    for stored in done:
        if shared := stored.provenance.get("shared_rows"):
            counts.setdefault(stored.spec.dataset.name, {})[int(str(shared))] = None
    where = ", ".join(f"{ranges(sorted(numbers))} images of {name}" for name, numbers in counts.items())
    return f"Several clients hold the same {where} (by seed)." if where else ""


def _values(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _precision(cells: Sequence[Cell]) -> str:
    found = sorted({run.precision for cell in cells for run in cell.needed} - {"fp32"})
    return f"Precision: {', '.join(found)}." if found else ""


def _costs(used: Sequence[Used]) -> list[str]:
    """What a round costs each row: from least to most where its columns differ."""
    done: dict[tuple[str, str], list[Stored]] = {}
    for one in used:
        if one.stored.failure is None:
            done.setdefault((one.row, one.column), []).append(one.stored)
    found = [(row, steps.costs(runs)) for (row, _), runs in done.items()]
    lines = [f"A round of {row}: {words}." for row, words in steps.beside(found).items()]
    return [*lines, steps.unknown_costs(found), steps.COUNTED] if found else []


def _data(table: Expansion, used: Sequence[Used]) -> str:
    hashes: dict[str, dict[str, None]] = {}
    for one in used:
        if one.stored.failure is None:
            hashes.setdefault(one.column, {})[(one.stored.spec.dataset.content or one.data_hash)[:12]] = None
    line = rules.per_column(table, {column: " / ".join(several) for column, several in hashes.items()})
    return f"Data: {line}." if line else ""


def _failures(used: Sequence[Used]) -> list[str]:
    """One line per distinct error, naming where it happened."""
    places: dict[str, dict[str, None]] = {}
    for one in used:
        if one.stored.failure is not None:
            error = (one.stored.failure.strip().splitlines() or ["no message"])[0]
            error = error if len(error) <= _LONGEST else f"{error[: _LONGEST - 1]}…"
            places.setdefault(error, {})[f"{one.row} × {one.setting}, seed {one.stored.spec.seed}"] = None
    return [f"Failed: {error} ({'; '.join(where)})" for error, where in places.items()]


def _spare(cells: Sequence[Cell], used: Sequence[Used], spare: Sequence[RunSpec]) -> list[str]:
    """What of the stored runs is left over, and why; what another column shows is not."""
    asked = {run.seed for cell in cells for run in cell.needed}
    shown = {one.stored.spec.id for one in used}
    spare = [run for run in spare if run.id not in shown]
    further = {run.id: run for run in spare if run.seed not in asked}.values()
    lines = []
    if further:
        methods = ", ".join(sorted({short_name(run.method.name) for run in further}))
        seeds = ranges(run.seed for run in further)
        lines.append(
            f"Not shown: {len(further)} stored run(s) of {methods} with other seeds than the table's ({seeds})."
        )
    if others := {run.id for run in spare if run.seed in asked}:
        lines.append(f"Not shown: {len(others)} stored run(s) of these rows scored at other stages.")
    return lines
