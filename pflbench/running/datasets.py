"""Datasets of runs: check that they are there, and count their images for suites of statistics."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pflbench import names
from pflbench.commands import command
from pflbench.data.root import data_root
from pflbench.data.source import Dataset
from pflbench.errors import DataMissing, PflbenchError
from pflbench.names import Places
from pflbench.running.events import Counted, Notice, OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.selection import Selection
from pflbench.spec import RunSpec
from pflbench.store.counts import Counts, read_counts, write_counts
from pflbench.suite.cells import CountedColumn
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.user_supplied import lacking

if TYPE_CHECKING:
    from pflbench.data.federation import Federation


class DataCheck:
    """Looks, once for each dataset and partition, whether what they read is below the data root."""

    def __init__(self, root: Path):
        self.root = root
        self._known: dict[str, tuple[str, ...]] = {}

    def problems(self, spec: RunSpec, places: Places) -> tuple[str, ...]:
        """Return sentences on data that a run lacks; empty if it lacks none. `places`: its user-supplied code."""
        key = f"{spec.dataset!r} {spec.partition!r} {sorted(places.items())}"
        if key not in self._known:
            self._known[key] = self._look(spec, places)
        return self._known[key]

    def _look(self, spec: RunSpec, places: Places) -> tuple[str, ...]:
        dataset: Dataset = names.made("datasets", spec.dataset, places)
        if dataset.status(self.root).startswith("ready"):
            return tuple(lacking(spec, self.root, places).values())
        try:
            dataset.load(self.root, 0)  # says what is missing, and how one gets it with these options
            how = dataset.status(self.root)
        except PflbenchError as error:
            how = str(error)
        except Exception:  # a user's dataset, which says so in words of its own
            how = dataset.status(self.root)
        return (f"The dataset {spec.dataset.name!r} is not there, so its columns are left out. {how}",)


def shown_by(suite: Suite, part: Selection, results: Path) -> str:
    """Sentence that names the command to see a suite that trains nothing; empty for a suite with runs."""
    if suite.document().statistics is not None:
        table = command(
            "report", part.but(suites=[suite.called], methods=None, overrides=None, like=None).options, results
        )
        return f"{suite.name} trains nothing: `{table}` prints its table."
    if not suite.document().row:
        plot = f"pflbench plot {shlex.quote(suite.called)} -o {suite.name}.png"
        return f"{suite.name} draws partitions and trains nothing: `{plot}` draws it without runs."
    return ""


def count_datasets(
    suites: Iterable[Suite],
    part: Selection,
    results: Path,
    execution: Execution,
    on_event: OnEvent = unheard,
    *,
    dry: bool = False,
) -> list[str]:
    """Count what is not counted yet of those of the suites that are statistics, in this part of them.

    With `redo="always"` everything is counted again; `dry`: say what there is to count, and stop.

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
            on_event(Notice(missing[-1], lacking=True))
    return missing


def to_count(suites: Iterable[Suite], part: Selection, results: Path) -> Iterator[tuple[CountedColumn, Counted]]:
    """The datasets of those of the suites that are statistics, each with what was counted of it earlier."""
    for suite in suites:
        if suite.document().statistics is not None:
            for dataset in expand(suite, part.but(rows=None, methods=None, overrides=None, like=None)).counted:
                counts = [read_counts(results, run) for run in dataset.federations]
                yield dataset, Counted(f"{suite.name} · {dataset.title}", None if None in counts else counts[0], True)


def _count(dataset: CountedColumn, results: Path, root: Path) -> Counts:
    """Count and store a dataset with each of its seeds; what it has with the first."""
    from pflbench.running import build  # which imports torch

    counts = {run: _counted(run, build.federation(run, root, dataset.places)) for run in dataset.federations}
    for run, one in counts.items():
        write_counts(results, run, one)
    return next(iter(counts.values()))


def _counted(run: RunSpec, federation: Federation) -> Counts:
    train, test = (sum(map(len, rows)) for rows in (federation.support, federation.query))
    classes = np.unique(federation.labels[np.concatenate((*federation.support, *federation.query))])
    return Counts(train + test, train, test, len(classes), run.dataset.content or federation.hash)
