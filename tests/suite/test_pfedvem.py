"""The suites of pFedVEM's tables: what they ask for, and what they share."""

from __future__ import annotations

import pytest
from shipped import load

from pflbench.spec import RunSpec
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand

TABLES = [1, 2, 3, 5, 6, 7]
ROWS = [*"Local FedAvg FedProx Scaffold FedPer FedRep IFCA PerFedavg pFedME pFedBayes".split(), "pFedVEM"]
PM, GM = ("personalized",), ("global",)
SHOWN = [PM, GM, GM, GM, PM, PM, PM, PM, PM + GM, PM + GM, PM + GM]


@pytest.fixture(scope="module")
def tables() -> dict[int, Expansion]:
    return {n: expand(load(f"pfedvem-table{n}")) for n in TABLES}


def test_every_row_and_column_as_printed(tables: dict[int, Expansion]) -> None:
    one = tables[1]
    assert [(row.title, row.stages) for row in one.rows] == list(zip(ROWS, SHOWN, strict=True))
    groups, sizes = ("FMNIST", "CIFAR10", "CIFAR100", "SUN397"), (50, 100, 200)
    assert [(c.group, c.title, c.clients) for c in one.columns] == [
        (g, f"{n} Clients", n) for g in groups for n in sizes
    ]
    assert [(row.title, row.stages) for row in tables[6].rows] == list(zip(ROWS, SHOWN, strict=True))
    assert [(c.group, c.title) for c in tables[6].columns] == [("CIFAR10", n) for n in ("5000", "10000", "50000")]
    assert [row.title for row in tables[7].rows] == ["FedProx", "pFedME", "pFedBayes", "pFedVEM"]
    assert [(c.group, c.title) for c in tables[7].columns] == [("Digit-Five", f"{n} Clients") for n in sizes]
    five = tables[5]
    assert [row.title for row in five.rows] == [ROWS[i] for i in (4, 5, 7, 8, 9, 10)]
    assert [(c.group, c.title, c.smallest) for c in five.columns] == [
        (g, *c) for g in ("CIFAR10", "CIFAR100") for c in (("Small Clients", 10), ("All Clients", None))
    ]
    for n in (1, 5, 6, 7):
        assert tables[n].layout.blocks == "group" and tables[n].layout.bold == "best-per-column"
    for n in (2, 3):
        assert tables[n].layout.blocks == "none" and tables[n].layout.bold == "none"
        assert list(tables[n].stages) == ["personalized"]
    assert list(one.stages.items()) == [("personalized", "PM"), ("global", "GM")]
    for table in tables.values():
        assert (table.layout.decimals, table.seeds, table.spread.kind) == (1, (42, 43, 44, 45, 46), "sem")


def test_a_cell_for_every_printed_number_and_no_other(tables: dict[int, Expansion]) -> None:
    assert {n: len(table.cells) for n, table in tables.items()} == {1: 168, 2: 4, 3: 4, 5: 24, 6: 42, 7: 21}
    assert all(cell.reference for table in tables.values() for cell in table.cells)
    # The SEMs that Table 5 prints as 0.0 are left out.
    bare = [
        cell for table in tables.values() for cell in table.cells if cell.reference and cell.reference.spread is None
    ]
    assert len(bare) == 10 and {cell.column.smallest for cell in bare} == {10}


def test_some_numbers_as_printed(tables: dict[int, Expansion]) -> None:
    for n, row, column, stage, mean, sem in (
        (1, "pfedvem", "fashion-mnist-100", "personalized", 91.4, 0.1),
        (1, "pfedvem", "sun397-200", "global", 74.3, 0.8),
        (1, "local", "cifar100-50", "personalized", 34.3, 0.2),
        (5, "per-fedavg", "cifar10-small", "personalized", 51.8, None),
        (6, "pfedbayes", "cifar10-5000", "global", 36.8, 0.4),
        (7, "fedprox", "digit-five-200", "global", 85.8, 0.3),
    ):
        (cell,) = (c for c in tables[n].cells if (c.row.id, c.column.id, c.stage) == (row, column, stage))
        assert cell.reference and cell.reference[:2] == (mean, sem)


def test_tables_agree_where_the_paper_prints_a_number_twice(tables: dict[int, Expansion]) -> None:
    def printed(n: int) -> dict[tuple[str, str, RunSpec], object]:
        return {(c.stage, c.row.method, c.runs[0]): c.reference for c in tables[n].cells if c.column.smallest is None}

    shared = {n: printed(1).keys() & printed(n).keys() for n in TABLES[1:]}
    assert {n: len(keys) for n, keys in shared.items()} == {2: 1, 3: 1, 5: 12, 6: 14, 7: 0}
    for n, keys in shared.items():
        assert all(printed(1)[key] == printed(n)[key] for key in keys)


def test_what_is_trained_once_for_all_tables(tables: dict[int, Expansion]) -> None:
    ids = {n: {run.id for run in table.runs} for n, table in tables.items()}
    assert {n: len(found) for n, found in ids.items()} == {1: 1320, 2: 20, 3: 20, 5: 60, 6: 330, 7: 60}
    assert {n: len(ids[n] & ids[1]) for n in TABLES[1:]} == {2: 5, 3: 5, 5: 60, 6: 110, 7: 0}
    assert ids[2] & ids[3] == ids[2] & ids[1]


def test_differences(tables: dict[int, Expansion]) -> None:
    for n, parts, numbers in (
        (2, ("uncertainty", "pfedvem"), [-1.1, -0.2]),
        (3, ("deviation", "pfedvem"), [-1.0, -0.3]),
    ):
        (difference,) = tables[n].derived
        assert (difference.title, difference.axis, difference.of) == ("Mean Diff. (%)", "rows", parts)
        assert [(r.mean, r.spread) for r in difference.references.values()] == [(mean, None) for mean in numbers]
        means = {(c.row.id, c.column.id): c.reference.mean for c in tables[n].cells if c.reference}
        for (column, _), printed in difference.references.items():
            assert printed.mean == pytest.approx(means[parts[0], column] - means[parts[1], column])
    assert not any(d.shows_spread for n in (2, 3, 5) for d in tables[n].derived)
    assert [(d.title, d.axis, d.of) for d in tables[5].derived] == [
        ("Diff.", "columns", (f"{data}-small", f"{data}-all")) for data in ("cifar10", "cifar100")
    ]


def test_local_chooses_among_six(tables: dict[int, Expansion]) -> None:
    for cell in tables[1].cells + tables[6].cells:
        if cell.row.id == "local":
            assert [(p.run.method.hyper["lr"], p.run.method.hyper["batch"]) for p in cell.choices[0]] == [
                (lr, batch) for lr in (0.001, 0.0001) for batch in (10, 50, 100)
            ]
            assert {p.validation.validation for points in cell.choices for p in points} == {0.1}
        else:
            assert cell.choices == ()


@pytest.mark.parametrize("n", TABLES)
def test_the_code_is_cited_only_for_what_it_has(tables: dict[int, Expansion], n: int) -> None:
    """It has pFedVEM alone, on CIFAR alone, and an unused loader of SUN397 that prepares photos as ours does."""
    for departure in tables[n].departures:
        if departure.source == "code" and departure.what != "SUN397's images":
            assert {column.partition("-")[0] for column in departure.columns} <= {"cifar10", "cifar100"}, departure
            assert departure.what == "cuts" or not {*departure.rows} - {"pfedvem", "uncertainty", "deviation"}


@pytest.mark.parametrize("n", TABLES)
def test_every_cell_says_which_uploads_arrive_and_when_its_models_are_scored(
    tables: dict[int, Expansion], n: int
) -> None:
    for cell in tables[n].cells:
        said = {departure.what: departure for departure in tables[n].departures_of(cell)}
        assert ("uploads of a round" in said) == (cell.row.id != "local")
        if cell.stage == "personalized" and cell.row.id != "local":
            assert "when personal models are scored" in said


def test_ifcas_shared_part_is_a_guess_wherever_it_is_told(tables: dict[int, Expansion]) -> None:
    told = {d.what: d.source for d in tables[1].departures}
    assert (told["IFCA's shared part"], told["weights of the server's mean"]) == ("guess", "guess")
    assert {cell.sources["shared"] for cell in tables[1].cells if cell.row.id == "ifca"} == {"guess"}


def test_every_hyperparameter_says_where_it_comes_from(tables: dict[int, Expansion]) -> None:
    for table in tables.values():
        for cell in table.cells:
            silent = cell.runs[0].method.hyper.keys() - cell.sources.keys()
            assert silent <= {"confidence", "persistent"}, (cell.row.id, silent)


def test_smoke_stays_small_and_says_so() -> None:
    for n in TABLES:
        suite = load(f"pfedvem-table{n}")
        smoke = expand(suite, profile="smoke")
        assert {run.dataset.name for run in smoke.runs} == {"digits"} and "nothing here compares" in smoke.notes[0]
        assert max(run.rounds for run in smoke.runs) == 2 and max(run.clients for run in smoke.runs) <= 40
        assert not {run.id for run in smoke.runs} & {run.id for run in expand(suite).runs}
        quick = expand(suite, profile="quick")
        assert quick.seeds == (42,) and {run.rounds for run in quick.runs} <= {1, 10}


@pytest.mark.parametrize("n", TABLES)
def test_a_variant_or_column_that_the_authors_code_lacks_takes_nothing_from_it(
    tables: dict[int, Expansion], n: int
) -> None:
    own = {"cifar100-50-homogeneous", "cifar100-50-equal", "cifar10-10000"}
    for cell in tables[n].cells:
        if cell.row.id in ("uncertainty", "deviation") or (cell.row.id == "pfedvem" and cell.column.id in own):
            told = tables[n].departures_of(cell)
            # All rows of a column share its federation, which the code has with 50 clients.
            told = [d for d in told if d.what != "cuts" or cell.column.id in own]
            assert "code" not in {d.source for d in told}, (cell.row.id, cell.column.id)
            assert "code" not in {cell.sources[key] for key in (*cell.runs[0].method.hyper, "batch")}


def test_a_batch_size_that_pfedbayes_does_not_read_marks_nothing(tables: dict[int, Expansion]) -> None:
    assert {"batch" in cell.sources for cell in tables[1].cells if cell.row.id == "pfedbayes"} == {False}
    assert {cell.sources["batch"] for cell in tables[1].cells if cell.row.id == "pfedme"} == {"guess"}
