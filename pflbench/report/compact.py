"""Parts of a finished table: a short form for the terminal, and some of its rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pflbench.errors import unknown
from pflbench.names import without_folder
from pflbench.report import text
from pflbench.report.extra_rows import EXTRA
from pflbench.report.facts import facts
from pflbench.report.table import Row, Table
from pflbench.report.text import grouped, number
from pflbench.report.verdict import COMPARED, GLYPHS, Label

_FARTHEST = 3
"""Cells that differ most, which the short form names."""


def compact(table: Table) -> Table:
    """The table's short form: rows and columns with results, the warnings, and few lines that sum up the footer."""
    left = filled(table)
    warnings = (fact for fact in table.facts if fact.severity == "warning")
    if not table.has_results and table.missing:
        return replace(left, facts=(*warnings, *facts("missing", table.missing)), brief=True)
    scored = _scored((*left.rows, *left.extra), table.unit) if table.unit else ""
    summary = [scored, *((*table.texts("progress"), *table.texts("seeds")) if table.unit else ())]
    return replace(
        left,
        facts=(
            *warnings,
            *facts("verdict", *_against(table)),
            *facts("sources", " ".join(_marks(table))),
            *facts("missing", table.missing),
            *facts("progress", " ".join(filter(None, summary))),
        ),
        brief=True,
    )


def filled(table: Table) -> Table:
    """The table without rows and columns that have no results."""
    heads = {head.id for _, head, _ in table.shown}
    columns = [i for i, head in enumerate(table.columns) if head.id in heads]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in columns),
        rows=_with_results(table.rows, columns),
        extra=_with_results(table.extra, columns),
    )


def check_known(methods: Collection[str], known: Collection[str]) -> None:
    """Raise `UsageError` for the name of a row or method that no table has. `known`: what their rows are called."""
    for name in {without_folder(name) for name in methods} - set(known):
        raise unknown("method", name, {other for other in known if not other.startswith(EXTRA)})


def rows_of(rows: Sequence[Row], extra: Sequence[Row], methods: Collection[str]) -> tuple[tuple[Row, ...], ...]:
    """The rows and extra rows of these methods alone, perhaps none. No methods: all.

    `methods`: ids of rows, or names of methods, of one's own as `file.py:Class`. A name that is a row's id is that row,
    with those that show its runs at other stages, even where it is a method of more rows.
    """
    wanted = {without_folder(name) for name in methods}
    if not wanted:
        return tuple(rows), tuple(extra)
    ids = {row.id for row in rows}

    def kept(row: Row) -> bool:
        return row.id in wanted or any(name in wanted and name not in ids for name in names_of(row))

    shown = {id for row in (*rows, *extra) if kept(row) for id in _runs(row)}
    left = ((row for row in some if kept(row) or (_runs(row) and _runs(row) <= shown)) for some in (rows, extra))
    return tuple(map(tuple, left))


def _runs(row: Row) -> set[str]:
    """The ids of the runs that the row shows."""
    return {id for value in row.cells if value is not None for ids in value.runs.values() for id in ids}


def names_of(row: Row) -> set[str]:
    """Names that select a row: its id, and the methods of its runs."""
    return {row.id, *(value.method for value in row.cells if value is not None)}


def _with_results(rows: Sequence[Row], columns: Sequence[int]) -> tuple[Row, ...]:
    left = (replace(row, cells=tuple(row.cells[i] for i in columns)) for row in rows)
    return tuple(row for row in left if any(value and value.there for value in row.cells))


def _scored(rows: Sequence[Row], unit: str) -> str:
    """The unit, and which model each row is scored with if that is not the same for all or does not head a column."""
    by_row = grouped((row.title, value.stage) for row in rows for value in row.cells if value is not None)
    stages = [stage for several in by_row.values() for stage in sorted(several)]
    if not stages or any(len(several) > 1 for several in by_row.values()):  # which then head the columns
        return f"{unit}."
    most = max(stages, key=stages.count)
    others = grouped((stage, title) for title, several in by_row.items() for stage in several if stage != most)
    told = [f"{', '.join(titles)} at stage {stage}, " for stage, titles in others.items()]
    return f"{unit}: {''.join(told)}{'all others' if told else 'all'} at stage {most}."


def _against(table: Table) -> list[str]:
    """Number of cells by verdict with its glyph, and the largest differences of those that differ."""
    found: dict[Label, list[tuple[float, str]]] = {}
    suspect = 0
    for row, head, value in table.shown if table.compared else ():
        if value.verdict is not None:
            apart = value.difference or 0.0
            where = f"{row.title}, {head.name}: {number(apart, None, table.decimals, '+')}"
            found.setdefault(value.verdict.label, []).append((apart, where))
            suspect += value.verdict.suspect is not None
    order = [*COMPARED, *(label for label in found if label not in COMPARED)]
    counts = [f"{GLYPHS.get(label, '')} {label} {len(found[label])}".strip() for label in order if label in found]
    if not counts:
        return []
    far = [where for _, where in sorted(found.get("differs", ()), key=lambda one: -abs(one[0]))]
    most = f"; most: {'; '.join(far[:_FARTHEST])}" if far else ""
    of = f" ({suspect} of them against suspect numbers)" if suspect else ""
    return [f"Against the paper, whose numbers stand right (docs/statistics.md): {', '.join(counts)}{of}{most}."]


def _marks(table: Table) -> list[str]:
    there = {source for *_, value in table.shown if value.mean is not None for source in value.rests_on.values()}
    meanings = {"guess": "a guess", "tuned": "values that we tuned"}
    told = [f"{text.MARKS[source]} on {meaning}" for source, meaning in meanings.items() if source in there]
    return [f"Rests {', '.join(told)}."] if told else []
