"""Packs for the wheel: without scores of early rounds, which curves show and no table reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from pflbench.result import RunResult
from pflbench.store import runfile
from pflbench.store.checked import Provenance
from pflbench.store.columns import Scores, Words, scores_of
from pflbench.store.header import Stored

ROUNDS = 10
"""Scored rounds that are kept of each stage, at least: a table's reading `last-10` takes as many."""
KEPT = "kept_rounds"
"""Key of the provenance of a run without its early rounds; its value is `ROUNDS`."""


def thin(packs: Path, into: Path) -> None:
    """Write a folder's packs into another folder, with the last `ROUNDS` scored rounds of each stage.

    Runs that were scored after every round stay whole, as tables of PFLlib's kind show their best round. Metrics, and
    every file that is no pack, stay as they are. Raises `Unfit` and `StoreError`.
    """
    into.mkdir(parents=True)
    for path in sorted(packs.iterdir()):
        if path.suffix != ".parquet":
            (into / path.name).write_bytes(path.read_bytes())
            continue
        pack = runfile.RunFile(path)
        for reason in pack.unread:
            raise reason
        results = {id: shortened(pack.read(id)) for id in pack.entries}
        runs = [_described(run, results[id]) for id, run in pack.entries.items()]
        runfile.write_pack(into, runs, results.__getitem__)


def shortened(result: RunResult) -> RunResult:
    """The run without the scores that `thin` leaves out."""
    if result.provenance.get("evaluate_every") == 1 or not result.scores:
        return result
    scores = scores_of(result.scores)
    columns: Mapping[str, Any] = scores.columns
    stages, rounds = columns["stage"], columns["round"]
    kept = np.zeros(len(rounds), dtype=bool)
    for stage in stages.texts:
        rows = stages.where(stage)
        kept[rows] = np.isin(rounds[rows], np.unique(rounds[rows])[-max(ROUNDS, result.spec.scoring.last) :])
    if kept.all():
        return result
    rows = np.flatnonzero(kept)
    taken = [column.take(rows) if isinstance(column, Words) else column[rows] for column in columns.values()]
    return replace(result, scores=Scores(*taken), provenance=result.provenance | {KEPT: ROUNDS})


def _described(run: Stored, result: RunResult) -> Stored:
    rows = len(result.scores) + len(result.metrics)
    return run._replace(provenance=cast(Provenance, result.provenance), rows=rows, checksum=None)
