"""A named rival: paired differences over seeds, and Holm over a column."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from table_kit import row

from pflbench.errors import UsageError
from pflbench.report.compact import compact
from pflbench.report.layout import lay_out
from pflbench.report.render import VERSUS_COLUMNS, long_form, render
from pflbench.report.rivals import rival_row
from pflbench.report.table import Against, Table
from pflbench.store import Store
from pflbench.suite.cells import Cell, Expansion, Reading

if TYPE_CHECKING:
    from conftest import Build

GAINS = (0.11, 0.13, 0.1, 0.16, 0.12, 0.09, 0.14, 0.15, 0.12, 0.1)
"""What a method gains on each seed; the seeds themselves vary much more."""


def rivals(build: Build, store: Store, gains: dict[str, tuple[float, ...]]) -> Expansion:
    """A column whose rows are FedAvg and, on the same seeds, methods with these gains over it."""
    seeds = max(map(len, gains.values()))
    column = build.table(seeds=seeds).columns[0]
    cells, rows = [], []
    for name, gained in {"fedavg": (0.0,) * seeds, **gains}.items():
        runs = tuple(build.spec(seed, name) for seed in range(len(gained)))
        for run, gain in zip(runs, gained, strict=True):
            store.write(build.result(run, 0.2 + 0.05 * (run.seed % 7) + gain))
        rows.append(row(name))
        cells.append(Cell(rows[-1], column, Reading("global"), runs))
    return build.table(seeds=seeds, columns=(column,), rows=tuple(rows), cells=tuple(cells))


def of(table: Table, name: str) -> Against:
    assert table.versus is not None
    return table.versus.cells[name, table.columns[0].id]


def test_differences_are_paired_by_seed(build: Build, store: Store) -> None:
    table = lay_out(rivals(build, store, {"ditto": GAINS[:5]}), store, versus="fedavg")
    found, there = of(table, "ditto"), scipy.stats.ttest_1samp(100 * np.array(GAINS[:5]), 0.0)
    assert found.paired.interval == pytest.approx(tuple(there.confidence_interval(0.95)))
    assert found.p == pytest.approx(float(there.pvalue))  # one comparison: Holm does nothing
    assert ("fedavg", table.columns[0].id) not in table.versus.cells  # type: ignore[union-attr]


def test_holm_counts_the_comparisons_of_a_column(build: Build, store: Store) -> None:
    worse = tuple(-gain / 20 * (-1) ** i for i, gain in enumerate(GAINS))
    table = lay_out(rivals(build, store, {"ditto": GAINS, "ifca": worse, "fedper": GAINS}), store, versus="fedavg")
    ditto, ifca = of(table, "ditto"), of(table, "ifca")
    assert ditto.paired.p_t is not None and ifca.paired.p_t is not None
    assert ditto.p == pytest.approx(3 * ditto.paired.p_t) and ifca.p == pytest.approx(ifca.paired.p_t)


def test_only_shared_seeds_count(build: Build, store: Store) -> None:
    table = rivals(build, store, {"ditto": GAINS[:3], "fedper": GAINS[:5]})
    assert of(lay_out(table, store, versus="fedavg"), "ditto").paired.n == 3
    assert of(lay_out(table, store, versus="ditto"), "fedper").paired.n == 3


def test_one_shared_seed_has_a_difference_alone(build: Build, store: Store) -> None:
    table = lay_out(rivals(build, store, {"ditto": GAINS[:1], "fedper": GAINS[:3]}), store, versus="fedavg")
    found, other = of(table, "ditto"), of(table, "fedper")
    assert (found.paired.n, found.paired.interval, found.p) == (1, None, None)
    assert found.paired.mean == pytest.approx(11.0)
    assert other.p == pytest.approx(other.paired.p_t), "Holm counts the comparisons with a test"
    shown = render(table, "markdown")
    assert "1 seed |" in shown and "no interval" in shown


def test_a_rival_is_a_row_or_the_method_of_one(build: Build, store: Store) -> None:
    build.fill(store)
    table = build.table()  # the rows FedAvg and FedAvg-FT are two methods here, as the kit names them
    assert lay_out(table, store, versus="fedavg-ft").versus.rival == "FedAvg-FT"  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="Unknown row 'fedvag'"):
        lay_out(table, store, versus="fedvag")
    both = tuple(row(name) for name in ("a", "b"))
    once, twice = (
        build.table(rows=tuple(type(one)(one.id, one.title, "fedavg", ()) for one in some), cells=())
        for some in (both[:1], both)
    )
    assert rival_row(once, "fedavg") == "a"
    with pytest.raises(UsageError, match="fedavg has several rows in demo: name one, a or b"):
        lay_out(twice, store, versus="fedavg")


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex"])
def test_every_format_shows_it(build: Build, store: Store, format: str) -> None:
    table = lay_out(rivals(build, store, {"ditto": GAINS}), store, versus="fedavg")
    shown = render(table, format, width=150, color=False)  # type: ignore[arg-type]
    assert "gainst fedavg" in shown and "+12.20 (" in shown and "10 seeds" in shown and "Holm" in shown
    assert "gainst" not in render(lay_out(rivals(build, store, {"ditto": GAINS}), store), format)  # type: ignore[arg-type]


def test_the_short_form_has_it(build: Build, store: Store) -> None:
    table = lay_out(rivals(build, store, {"ditto": GAINS}), store, versus="fedavg", over_clients=True)
    shown = render(compact(table), "terminal", width=150, color=False)
    assert "Against fedavg\n" in shown and "+12.20 (" in shown and "\nOver clients\n" in shown


def test_the_csv_has_it(build: Build, store: Store) -> None:
    table = lay_out(rivals(build, store, {"ditto": GAINS}), store, versus="fedavg")
    frame = pd.read_csv(io.StringIO(render(table, "csv"))).set_index("row")
    assert set(VERSUS_COLUMNS) <= set(frame.columns)
    one, line = of(table, "ditto"), frame.loc["ditto"]
    assert (line.versus, line.versus_n) == ("fedavg", 10)
    assert line.versus_difference == pytest.approx(one.paired.mean) and line.versus_p == pytest.approx(one.p, abs=1e-9)
    assert pd.isna(frame.loc["fedavg"].versus_difference)
    plain = lay_out(rivals(build, store, {"ditto": GAINS}), store)
    both = pd.read_csv(io.StringIO(long_form([plain, table])))  # one header, and every line as long as it
    assert both.versus_n.notna().tolist() == [False, False, False, True]
    assert not set(VERSUS_COLUMNS) & set(pd.read_csv(io.StringIO(render(plain, "csv"))).columns)


def test_rows_at_another_stage_than_the_rival_are_named(build: Build, store: Store) -> None:
    table = rivals(build, store, {"ditto": GAINS[:3]})
    fedavg, ditto = table.cells
    assert "Not alike" not in render(lay_out(table, store, versus="fedavg"), "markdown")
    other = replace(table, cells=(fedavg, replace(ditto, reading=Reading("finetuned"))))
    assert "Not alike: ditto at stage finetuned, fedavg at stage global." in render(
        lay_out(other, store, versus="fedavg"), "markdown"
    )
