"""A table beside another suite's: its numbers in the same places, and each row's rank there and here."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from pflbench.errors import UsageError
from pflbench.report.compact import compact
from pflbench.report.explain import explain_cell
from pflbench.report.explain_text import explanation_text as explained
from pflbench.report.layout import lay_out
from pflbench.report.render import BESIDE_COLUMNS, CSV_COLUMNS, html, render
from pflbench.report.table import Table
from pflbench.result import RunResult, Score
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import load

BASE = """
[suite]
name = "base"
title = "Base"
paper = "none"
protocol = "as printed"
seeds = [0, 1]
spread = { kind = "std", ddof = 0 }

[federation]
clients = 10
query = 0.2

[evaluation]
clients = "all"
average = "examples"

[[column]]
id = "a"
title = "A"
dataset = { name = "digits" }
partition = { name = "shards", shards = 20 }
model = "cnn2"
rounds = 2
batch = 10

[[column]]
id = "b"
like = "a"
title = "B"
batch = 5

[[row]]
id = "fedavg"
title = "FedAvg"
method = "fedavg"
stage = "global"

[[row]]
id = "ifca"
title = "IFCA"
method = "ifca"
stage = "global"

[[row]]
id = "cafeme"
title = "CAFeMe"
method = "cafeme"
stage = "global"

[layout]
decimals = 1
"""
FAIR = """
[suite]
extends = "base.toml"
name = "fair"
title = "Fair"

[[column]]
id = "a"
like = "a"

[[column]]
id = "b"
like = "b"

[[row]]
id = "fedavg"
like = "fedavg"
hyper = { lr = 0.5 }

[[row]]
id = "ifca"
like = "ifca"
hyper = { lr = 0.5 }

[[row]]
id = "cafeme"
like = "cafeme"
hyper = { steps = 2 }

[[row]]
id = "new"
title = "New"
method = "fedavg"
stage = "global"
hyper = { lr = 0.7 }

[layout]
beside = "base.toml"
"""
Percents = dict[tuple[str, str], tuple[float, ...]]
THERE: Percents = {("fedavg", "a"): (50, 52), ("ifca", "a"): (60, 60), ("cafeme", "a"): (70, 70), ("fedavg", "b"): (9,)}
HERE: Percents = {
    ("fedavg", "a"): (80, 80), ("ifca", "a"): (75, 75), ("cafeme", "a"): (75, 75), ("new", "a"): (90, 90),
    ("fedavg", "b"): (40, 40),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "fair.toml").write_text(FAIR)
    return tmp_path


def stored(folder: Path, name: str, percents: Percents) -> None:
    table = expand(load(str(folder / name)))
    for (row, column), seeds in percents.items():
        for run, percent in zip(table.places[row, column].runs, seeds, strict=False):
            scores = tuple(Score("global", 2, 0, client, 0, 10, 0.0, percent / 100) for client in (0, 1))
            Store(folder / "results").write(RunResult(run, scores, {"data_hash": "d"}))


def table(folder: Path, name: str = "fair.toml") -> Table:
    return lay_out(expand(load(str(folder / name))), Store(folder / "results"))


def test_numbers_and_ranks_stand_in_every_format(folder: Path) -> None:
    stored(folder, "base.toml", THERE)
    stored(folder, "fair.toml", HERE)
    found = table(folder)
    ranks = {(row.id, head.id): one.beside.ranks for row, head, one in found.shown if one.beside}
    assert ranks == {
        # New has no row there, so it takes nobody's rank here; equal numbers share one.
        # In b there is nothing to rank it among.
        ("fedavg", "a"): "3 → 1", ("ifca", "a"): "2 → 2", ("cafeme", "a"): "1 → 2", ("fedavg", "b"): "",
    }  # fmt: skip
    for shown in (found, compact(found)):
        for format in ("terminal", "markdown"):
            lines = render(shown, format, width=200, color=False).splitlines()  # type: ignore[arg-type]
            cells = {cells[0]: cells[1:] for line in lines if (cells := _cells(line))}
            assert cells["FedAvg"][:3] == ["80.0 ± 0.0", "51.0 ± 1.0", "3 → 1"], format
            assert cells["FedAvg"][3:] == ["40.0 ± 0.0", "9.0 (1/2)", "–"]
            assert cells["New"][:3] == ["90.0 ± 0.0", "–", "–"]
            head = " ".join(lines)
            assert head.count("paper's protocol") >= 2 and head.count("rank") >= 2 and head.count("here") >= 2
    latex = render(found, "latex")
    assert r"FedAvg & 80.0 $\pm$ 0.0 & 51.0 $\pm$ 1.0 & 3 $\to$ 1 & 40.0 $\pm$ 0.0 & 9.0 (1/2) & $\cdot$ \\" in latex
    assert "51.0 ± 1.0" in html(found) and "3 → 1" in html(found)
    header, *records = csv.reader(io.StringIO(render(found, "csv")))
    assert tuple(header) == (*CSV_COLUMNS, *BESIDE_COLUMNS) and len(records) == len(HERE)
    by_row = {(one[2], one[4]): one[len(CSV_COLUMNS) :] for one in records}
    assert by_row["FedAvg", "a"] == ["51.0", "1.0", "2", "3", "1"]
    assert by_row["New", "a"] == [""] * 5


def _cells(line: str) -> list[str]:
    cells = [cell.strip(" *") for cell in line.replace("│", "|").strip("|").split("|")]
    return cells if len(cells) == 7 else []


def test_where_runs_lack_the_place_is_empty_and_a_line_says_how_to_fill_it(folder: Path) -> None:
    stored(folder, "fair.toml", HERE)
    found = table(folder)
    command = f"`pflbench run --suite {(folder / 'base.toml').resolve()}`"
    line = f"Places of the paper's protocol that lack runs are filled by {command}."
    assert line in found.footer and line in compact(found).footer
    (cells,) = (c for c in map(_cells, render(found, "markdown").splitlines()) if c[:1] == ["FedAvg"])
    assert cells[1:] == ["80.0 ± 0.0", "", "–", "40.0 ± 0.0", "", "–"]
    stored(folder, "base.toml", {place: (50, 50) for place in THERE if place[1] == "a"})
    assert any(line.endswith("base.toml --column b`.") for line in table(folder).footer)


@pytest.mark.parametrize(("ifca", "ranks"), [((50,), "1 → 2"), ((50, 50), "")])
def test_ranks_are_among_rows_of_the_same_seeds(folder: Path, ifca: tuple[float, ...], ranks: str) -> None:
    """FedAvg has one of two seeds there: it is ranked among rows that have that one, and not beside means of both."""
    stored(folder, "base.toml", {("fedavg", "a"): (60,), ("ifca", "a"): ifca})
    stored(folder, "fair.toml", {("fedavg", "a"): (70, 70), ("ifca", "a"): (80, 80)})
    found = {row.id: one.beside.ranks for row, _, one in table(folder).shown if one.beside}
    assert found["fedavg"] == ranks and bool(found["ifca"]) == bool(ranks)


def test_the_other_side_has_the_tables_seeds_and_ranks_are_over_those_that_both_have(folder: Path) -> None:
    """The other suite declares one of this table's two seeds; FedAvg is ahead in the seed that both have alone."""
    (folder / "base.toml").write_text(BASE.replace("seeds = [0, 1]", "seeds = [0]"))
    (folder / "fair.toml").write_text(FAIR.replace("[suite]", "[suite]\nseeds = [0, 1]"))
    stored(folder, "fair.toml", {("fedavg", "a"): (70, 10), ("ifca", "a"): (60, 60)})
    stored(folder, "base.toml", {("fedavg", "a"): (50,), ("ifca", "a"): (80,)})
    found = table(folder)
    ranks = {row.id: (one.beside.ranks, one.beside.seeds) for row, _, one in found.shown if one.beside}
    assert ranks == {"fedavg": ("2 → 1", (0,)), "ifca": ("1 → 2", (0,))}
    assert any("over the seeds that both have" in line and "(A: 0 (n = 1))" in line for line in found.footer)
    assert any("are filled by" in line and line.endswith(" --seeds 0-1`.") for line in found.footer)
    other = expand(load(str(folder / "base.toml")), seeds=[1])
    for cell, accuracy in zip(other.cells, (90, 40), strict=False):
        if cell.column.id == "a" and cell.row.id in ("fedavg", "ifca"):
            scores = tuple(Score("global", 2, 0, client, 1, 100, 1.0, accuracy / 100) for client in range(10))
            Store(folder / "results").write(RunResult(cell.runs[0], scores, {"data_hash": "d"}))
    ranks = {row.id: (one.beside.ranks, one.beside.seeds) for row, _, one in table(folder).shown if one.beside}
    assert ranks == {"fedavg": ("1 → 2", (0, 1)), "ifca": ("2 → 1", (0, 1))}, "70 and 60 there, 40 and 60 here"


def test_explain_tells_what_stands_beside(folder: Path) -> None:
    stored(folder, "base.toml", THERE)
    stored(folder, "fair.toml", HERE)
    said = explained(explain_cell(str(folder / "fair.toml"), "fedavg", "a", Store(folder / "results")), 400)
    told = "our runs of the table beside; rank among the rows that are done for the same seeds, over 2 seeds that both have, there → here: 3 → 1"
    assert f"The paper's protocol gave 51.0 ± 1.0 ({told})." in said


def test_a_suite_that_does_not_ask_for_it_shows_nothing_of_it(folder: Path) -> None:
    stored(folder, "base.toml", THERE)
    found = table(folder, "base.toml")
    assert not found.beside and all(one.beside is None for *_, one in found.shown)
    assert render(found, "csv").splitlines()[0] == ",".join(CSV_COLUMNS)


def test_a_file_that_is_not_there(folder: Path) -> None:
    (folder / "fair.toml").write_text(FAIR.replace('beside = "base.toml"', 'beside = "bare.toml"'))
    with pytest.raises(
        UsageError, match=r"layout\.beside: Unknown suite file 'bare\.toml'\. Did you mean 'base\.toml'"
    ):
        load(str(folder / "fair.toml"))
