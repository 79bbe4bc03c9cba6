from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from table_kit import expansion, row

from pflbench.result import Metric, RunResult, Score
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring
from pflbench.stages import Shown
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, Reading, Reference, TableColumn
from pflbench.suite.schema import Spread
from pflbench.testing import tiny_spec

STEPS = (1, 2)
LABELS = {"personalized": "PM", "global": "GM"}
KNOWN = {"asked": {"suite": "demo", "profile": "paper"}}
"""The provenance of runs that the tables below asked for."""
ALPHAS = {"digits-a": 0.3, "digits-b": 5.0}


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
        return tiny_spec(
            seed,
            MethodSpec(name=name, version=version, hyper=hyper),
            dataset="digits",
            partition=Named(name="dirichlet", options={"alpha": alpha}),
            clients=4,
            rounds=rounds,
            scoring=Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=2, lr=finetune_lr)),
            precision="fp32",
        )

    def result(
        self, spec: RunSpec, start: float, steps: tuple[float, float] = (0.5, 0.5), **provenance: object
    ) -> RunResult:
        """Two clients a tenth below and above the given accuracies, or as far as these are from 0 and 1; an earlier round that nothing may read."""
        moments = [("global", 0, start), *(("finetuned", t, a) for t, a in enumerate((start, *steps)))]
        scores = [Score("global", 1, 0, client, 0, 10, 0.0, 0.0) for client in (2, 3)]
        for stage, step, accuracy in moments:
            apart = min(0.1, accuracy, 1 - accuracy)
            for client, shift in ((2, -apart), (3, apart)):
                scores.append(Score(stage, spec.rounds, step, client, 0, 10, 0.0, accuracy + shift))
        found = {"commit": "c0ffee", "dirty": False, "device": "cpu", "data_hash": "d1", "torch": "2.11"}
        return RunResult(spec, tuple(scores), found | KNOWN | provenance)

    def failed(self, spec: RunSpec, why: str = "Diverged: the loss is not finite") -> RunResult:
        return RunResult(spec, failure=why)

    def table(
        self,
        *,
        seeds: int = 3,
        spread: Spread | None = None,
        references: dict[tuple[str, str], Reference] | None = None,
        **changes: object,
    ) -> Expansion:
        rows = (row("fedavg", "FedAvg"), row("fedavg-ft", "FedAvg-FT"))
        columns = tuple(
            TableColumn(id, "Digits", f"Dir {alpha:g}", "digits", "dirichlet", "cnn2", 4, 3)
            for id, alpha in ALPHAS.items()
        )
        cells = []
        for column in columns:
            runs = tuple(self.spec(seed, alpha=ALPHAS[column.id]) for seed in range(seeds))
            for of, reading in zip(rows, (Reading("global"), Reading("finetuned", STEPS)), strict=True):
                reference = (references or {}).get((of.id, column.id))
                cells.append(Cell(of, column, reading, runs, reference))
        fields = {
            "title": "Demo, Table 1",
            "paper": "arXiv:0000.00000",
            "rows": rows,
            "columns": columns,
            "cells": tuple(cells),
            "spread": spread or Spread(kind="std", ddof=0),
        }
        return expansion(**(fields | changes))

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
        return tiny_spec(
            seed,
            MethodSpec(name=name, version="1", hyper=hyper),
            dataset=group,
            partition="slices",
            clients=int(clients),
            training_clients=int(clients),
            cohort=int(clients),
            query="test-split",
            validation=validation,
            rounds=rounds,
            scoring=Scoring(
                clients="all",
                stages=stages,  # type: ignore[arg-type]
                average="examples",
                global_on="test-set",
                moment="before-aggregation",
            ),
            precision="fp32",
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
        return RunResult(spec, tuple(scores), {**KNOWN, "data_hash": "d1"} | provenance, None, metrics)

    def columns(self, *ids: str) -> tuple[TableColumn, ...]:
        """Columns like `a-2`: group A, two clients."""
        parts = [(id, *id.split("-")) for id in ids]
        return tuple(
            TableColumn(id, group.upper(), f"{clients} Clients", group, "slices", "mlp", int(clients), 3)
            for id, group, clients in parts
        )

    def cell(self, of: str, column: TableColumn, stage: Shown, smallest: int | None = None, **spec: object) -> Cell:
        """Two seeds of the method that the row is named after."""
        runs = tuple(self.spec(seed, of, column.id, **spec) for seed in (0, 1))  # type: ignore[arg-type]
        return Cell(row(of), column, Reading(stage, None, smallest), runs)

    def table(self, *ids: str, **changes: object) -> Expansion:
        """Rows pFedVEM (PM and GM), FedAvg (GM) and Local (PM, one round)."""
        columns = self.columns(*ids)
        cells = []
        for column in columns:
            cells.append(self.cell("pfedvem", column, "personalized"))
            cells.append(self.cell("local", column, "personalized", stages=("personalized",), rounds=1))
            cells.append(self.cell("pfedvem", column, "global"))
            cells.append(self.cell("fedavg", column, "global", stages=("global",)))
        fields = {
            "rows": (row("local", "Local"), row("fedavg", "FedAvg"), row("pfedvem", "Ours")),
            "columns": columns,
            "cells": tuple(cells),
            "stages": LABELS,
            "spread": Spread(kind="sem"),
            "decimals": 1,
            "blocks": "group",
        }
        return expansion(**(fields | changes))

    def alone(self, *cells: Cell, **changes: object) -> Expansion:
        """A table with the column of these cells alone, which does not tell stages apart."""
        return self.table(**({"columns": (cells[0].column,), "cells": cells, "stages": {}} | changes))

    def fill(self, store: Store, table: Expansion) -> None:
        """PM: Local 30 ± 10, pFedVEM 60 ± 10; GM: FedAvg 50 ± 10, pFedVEM 40 ± 10; in every column."""
        pm, gm = {"local": 0.2, "pfedvem": 0.5}, {"fedavg": 0.4, "pfedvem": 0.3}
        for run in dict.fromkeys(run for cell in table.cells for run in cell.needed):
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
