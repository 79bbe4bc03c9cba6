from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pflbench.report.table import CellInput, ColumnHead, Reading, Reference, RowHead, Spread, TableInput
from pflbench.result import Metric, RunResult, Score
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.store import Store

STEPS = (1, 2)
LABELS = {"personalized": "PM", "global": "GM"}


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
            ColumnHead("digits-a", "Dir 0.3", "Digits", "digits-a", "digits", "dirichlet", 4, 3),
            ColumnHead("digits-b", "Dir 5", "Digits", "digits-b", "digits", "dirichlet", 4, 3),
        )
        cells = {}
        for column, alpha in (("digits-a", 0.3), ("digits-b", 5.0)):
            runs = tuple(self.spec(seed, alpha=alpha) for seed in range(seeds))
            for row, stage, steps in (("fedavg", "global", None), ("fedavg-ft", "finetuned", STEPS)):
                reference = (references or {}).get((row, column))
                cells[row, column] = CellInput(row, column, Reading(stage, steps), runs, reference)
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


class Personal:
    """Tables with personal (PM) and global models (GM) in two groups of columns, scored as pFedVEM's paper does."""

    def spec(
        self,
        seed: int = 0,
        name: str = "pfedvem",
        column: str = "a-2",
        *,
        stages: tuple[str, ...] = ("global", "personalized"),
        rounds: int = 3,
        validation: float = 0.0,
        **hyper: object,
    ) -> RunSpec:
        group, clients = column.split("-")
        return RunSpec(
            method=MethodSpec(name=name, version="1", hyper=hyper),
            dataset=Named(name=group),
            partition=Named(name="slices"),
            model="mlp",
            clients=int(clients),
            training_clients=int(clients),
            cohort=int(clients),
            query="test-split",
            validation=validation,
            batch=10,
            rounds=rounds,
            scoring=Scoring(
                clients="all",
                stages=stages,  # type: ignore[arg-type]
                average="examples",
                global_on="test-set",
                moment="before-aggregation",
            ),
            seed=seed,
        )

    def result(
        self,
        spec: RunSpec,
        pm: Sequence[float] = (),
        gm: float = 0.0,
        sizes: Sequence[float] = (),
        **provenance: object,
    ) -> RunResult:
        """One accuracy per client, one on the test set; support sizes."""
        scores = [Score("global", spec.rounds, 0, -1, 0, 10, 0.0, float(gm))] if "global" in spec.scoring.stages else []
        if "personalized" in spec.scoring.stages:
            scores += [Score("personalized", spec.rounds, 0, c, 0, 10, 0.0, float(a)) for c, a in enumerate(pm)]
        metrics = tuple(Metric(0, client, "support", float(size)) for client, size in enumerate(sizes))
        return RunResult(spec, tuple(scores), {"data_hash": "d1"} | provenance, None, metrics)

    def heads(self, *columns: str, stages: bool = True) -> tuple[ColumnHead, ...]:
        """Heads of columns like `a-2`: group A, two clients."""
        found = []
        for column in columns:
            group, clients = column.split("-")
            own = (f"{clients} Clients", group.upper(), column, group, "slices", int(clients), 3)
            if stages:
                found += [ColumnHead(f"{column}/{s}", *own, s, label) for s, label in LABELS.items()]
            else:
                found.append(ColumnHead(column, *own))
        return tuple(found)

    def cell(self, row: str, head: ColumnHead, stage: str, smallest: int | None = None, **spec: object) -> CellInput:
        """Two seeds of the method that the row is named after."""
        runs = tuple(self.spec(seed, row, head.column, **spec) for seed in (0, 1))  # type: ignore[arg-type]
        return CellInput(row, head.id, Reading(stage, None, smallest), runs)

    def table(self, *columns: str, **changes: object) -> TableInput:
        """Rows pFedVEM (PM and GM), FedAvg (GM) and Local (PM, one round)."""
        heads = self.heads(*columns)
        cells = {}
        for head in heads:
            assert head.stage
            cells["pfedvem", head.id] = self.cell("pfedvem", head, head.stage)
            if head.stage == "global":
                cells["fedavg", head.id] = self.cell("fedavg", head, head.stage, stages=("global",))
            else:
                cells["local", head.id] = self.cell("local", head, head.stage, stages=("personalized",), rounds=1)
        fields = {
            "suite": "demo",
            "title": "Demo",
            "paper": "none",
            "profile": "paper",
            "rows": (RowHead("local", "Local"), RowHead("fedavg", "FedAvg"), RowHead("pfedvem", "Ours")),
            "columns": heads,
            "cells": cells,
            "spread": Spread("sem", 1),
            "decimals": 1,
            "blocks": True,
        }
        return TableInput(**(fields | changes))  # type: ignore[arg-type]

    def fill(self, store: Store, table: TableInput) -> None:
        """PM: Local 30 ± 10, pFedVEM 60 ± 10; GM: FedAvg 50 ± 10, pFedVEM 40 ± 10; in every column."""
        pm, gm = {"local": 0.2, "pfedvem": 0.5}, {"fedavg": 0.4, "pfedvem": 0.3}
        for run in {run.id: run for cell in table.cells.values() for run in cell.asked}.values():
            up, name = run.seed / 5, run.method.name
            half = [pm.get(name, 0) + up - 0.1, pm.get(name, 0) + up + 0.1]
            store.write(self.result(run, half, gm.get(name, 0) + up, (1, 2)))


@pytest.fixture
def build() -> Build:
    return Build()


@pytest.fixture
def personal() -> Personal:
    return Personal()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
