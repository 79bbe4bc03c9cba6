"""Count how many images datasets have, as suites of statistics divide them among clients, and store the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pflbench.data.federation import Federation
from pflbench.data.root import data_root
from pflbench.errors import DataMissing
from pflbench.executor import build
from pflbench.running.events import Counted, Lacking, OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store.counts import Counts, read_counts, write_counts
from pflbench.suite.counting import ToCount, counting
from pflbench.suite.document import Suite


def count_datasets(
    suites: Iterable[Suite],
    part: Selection,
    results: Path,
    execution: Execution,
    on_event: OnEvent = unheard,
    *,
    dry: bool = False,
) -> list[str]:
    """Count what is not counted yet of those of the suites that are statistics.

    Args:
        suites: Any suites.
        part: Which columns, seeds and profile of them.
        results: The results folder.
        execution: Where the data are; `redo="always"` counts again.
        on_event: Hears of every dataset that is counted, and of every one that is missing.
        dry: Whether to say what there is to count, and stop.

    Returns:
        What is missing, a sentence for each dataset that could not be counted.

    Raises:
        PflbenchError: A file of a dataset is damaged, a partition is impossible, or nothing can be stored.
    """
    missing = []
    for suite in (suite for suite in suites if suite.document().statistics is not None):
        for dataset in counting(suite, part).datasets:
            name = f"{suite.name} · {dataset.title}"
            there = [read_counts(results, run) for run in dataset.federations]
            if None not in there and execution.redo != "always":
                on_event(Counted(name, there[0], earlier=True))
            elif dry:
                on_event(Counted(name, None))
            else:
                try:
                    on_event(Counted(name, _count(dataset, results, data_root(execution.data_dir))))
                except DataMissing as error:
                    missing.append(f"{name} cannot be counted. {' '.join(str(error).split())}")
                    on_event(Lacking(missing[-1]))
    return missing


def _count(dataset: ToCount, results: Path, root: Path) -> Counts:
    """Count and store a dataset with each of its seeds; what it has with the first."""
    found = {run: _counted(run, build.federation(run, root, dataset.places)) for run in dataset.federations}
    for run, one in found.items():
        write_counts(results, run, one)
    return next(iter(found.values()))


def _counted(run: RunSpec, federation: Federation) -> Counts:
    train, test = (sum(map(len, rows)) for rows in (federation.support, federation.query))
    held = np.concatenate((*federation.support, *federation.query))
    return Counts(
        train + test, train, test, len(np.unique(federation.labels[held])), run.dataset.content or federation.hash
    )
