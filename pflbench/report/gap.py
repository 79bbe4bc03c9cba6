"""What another reading of the scored rounds gives: the last one, the mean of the last ten, or the best one.

The best round is chosen by what it is scored on, so it is optimistic, and never what a table shows unless it is asked
for. Some papers' numbers look like it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pflbench.report.reading import WINDOW, by_round
from pflbench.report.table import Gap
from pflbench.report.text import grouped, number, ranges
from pflbench.result import RunResult
from pflbench.suite.cells import ColumnHead, ReadAs, Reading, TableRow


def gap(results: Sequence[RunResult], reading: Reading) -> Gap | None:
    """The readings of a cell's finished runs, one for each seed; None where none was scored in several rounds."""
    every = {result.spec.seed: by_round(result, reading) for result in results}
    walks = {seed: walk for seed, walk in every.items() if len(walk) > 1}
    if not walks:
        return None
    at = {seed: max(walk, key=lambda round, walk=walk: walk[round]) for seed, walk in walks.items()}  # type: ignore[misc]
    lasts = {seed: list(walk.values())[-WINDOW:] for seed, walk in walks.items()}
    return Gap(
        last={seed: values[-1] for seed, values in lasts.items()},
        recent={seed: float(np.mean(values)) for seed, values in lasts.items()},
        best={seed: walk[at[seed]] for seed, walk in walks.items()},
        at=at,
        averaged=(min(map(len, lasts.values())), max(map(len, lasts.values()))),
        scored=(min(map(len, walks.values())), max(map(len, walks.values()))),
        alone=tuple(sorted(every.keys() - walks.keys())),
    )


Read = Sequence[tuple[TableRow, ColumnHead, Gap | None]]
"""The cells of a table that have a number, each with its gap."""


def gap_lines(read_as: ReadAs, cells: Read, decimals: int) -> tuple[str, list[str]]:
    """What the footer of a table that is not read at its last round says: a warning, and the gap of each cell."""
    there = [(row, head, one) for row, head, one in cells if one is not None]
    averaged = [number for *_, one in there for number in one.averaged]
    word = "best round" if read_as == "best" else f"last {max(averaged, default=0)} scored rounds"
    said = []
    if read_as == "best":
        said += ["Optimistic: each number is of its runs' best round, chosen on the data that it is scored on."]
        said += _chances(there)
    elif averaged:
        span = min(averaged), max(averaged)
        said.append(f"Each number is the mean over its runs' last {_span(span)} scored rounds.")
    alone = [f"{row.title} ({head.name})" for row, head, one in cells if one is None]
    alone += [f"{row.title} ({head.name}, {_seeds(one.alone)})" for row, head, one in there if one.alone]
    if alone:
        said.append(f"Scored in one round only, which is read: {', '.join(alone)}.")
    apart = grouped((head.name, f"{row.title} {_apart(one, read_as, decimals)}") for row, head, one in there)
    lines = [f"The {word} minus the last round, {at}: {'; '.join(texts)}." for at, texts in apart.items()]
    return " ".join(said), lines


def _chances(cells: Sequence[tuple[TableRow, ColumnHead, Gap]]) -> list[str]:
    """Of how many rounds each cell has the best, where they are not equally many."""
    found = grouped((one.scored, f"{row.title} ({head.name})") for row, head, one in cells)
    parts = (f"of {_span(numbers)}: {', '.join(names)}" for numbers, names in sorted(found.items()))
    said = f"The more rounds are scored, the higher the best of them; it is the best {'; '.join(parts)}."
    return [said] if len(found) > 1 else []


def _seeds(some: Sequence[int]) -> str:
    return f"{'seeds' if len(some) > 1 else 'seed'} {ranges(some)}"


def _span(numbers: tuple[int, int]) -> str:
    """`10`, or `10 to 20`."""
    few, most = numbers
    return f"{few} to {most}" if few < most else f"{most}"


def _apart(one: Gap, read_as: ReadAs, decimals: int) -> str:
    """`+1.2, rounds 15–17`."""
    rounds = f", rounds {ranges(one.at.values())}" if read_as == "best" else ""
    return number(one.mean(read_as) - one.mean("last"), None, decimals, "+") + rounds
