"""What differs between two `pflbench report --format csv` files: of the same cells, and which cells only one has.

    pflbench report --format csv -o before.csv            # at one commit
    pflbench report --format csv -o after.csv             # at another
    python tests/results/compare_reports.py before.csv after.csv

Cells of the same suite, profile, column and stage are matched by title and numbers, else by numbers, title, or method, so
that a renamed row is found again. It prints, for each CSV column, the pairs of values that differ and how often; it exits with 1 if a number
differs (mean, std, sem, n, a reference, a difference) or a cell is only in one of the files.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path

PLACE = ("suite", "profile", "column", "stage")
NUMBERS = ("mean", "std", "sem", "n", "rounds", "reference_mean", "reference_spread", "difference")

Line = dict[str, str]


def main(before: Path, after: Path) -> int:
    """Print the differences; 1 if there are any that must not be."""
    old, new = _read(before), _read(after)
    changes: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    only: list[str] = []
    for place in dict.fromkeys((*old, *new)):
        left, right = old.get(place, []), new.get(place, [])
        for line in left:
            twin = _twin(line, right)
            if twin is None:
                only.append(f"only before: {_name(line)}")
                continue
            right.remove(twin)
            for key in line:
                if line[key] != twin.get(key, "(no such column)"):
                    changes[key][line[key], twin.get(key, "(no such column)")] += 1
        only += [f"only after: {_name(line)}" for line in right]
    for key, pairs in changes.items():
        print(f"{key}: {sum(pairs.values())} cells differ")
        for (was, now), count in pairs.most_common(12):
            print(f"  {count} × {_short(was)} → {_short(now)}")
    for one in only:
        print(one)
    moved = [key for key in changes if key in NUMBERS]
    print(f"{sum(map(len, old.values()))} cells before. Numbers that moved: {', '.join(moved) or 'none'}.")
    return 1 if moved or only else 0


def _read(path: Path) -> dict[tuple[str, ...], list[Line]]:
    found: dict[tuple[str, ...], list[Line]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found[tuple(line[key] for key in PLACE)].append(line)
    return found


def _twin(line: Line, others: list[Line]) -> Line | None:
    """The line of the same row: of the same title if there is one, else of the same numbers, else of the same method."""
    keys = (("row", *NUMBERS[:4]), NUMBERS[:4], ("row",), ("method",))
    for key in keys:
        alike = [other for other in others if all(other.get(k) == line[k] for k in key)]
        if len(alike) == 1 or (alike and key != NUMBERS[:4]):
            return alike[0]
    return None


def _name(line: Line) -> str:
    return " · ".join([*(line[key] for key in PLACE), line["row"], line["mean"]])


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
