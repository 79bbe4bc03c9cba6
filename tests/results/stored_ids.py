"""The stored runs that each suite finds under `results/`, by profile.

`python tests/results/stored_ids.py` writes them to stored_ids.json. That is to be done when runs are added, and never to make
a test pass: an id that is not found any more is a stored result that no table shows.
"""

from __future__ import annotations

import json
from pathlib import Path

from pflbench.report.reading import readable
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import available, load

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).with_name("stored_ids.json")

Found = dict[str, dict[str, list[str]]]


def found() -> Found:
    """Ids of stored runs by suite and profile, for the shipped suites that have any; the same with and without data."""
    store = Store(ROOT / "results")
    stored = {run.spec.id for run in store.list()}
    result: Found = {}
    for name in available():
        suite = load(name, readable(store))
        if not suite.document().row:
            continue
        for profile in suite.profiles:
            if ids := sorted(stored & {run.id for run in expand(suite, profile=profile).runs}):
                result.setdefault(name, {})[profile] = ids
    return result


if __name__ == "__main__":
    PINNED.write_text(json.dumps(found(), indent=1) + "\n", encoding="utf-8")
