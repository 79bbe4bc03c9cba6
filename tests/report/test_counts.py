"""How many examples datasets have, against what their partitions say."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from pflbench.data.letter_users import LetterUsers
from pflbench.report.counts import Counted, Counts, Line, count, lay_out_counts
from pflbench.report.render import render
from pflbench.report.table import Spread, TableInput
from pflbench.report.text import cell as text
from pflbench.spec import MethodSpec, Named, RunSpec, Scoring
from pflbench.suite.statistics import Sizes


def runs(dataset: Named, partition: Named, seeds: tuple[int, ...], **changes: object) -> list[RunSpec]:
    fields = {
        "method": MethodSpec(name="none", version="none"),
        "dataset": dataset,
        "partition": partition,
        "model": "mlp3",
        "clients": 10,
        "training_clients": 10,
        "cohort": 1,
        "query": "partition",
        "batch": 10,
        "rounds": 1,
        "scoring": Scoring(),
    }
    return [RunSpec(**(fields | changes | {"seed": seed})) for seed in seeds]  # type: ignore[arg-type]


def table(**changes: object) -> TableInput:
    fields = {"suite": "demo", "title": "Demo", "paper": "none", "profile": "paper", "rows": (), "columns": ()}
    return TableInput(**(fields | {"cells": {}, "spread": Spread("std", 1)} | changes))  # type: ignore[arg-type]


def test_all_rows_of_both_splits(tmp_path: Path) -> None:
    digits = Named(name="digits", options={"test": 300})
    found = count(runs(digits, Named(name="class-shards", options={"classes_per_client": 3}), (0, 1)), tmp_path)
    assert found.counts == (Counts(1797, 1497, 300, 10),) * 2 and found.hash and not found.missing
    few = count(
        runs(digits, Named(name="shards", options={"shards": 10}), (0,), query="test-split", clients=1,
             training_clients=1), tmp_path)  # fmt: skip
    own = 10 * (1497 // 10)  # that many rows are in shards of one size
    assert few.counts == (Counts(own + 300, own, 300, 10),)


def test_sizes_that_differ_by_seed(tmp_path: Path) -> None:
    users = LetterUsers(users=10, scale=0.3)
    named = Named(name="letter-users", options={"users": 10, "scale": 0.3})
    found = count(runs(Named(name="digits"), named, (0, 1, 2)), tmp_path)
    assert [one.total for one in found.counts] == [3 * int(users.per_class(seed).sum()) for seed in (0, 1, 2)]
    for one in found.counts:
        assert one.train + one.test == one.total and one.classes == 10


def test_missing_files_are_named(tmp_path: Path) -> None:
    found = count(runs(Named(name="cifar10", options={"test": True}), Named(name="class-shards"), (0,)), tmp_path)
    assert found.counts == () and str(tmp_path) in found.missing and "\n" not in found.missing


LINES = (
    Line("a", "A", Counted((Counts(30, 20, 10, 3),) * 2, "0123456789abcdef"), Sizes(total=29, train=20, test=9, classes=3)),
    Line("b", "B", Counted((Counts(8, 6, 2, 2), Counts(12, 6, 6, 2)), "fedcba9876543210"), None),
    Line("c", "C", Counted((), missing="C lacks c.bin."), Sizes(total=1, train=1, test=1, classes=1)),
)  # fmt: skip


def test_a_table_of_them() -> None:
    shown = lay_out_counts(table(notes=("A note.",)), LINES, (4, 5))
    assert [column.title for column in shown.columns] == ["total", "train", "test", "classes"]
    assert [[text(cell, 0) for cell in row.cells] for row in shown.rows] == [
        ["30", "20", "10", "3"],
        ["10 ± 3", "6", "4 ± 3", "2"],
        ["–", "–", "–", "–"],
    ]
    assert shown.footer[-2:] == ("C: C lacks c.bin.", "A note.")
    assert (
        "Seeds: 4, 5. Where they differ, the mean stands there. ± is the standard deviation over seeds." in shown.footer
    )
    assert "Data: 0123456789ab (A), fedcba987654 (B)." in shown.footer
    markdown = render(shown, "markdown")
    assert "| A     | total    |     30 |      29 |           +1 | –         |" in markdown
    assert "| C     |" not in markdown.partition("Ours and")[2]
    lines = list(csv.DictReader(io.StringIO(render(shown, "csv"))))
    assert [(one["row"], one["column"], one["mean"]) for one in lines if one["column"] == "test"] == [
        ("A", "test", "10.0"),
        ("B", "test", "4.0"),
    ]
    assert float(lines[4]["std"]) == pytest.approx(8**0.5)


def test_without_spread_and_without_differences() -> None:
    plain = lay_out_counts(table(with_spread=False), LINES, (4, 5))
    assert [text(cell, 0) for cell in plain.rows[1].cells] == ["10", "6", "4", "2"]
    assert not any("±" in line for line in plain.footer)
    same = lay_out_counts(table(profile="smoke"), LINES[:1], (4, 5))
    assert "Seeds: 4, 5." in same.footer and same.title == "Demo [profile: smoke]"
