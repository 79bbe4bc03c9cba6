"""A comparison of two results folders as text: for a terminal, as Markdown, or as CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from pflbench.report.compare import MOVED, STATES, Comparison, Pair
from pflbench.report.screen import Screen, listed
from pflbench.report.statistics import LEVEL
from pflbench.report.text import NONE, in_csv, in_markdown, in_pipes, number, ranges
from pflbench.units import count

Format = Literal["terminal", "markdown", "csv"]
CSV_COLUMNS = (
    *("suite", "profile", "row", "row_id", "column", "column_id", "stage", "state", "a", "b", "difference"),
    *("low", "high", "n", "seeds_a", "seeds_b", "same_scores", "rounding", "note"),
    *("runs_a", "runs_b"),
)
_HEADER = ("Table", "Row", "Column", "A", "B", "B - A", "95 % interval", "Seeds", "")
_WORDS = ("Table", "Row", "Column", "")


def pairs_shown(found: Comparison, *, only_changed: bool = False) -> list[Pair]:
    """The cells to show, in the order of the tables."""
    return [one for one in found.pairs if one.state in MOVED or not only_changed]


def comparison_text(
    found: Comparison, format: Format = "terminal", *, only_changed: bool = False, width: int | None = None
) -> str:
    """The comparison as text that ends with a newline.

    Args:
        found: What was compared.
        format: `csv` has a line for each cell, with `CSV_COLUMNS`.
        only_changed: Whether only cells that are worse or better are shown.
        width: Characters per line in a terminal; default: the terminal's.
    """
    shown = pairs_shown(found, only_changed=only_changed)
    if format == "csv":
        return "".join(f"{in_csv(line)}\n" for line in (CSV_COLUMNS, *pair_records(shown)))
    by_state = {state: [one for one in shown if one.state == state] for state in STATES}
    lists = {f"{STATES[state]}: {count(len(pairs), 'cell')}": pairs for state, pairs in by_state.items() if pairs}
    states = Counter(one.state for one in found.pairs)
    counts = ", ".join(f"{title[0].lower()}{title[1:]} {states[one]}" for one, title in STATES.items() if states[one])
    notes = [f"Cells: {counts}.", *_notes(found)]
    if format == "terminal":
        return _terminal(found, lists, notes, width)
    parts = [f"- A: {in_markdown(str(found.a))}\n- B: {in_markdown(str(found.b))}"]
    for head, pairs in lists.items():
        parts += [f"### {head}", _listed(pairs)]
    parts.append("\n".join(f"- {in_markdown(note)}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _terminal(found: Comparison, lists: Mapping[str, Sequence[Pair]], notes: Sequence[str], width: int | None) -> str:
    """Lists of cells; the tables' names stand above their cells."""
    screen = Screen(width)
    screen.say(f"A: {found.a}")
    screen.say(f"B: {found.b}")
    for head, pairs in lists.items():
        screen.say("")
        screen.say(head)
        for table, several in groupby(pairs, _table):
            screen.say("")
            screen.say(table)
            lines = [_line(one) for one in several]
            names = [name for name in _HEADER[1:] if name or any(line[name] for line in lines)]
            screen.show(listed(names, [[line[name] for name in names] for line in lines], _WORDS))
    screen.say("")
    for note in notes:
        screen.say(note)
    return screen.text


def _notes(found: Comparison) -> list[str]:
    notes = [
        "B - A is in points, over all seeds that both have, as a description: also over those that the suite does not "
        "declare. Its interval is Student's over these seeds' differences."
    ]
    same = [one for one in found.pairs if one.state == "same"]
    if same:
        alike = sum(one.alike for one in same)
        notes.append(
            f'"Same": {alike} with the same scores to the last bit, {len(same) - alike} within rounding or noise.'
        )
    if found.tested:
        by_chance = number((1 - LEVEL) * found.tested, None, 1)
        cells = f"Of {count(found.tested, 'cell')} with an interval and not the same scores"
        notes.append(f"{cells}, {by_chance} would move by chance alone.")
    return notes


def _listed(pairs: Sequence[Pair]) -> str:
    """Cells as a table in Markdown."""
    from tabulate import tabulate

    lines = [_line(one) for one in pairs]
    names = [name for name in _HEADER if name or any(line[name] for line in lines)]
    sides = ["left" if name in _WORDS else "right" for name in names]
    fields = [[in_pipes(line[name]) for name in names] for line in lines]
    return tabulate(fields, headers=names, tablefmt="pipe", colalign=sides, disable_numparse=True)


def _table(one: Pair) -> str:
    return one.name.suite if one.name.profile == "paper" else f"{one.name.suite} [{one.name.profile}]"


def _line(one: Pair) -> dict[str, str]:
    """Texts of a cell by `_HEADER`."""
    interval = one.interval
    fields = [
        *(_table(one), one.name.row_title, one.name.column_title, _number(one.a), _number(one.b)),
        NONE if one.difference is None else f"{_number(one.difference, '+')}",
        f"{_number(interval.low, '+')} to {_number(interval.high, '+')}" if interval and not one.alike else NONE,
        ranges(one.shared or one.seeds_a or one.seeds_b),
        one.why,
    ]
    return dict(zip(_HEADER, fields, strict=True))


def _number(value: float | None, sign: str = "") -> str:
    return NONE if value is None else f"{round(value, 2) + 0.0:{sign}.2f}"


def pair_records(shown: Sequence[Pair]) -> Iterator[Sequence[object]]:
    """Values of `CSV_COLUMNS` for each cell."""
    for one in shown:
        name, interval = one.name, one.interval
        yield (
            *(name.suite, name.profile, name.row_title, name.row, name.column_title, name.column, name.stage),
            *(one.state, *map(_short, (one.a, one.b, one.difference, *(interval or (None, None))))),
            one.paired.n if one.paired else None,
            *(" ".join(map(str, seeds)) for seeds in (one.seeds_a, one.seeds_b)),
            *(one.alike, one.rounding, one.why, " ".join(one.runs_a), " ".join(one.runs_b)),
        )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 10)
