"""Count how many images datasets have, as suites of statistics divide them among clients, and store the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pflbench.data.root import data_root
from pflbench.errors import DataMissing
from pflbench.running.events import Counted, Lacking, OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store.counts import Counts, read_counts, write_counts
from pflbench.suite.counting import ToCount, counting
from pflbench.suite.document import Suite

if TYPE_CHECKING:
    from pflbench.data.federation import Federation


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
    for dataset, known in to_count(suites, part, results):
        if dry or (known.counts is not None and execution.redo != "always"):
            on_event(known)
            continue
        try:
            on_event(Counted(known.dataset, _count(dataset, results, data_root(execution.data_dir))))
        except DataMissing as error:
            missing.append(f"{known.dataset} cannot be counted. {' '.join(str(error).split())}")
            on_event(Lacking(missing[-1]))
    return missing


def to_count(suites: Iterable[Suite], part: Selection, results: Path) -> Iterator[tuple[ToCount, Counted]]:
    """The datasets of those of the suites that are statistics, each with what was counted of it earlier."""
    for suite in suites:
        if suite.document().statistics is not None:
            for dataset in counting(suite, part).datasets:
                there = [read_counts(results, run) for run in dataset.federations]
                yield dataset, Counted(f"{suite.name} · {dataset.title}", None if None in there else there[0], True)


def _count(dataset: ToCount, results: Path, root: Path) -> Counts:
    """Count and store a dataset with each of its seeds; what it has with the first."""
    from pflbench.executor import build  # which imports torch

    counts = {run: _counted(run, build.federation(run, root, dataset.places)) for run in dataset.federations}
    for run, one in counts.items():
        write_counts(results, run, one)
    return next(iter(counts.values()))


def _counted(run: RunSpec, federation: Federation) -> Counts:
    train, test = (sum(map(len, rows)) for rows in (federation.support, federation.query))
    classes = np.unique(federation.labels[np.concatenate((*federation.support, *federation.query))])
    return Counts(train + test, train, test, len(classes), run.dataset.content or federation.hash)
