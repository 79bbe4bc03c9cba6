from __future__ import annotations

from pathlib import Path

import pytest

from pflbench.report.table import CellInput, ColumnHead, Reference, RowHead, Spread, TableInput
from pflbench.result import RunResult, Score
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store

STEPS = (1, 2)


class Build:
    """Specs, results and a table of two rows (global and fine-tuned, one run) and two columns."""

    def spec(
        self,
        seed: int = 0,
        name: str = "fedavg",
        *,
        version: str = "1",
        alpha: float = 0.3,
        finetune_lr: float = 0.1,
        rounds: int = 3,
        **hyper: object,
    ) -> RunSpec:
        return RunSpec(
            method=MethodSpec(name=name, version=version, hyper=hyper),
            dataset=Named(name="digits"),
            partition=Named(name="dirichlet", options={"alpha": alpha}),
            model="cnn2",
            clients=4,
            training_clients=2,
            cohort=2,
            query=0.25,
            batch=10,
            rounds=rounds,
            scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=2, lr=finetune_lr)),
            seed=seed,
        )

    def result(
        self, spec: RunSpec, start: float, steps: tuple[float, float] = (0.5, 0.5), **provenance: object
    ) -> RunResult:
        """Two clients a tenth below and above the given accuracies; an earlier round that nothing may read."""
        moments = [("global", 0, start), *(("finetuned", t, a) for t, a in enumerate((start, *steps)))]
        scores = [Score("global", 1, 0, client, 0, 10, 0.0, 0.0) for client in (2, 3)]
        for stage, step, accuracy in moments:
            for client, shift in ((2, -0.1), (3, 0.1)):
                scores.append(Score(stage, spec.rounds, step, client, 0, 10, 0.0, accuracy + shift))
        found = {"commit": "c0ffee", "dirty": False, "device": "cpu", "data_hash": "d1", "torch": "2.11"} | provenance
        return RunResult(spec, tuple(scores), found)

    def failed(self, spec: RunSpec, why: str = "Diverged: the loss is not finite") -> RunResult:
        return RunResult(spec, failure=why)

    def table(
        self,
        *,
        seeds: int = 3,
        spread: Spread | None = None,
        references: dict[tuple[str, str], Reference] | None = None,
        **changes: object,
    ) -> TableInput:
        rows = (RowHead("fedavg", "FedAvg"), RowHead("fedavg-ft", "FedAvg-FT"))
        columns = (
            ColumnHead("digits-a", "Dir 0.3", "Digits", "digits", "dirichlet", 4),
            ColumnHead("digits-b", "Dir 5", "Digits", "digits", "dirichlet", 4),
        )
        cells = {}
        for column, alpha in (("digits-a", 0.3), ("digits-b", 5.0)):
            runs = tuple(self.spec(seed, alpha=alpha) for seed in range(seeds))
            for row, stage, steps in (("fedavg", "global", None), ("fedavg-ft", "finetuned", STEPS)):
                reference = (references or {}).get((row, column))
                cells[row, column] = CellInput(row, column, stage, steps, runs, reference)
        fields = {
            "suite": "demo",
            "title": "Demo, Table 1",
            "paper": "arXiv:0000.00000",
            "profile": "paper",
            "rows": rows,
            "columns": columns,
            "cells": cells,
            "spread": spread or Spread("std", 0, "mean"),
        }
        return TableInput(**(fields | changes))  # type: ignore[arg-type]

    def fill(self, store: Store, seeds: int = 3, **provenance: object) -> None:
        """Column a: global 20, 30, 40 and fine-tuned 60 / 70, 70 / 80, 80 / 90; column b ten points higher."""
        for alpha, shift in ((0.3, 0.0), (5.0, 0.1)):
            for seed in range(seeds):
                up = seed / 10 + shift
                spec = self.spec(seed, alpha=alpha)
                store.write(self.result(spec, 0.2 + up, (0.6 + up, 0.7 + up), **provenance))


@pytest.fixture
def build() -> Build:
    return Build()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
