"""Footer, captions, lists and commands tell of the rows that a table shows, and of no other."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from table_kit import row, with_cells

from pflbench.report.compact import compact
from pflbench.report.layout import fill, finished
from pflbench.report.provenance import values_outside_suite
from pflbench.report.reading import Shelf
from pflbench.report.render import render
from pflbench.report.table import Table
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Expansion, Reference
from pflbench.suite.scoped import Departure, Note

if TYPE_CHECKING:
    from conftest import Build

OTHERS = ("Ditto", "ditto", "Mine", "mine.py", "personal rate", "lam")
"""Words about rows that a table of FedAvg does not show."""


@pytest.fixture
def table(build: Build, store: Store) -> Expansion:
    """FedAvg, FedAvg-FT, Ditto with a failed run, a missing one and guesses, and an extra row that was not checked."""
    build.fill(store)
    given = build.table(references={("fedavg", "digits-a"): Reference(31.0, 1.0)})
    runs = tuple(build.spec(seed, "ditto", lam=0.5) for seed in range(3))
    ditto = replace(given.places["fedavg", "digits-a"], row=row("ditto", "Ditto"), runs=runs, sources={"lam": "guess"})
    ditto = replace(ditto, reference=Reference(90.0, 1.0), follows="Ditto's code")
    store.write(build.result(runs[0], 0.9, guards=2))
    store.write(build.failed(runs[1]))
    store.write(build.result(build.spec(0, "mine.py:Mine", version="abc"), 0.8, unchecked=True))
    store.write(build.result(build.spec(7, "ditto", lam=0.5), 0.8))
    told = Note(text="Only of Ditto.", methods=["ditto"])
    departure = Departure(what="personal rate", paper="x", here="y", source="guess", methods=["ditto"])
    of_fedavg = Departure(what="epochs", paper="x", here="y", source="guess", methods=["fedavg"])
    return replace(
        with_cells(given, ditto),
        rows=(*given.rows, ditto.row),
        notes=("Of all.", told.text),
        remarks=((told, departure, of_fedavg),),
        part=selection(suites=["demo"]),
    )


def laid_out(table: Expansion, store: Store, *methods: str) -> Table:
    return finished(fill(table, Shelf(store), requests_of(store)), methods=methods)


def test_the_whole_table_tells_of_all_its_rows(table: Expansion, store: Store) -> None:
    whole = " ".join((render(laid_out(table, store), "markdown") + render(laid_out(table, store), "csv")).split())
    assert all(word in whole for word in OTHERS), "else the tests below show nothing"
    assert "Failed: " in whole and "--unchecked" in whole and "Missing: " in whole and "Not shown: " in whole


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "csv"])
def test_no_output_tells_of_a_row_that_is_not_shown(table: Expansion, store: Store, format: str) -> None:
    shown = laid_out(table, store, "fedavg")
    assert [one.title for one in shown.rows] == ["FedAvg", "FedAvg-FT"] and not shown.extra
    for one in (shown, compact(shown)):
        said = " ".join(render(one, format, width=200, color=False).split())  # type: ignore[arg-type]
        assert "30.0" in said and not [word for word in OTHERS if word in said]
    assert "Of all." in shown.footer and "epochs" in " ".join(shown.footer)
    assert not shown.missing and not any(line.startswith(("Failed", "Missing", "Trained")) for line in shown.footer)


def test_what_is_missing_is_of_the_rows_shown_and_so_is_the_command(table: Expansion, store: Store) -> None:
    shown = laid_out(table, store, "ditto")
    assert [one.title for one in shown.rows] == ["Ditto"] and not shown.extra
    assert shown.missing.startswith("Missing: Ditto: Digits Dir 0.3 (seed 2). Missing, as they failed: Ditto: Digits")
    (typed,) = re.findall("`(.*)`", shown.missing)
    assert "--method ditto --redo failed" in typed
    footer = " ".join(shown.footer)
    assert "Protocol: Ditto's code." in footer and "Only of Ditto." in footer and "personal rate" in footer
    assert "Runs of the suite: 1 of 3 done, 1 failed." in footer
    assert "Not shown: 1 stored run(s) of ditto with other seeds" in footer
    assert "FedAvg" not in footer and "Mine" not in footer


def test_an_extra_row_is_told_of_alone(table: Expansion, store: Store) -> None:
    shown = laid_out(table, store, "mine.py:Mine")
    assert not shown.rows
    assert [one.title for one in shown.extra] == ["Mine (unchecked)", "Mine (global) (unchecked)"]
    footer = " ".join(shown.footer)
    assert "not held against the contract of methods: Mine" in footer
    assert "Ditto" not in footer and "FedAvg" not in footer


def test_numbers_bold_and_rivals_are_those_of_the_whole_table(table: Expansion, store: Store) -> None:
    filled = fill(table, Shelf(store), requests_of(store))
    whole, part = (finished(filled, "fedavg", methods=methods) for methods in ((), ("ditto",)))
    (ditto,) = part.rows
    assert ditto == next(one for one in whole.rows if one.id == "ditto")
    assert part.versus == whole.versus and part.versus and part.versus.rival == "FedAvg"


def test_a_title_with_values_has_no_second_parentheses_behind_it(build: Build) -> None:
    run: Any = SimpleNamespace(row="ditto (lam=0.5)", stored=SimpleNamespace(spec=build.spec(0, "ditto", lam=0.5)))
    said = values_outside_suite(build.table(), [run])
    assert said == "Hyperparameters of rows outside the suite: ditto (lam=0.5) with lam=0.5."
