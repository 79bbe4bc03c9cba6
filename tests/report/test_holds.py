"""The page's first screen and the forest: coverage, verdicts, and claims are those of the tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.stats

from pflbench.report.claims import Judged, Missing, Side
from pflbench.report.decide import Decision, Word
from pflbench.report.html.data import Sheet
from pflbench.report.html.holds import cards
from pflbench.report.html.render import render_page
from pflbench.report.layout import fill, finished
from pflbench.report.reading import Shelf
from pflbench.report.verdict import GLYPHS
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Expansion, Reference
from pflbench.suite.claim import Claim
from pflbench.suite.schema import Spread

if TYPE_CHECKING:
    from conftest import Build

PRINTED = {("fedavg", "digits-a"): Reference(30.5, 1.0), ("fedavg", "digits-b"): Reference(80.0, 1.0)}
FIVE = Spread.model_validate({"kind": "std", "ddof": 0, "n": 5})


def sheet(table: Expansion, store: Store) -> Sheet:
    filled = fill(table, Shelf(store), requests_of(store))
    part = selection(suites=[table.suite], profile=table.profile)
    return Sheet({"last": finished(filled)}, part, paper=table.paper, fills={"last": filled})


def claim(word: Word, text: str = "FedAvg is ahead.", missing: tuple[Missing, ...] = ()) -> Judged:
    """A claim of the table `demo` with this word."""
    entry = {
        **{"id": "a", "text": text, "source": "Table 1", "suite": "demo", "columns": ["digits-a"]},
        **{"row": "fedavg", "against": ["fedavg-ft"], "test": "better"},
    }
    side = Side("demo", "paper", Decision(word, 3), {}, (), (), (), (0, 1, 2), (3,), missing)
    return Judged(Claim.model_validate(entry), side)


def drawn(build: Build, store: Store, **table: Any) -> dict[str, list[float | None]]:
    """What the forest of a page is drawn by, by row and column."""
    text = render_page([sheet(build.table(**table), store)])
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    (data,) = json.loads(found[1])["tables"]
    return {key: cell["forest"] for key, cell in data["readings"]["last"]["cells"].items() if "forest" in cell}


def test_verdicts_stand_behind_numbers_as_glyphs(build: Build, store: Store) -> None:
    build.fill(store)
    text = render_page([sheet(build.table(references=PRINTED), store)])
    cells = re.findall(r'<td class="([^"]*is-[^"]*)"><button type="button">([^<]*)<', text)
    assert cells == [("is-inconclusive", "30.00 ± 8.16"), ("is-differs", "40.00 ± 8.16")], "numbers are as they were"
    for label, glyph in GLYPHS.items():
        assert f'td.is-{label}::after {{ content: "{glyph}"' in text


def test_the_forest_has_the_intervals_of_both_sides(build: Build, store: Store) -> None:
    build.fill(store)
    ours = scipy.stats.t.interval(0.95, 2, 30, np.std([20, 30, 40], ddof=1) / 3**0.5)
    paper = scipy.stats.t.interval(0.95, 4, 30.5, 1.0 * (5 / 4) ** 0.5 / 5**0.5)
    found = drawn(build, store, references=PRINTED, spread=FIVE)
    assert found["0,0"] == pytest.approx([30, *ours, 30.5, *paper, 2.0], abs=1e-4)
    assert found["1,0"][3:] == [], "the paper has no number there"


def test_an_interval_that_is_not_known_is_not_drawn(build: Build, store: Store) -> None:
    store.write(build.result(build.spec(0), 0.2))
    found = drawn(build, store, references=PRINTED)
    assert found["0,0"] == [20, None, None, 30.5, None, None, 2.0], "one seed, and nobody says over how many runs"


def test_a_card_counts_cells_verdicts_and_claims(build: Build, store: Store) -> None:
    for seed, alpha in ((0, 0.3), (1, 0.3), (2, 0.3), (0, 5.0), (1, 5.0)):
        store.write(build.result(build.spec(seed, alpha=alpha), 0.2 + seed / 10, (0.6, 0.7)))
    made = sheet(build.table(references=PRINTED, spread=FIVE), store)
    missing = (Missing("fedavg", "digits-a", (3, 4), {build.spec(seed): 3600.0 for seed in (3, 4)}),)
    judged = [claim("not run"), claim("undecided", missing=missing), claim("holds"), claim("does not hold")]
    (card,) = cards([made], {made.paper: judged})
    assert (card.title, card.link) == ("Demo", "https://arxiv.org/abs/0000.00000")
    assert card.coverage == (2, 2, 4)
    assert card.found == "4 claims: 1 holds, 1 does not hold, 1 undecided, 1 not run."
    assert card.covered == "Of 4 cells of its tables 2 have all their seeds, 2 some."
    assert [(one.sign, one.word, one.needs) for one in (*card.begun, *card.rest)] == [
        ("✓", "holds (3 seeds)", ""),
        ("✗", "does not hold (3 seeds)", ""),
        ("?", "undecided (3 seeds)", "2 runs, seeds 3, 4, 2.0 core-hours"),
        ("·", "not run (3 seeds)", ""),
    ]
    labels = Counter(value.verdict.label for *_, value in made.table.shown if value.verdict)
    compared = {label: n for label, n in labels.items() if label in ("agrees", "close", "inconclusive", "differs")}
    assert compared and Counter(square.verdict for square in card.squares) == compared


def test_extra_rows_are_no_coverage_and_tables_that_decide_claims_are(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(0, lr=0.5), 0.3))
    table = build.table(references=PRINTED, spread=FIVE)
    made = sheet(table, store)
    assert made.table.extra, "the run stands in a row of its own"
    (card,) = cards([made], {})
    assert card.coverage.cells == 4
    other = sheet(replace(table, extends=Path("demo.toml")), store)
    assert cards([other], {}) == []
    (card,) = cards([other], {other.paper: [claim("holds")]})
    assert card.coverage.cells == 4 and card.squares


def test_a_reduced_profile_is_no_coverage_of_a_paper(build: Build, store: Store) -> None:
    build.fill(store)
    quick = sheet(build.table(references=PRINTED, spread=FIVE, profile="quick"), store)
    assert cards([quick], {}) == []
    (card,) = cards([quick], {quick.paper: [claim("holds")]})
    assert card.coverage.cells == 0 and not card.squares


def test_a_claims_text_stays_text(build: Build, store: Store) -> None:
    build.fill(store)
    made = sheet(build.table(), store)
    words: tuple[Word, ...] = ("holds", "holds, smaller than printed", "does not hold", "undecided", "not run")
    text = render_page([made], judged={made.paper: [claim(word, "<b>ahead</b>") for word in words]})
    assert "<b>ahead" not in text and text.count("&lt;b&gt;ahead") == len(words)
