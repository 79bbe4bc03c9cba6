"""A table of what was counted of datasets, from stored numbers alone."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from table_kit import expansion

from pflbench.report.compact import compact
from pflbench.report.dataset_table import lay_out_counts
from pflbench.report.render import render
from pflbench.report.text import cell as text
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.store.counts import Counts, write_counts
from pflbench.suite.cells import CountedColumn, Expansion, TableColumn
from pflbench.suite.figure import Sizes
from pflbench.suite.schema import Spread
from pflbench.testing import tiny_spec

FEDERATIONS = {
    name: tuple(tiny_spec(seed, clients=clients) for seed in (4, 5)) for clients, name in ((7, "a"), (8, "b"), (9, "c"))
}
PRINTED = {
    "a": Sizes(total=29, train=20, test=9, classes=3),
    "b": None,
    "c": Sizes(total=1, train=1, test=1, classes=1),
}


def table(*ids: str, **changes: object) -> Expansion:
    """A line for each of these ids, which are titles, too; `c` is never counted."""
    columns = [TableColumn(id, "", id.upper(), "", "", "", 0, 0) for id in ids]
    counted = tuple(CountedColumn(one, FEDERATIONS[one.id], {}, PRINTED[one.id]) for one in columns)
    given = {"spread": Spread(kind="std", ddof=1), "part": selection(suites=["demo"]), "seeds": (4, 5)}
    return expansion(**given | {"counted": counted} | changes)


@pytest.fixture
def counted(store: Store) -> Store:
    numbers = {
        "a": [Counts(30, 20, 10, 3, "0123456789abcdef")] * 2,
        "b": [Counts(8, 6, 2, 2, "fedcba9876543210"), Counts(12, 6, 6, 2, "fedcba9876543210")],
        "c": [Counts(1, 1, 1, 1, "only the first seed")],
    }
    for id, several in numbers.items():
        for run, counts in zip(FEDERATIONS[id], several, strict=False):
            write_counts(store.root, run, counts)
    return store


def test_a_table_of_them(counted: Store) -> None:
    shown = lay_out_counts(table("a", "b", "c", notes=("A note.",)), counted)
    assert [head.column.title for head in shown.columns] == ["total", "train", "test", "classes"]
    assert [[text(cell, 0) for cell in row.cells] for row in shown.rows] == [
        ["30", "20", "10", "3"],
        ["10 ± 3", "6", "4 ± 3", "2"],
        ["–", "–", "–", "–"],
    ]
    assert shown.footer[-2:] == (
        "Not counted yet: C. `pflbench run --suite demo` counts what the datasets hold.",
        "A note.",
    )
    assert (
        "Seeds: 4, 5. Where they differ, the mean stands there. ± is the standard deviation over seeds." in shown.footer
    )
    assert "Data: 0123456789ab (A), fedcba987654 (B)." in shown.footer
    markdown = render(shown, "markdown")
    assert re.search(r"\| A +\| total +\| +30 \| +29 \| +\+1 \| – +\|", markdown)
    below = markdown.partition("pflbench's and")[2]
    assert "| A " in below and "| C " not in below
    lines = list(csv.DictReader(io.StringIO(render(shown, "csv"))))
    assert [(one["row"], one["column"], one["mean"]) for one in lines if one["column"] == "test"] == [
        ("A", "test", "10.0"),
        ("B", "test", "4.0"),
    ]
    assert float(lines[4]["std"]) == pytest.approx(8**0.5)


def test_counts_are_no_accuracies(counted: Store) -> None:
    shown = lay_out_counts(table("a", "b"), counted)
    assert not any("Accuracy" in line for line in compact(shown).footer)
    assert "Accuracy" not in render(shown, "latex")


def test_without_spread_and_without_differences(counted: Store) -> None:
    plain = lay_out_counts(table("a", "b", shows_spread=False), counted)
    assert [text(cell, 0) for cell in plain.rows[1].cells] == ["10", "6", "4", "2"]
    assert not any("±" in line or line.startswith("Not counted") for line in plain.footer)
    same = lay_out_counts(table("a", profile="smoke"), counted)
    assert "Seeds: 4, 5." in same.footer and same.title == "Demo [profile: smoke]"


def test_what_was_counted_of_something_else_or_is_damaged_is_not_there(counted: Store) -> None:
    (one,) = table("a").counted
    other = tuple(run.model_copy(update={"query": 0.5}) for run in one.federations)
    assert (
        lay_out_counts(replace(table("a"), counted=(one._replace(federations=other),)), counted).rows[0].cells[0]
        is None
    )
    for path in (counted.root / "counts").iterdir():
        path.write_text("{")
    assert lay_out_counts(table("a"), counted).rows[0].cells == (None,) * 4
