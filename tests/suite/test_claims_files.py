"""Claims files: every name exists, the printed numbers say what is claimed, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pflbench.errors import UsageError
from pflbench.report.claims import CONTRADICTED, asked, judge
from pflbench.report.reading import Shelf
from pflbench.store import Store
from pflbench.suite.claim import Claim, comparisons, files, load, slope
from pflbench.suite.expand import expand
from pflbench.suite.load import available, read

CONTRARY = {
    "fedec-local-above-lg-l2gd",  # L2GD is ahead on CIFAR-100 (100, 20), both on FEMNIST
    "pfedvem-fashion-mnist-first",  # pFedME and pFedBayes are ahead with 50 clients
}
CLAIMS = [claim for path in files().values() for claim in load(path)]
MINIMAL = '[[claim]]\nid = "a"\ntext = "A."\nsource = "Table 1"\nsuite = "cafeme-table1"\ncolumns = ["rmnist-shards"]\n'


def test_every_paper_has_claims_under_ids_of_its_own() -> None:
    assert set(files()) == {"cafeme", "fedec", "pfedvem", "pfllib"}
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) > 20
    assert not any("claims" in name for name in available())


def test_printed_numbers_contradict_the_claims_that_are_known_for_it(tmp_path: Path) -> None:
    shelf = Shelf(Store(tmp_path))
    tables = {suite: expand(read(suite)) for claim in CLAIMS for suite in {claim.suite, claim.equal or claim.suite}}
    judged = [judge(claim, shelf, tables) for claim in CLAIMS]
    assert {one.claim.id for one in judged if one.word == CONTRADICTED} == CONTRARY
    assert {one.word for one in judged if not one.contrary} == {"not run"}
    # Each has a printed number in every comparison, so that "half the printed gap" is known.
    assert all(compared.printed() is not None for one in judged for compared in one.paper.compared)


def test_first_names_every_rival_of_its_stage() -> None:
    for claim in CLAIMS:
        if claim.test != "first":
            continue
        cells = [cell for cell in expand(read(claim.suite)).cells if cell.column.id == claim.columns[0]]
        shown = {cell.row.id for cell in cells if claim.stage in (None, cell.stage) and cell.reference}
        assert shown - {claim.row} <= set(claim.against), claim.id


def test_a_lead_grows_over_all_columns_in_the_order_of_the_claim() -> None:
    (claim,) = asked(["cafeme-skew-grows"])["cafeme"]
    (found,) = comparisons(claim, expand(read(claim.suite)))
    assert [cell.column.id for cell in found.ours] == claim.columns
    assert found.printed() == pytest.approx((-2 * 1.12 - 0.96 + 4.84 + 2 * 11.74) / 10)


def test_a_claim_that_is_asked_for_twice_stands_once() -> None:
    once, twice = asked(["cafeme"]), asked(["cafeme", "cafeme-rmnist-shards-first", "cafeme"])
    assert twice == once and len(once["cafeme"]) == 8


def test_slope_is_that_of_least_squares() -> None:
    assert slope([1.0, 3.0, 5.0, 7.0]) == pytest.approx(2.0)
    assert slope([5.0]) == 5.0


@pytest.mark.parametrize(
    ("rest", "key"),
    [
        ('row = "cafeme"\nagainst = []\ntest = "better"\n', "against"),
        ('row = "cafeme"\nagainst = ["ditto"]\ntest = "within"\n', "margin"),
        ('row = "cafeme"\nagainst = ["ditto"]\ntest = "better"\nmargin = 1.0\n', "margin"),
        ('row = "cafeme"\nagainst = ["ditto"]\ntest = "better"\nleast = -1.0\n', "least"),
        ('row = "cafeme"\nagainst = ["ditto"]\ntest = "best"\n', "test"),
        ('row = "cafeme"\nrival = ["ditto"]\ntest = "better"\n', "rival"),
    ],
)
def test_a_mistake_is_named_with_its_key(rest: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(MINIMAL + rest, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"my\.toml: claim\[0\].*{key}"):
        load(path)


def test_a_name_that_the_suite_lacks_is_refused() -> None:
    claim = Claim(
        id="a", text="A.", source="Table 1", suite="cafeme-table1", columns=["rmnist"], row="cafeme", against=["ditto"],
        test="better",
    )  # fmt: skip
    with pytest.raises(UsageError, match="Unknown column 'rmnist'"):
        comparisons(claim, expand(read("cafeme-table1")))
    with pytest.raises(UsageError, match="claim"):
        asked(["cafeme-first"])
