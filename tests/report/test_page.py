"""The page's numbers: clients and rivals; and that no text of a user's becomes markup, code or a formula."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table_kit import row

from pflbench.output import plain
from pflbench.report import html
from pflbench.report.html.data import Embedded, Sheet, held, with_numbers
from pflbench.report.html.escape import discreet, embedded, web_link
from pflbench.report.html.render import render_page
from pflbench.report.layout import fill, finished
from pflbench.report.looks import contrast, rgb
from pflbench.report.page import without_smoke
from pflbench.report.reading import Shelf
from pflbench.report.render import long_form, render
from pflbench.report.statistics import paired
from pflbench.report.table import Against
from pflbench.report.verdict import COMPARED, RULE
from pflbench.result import RunResult, Score
from pflbench.selection import selection
from pflbench.store import Store
from pflbench.store.requests import requests_of
from pflbench.suite.cells import Expansion, Reference

if TYPE_CHECKING:
    from conftest import Build

NASTY = st.one_of(
    st.sampled_from(
        [
            "</script><script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "<!--",
            '"><b>',
            "=HYPERLINK(1)",
            "+1",
            "-1",
            "@x",
            "a|b",
            r"\input{secret}",
            "${x}_^&%#~",
            "{{ 7 * 7 }}",
            "{% raw %}",
            "\u2028\u2029",
            "javascript:alert(1)",
            "' onclick='",
            "[x](javascript:alert(1))",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30),
)


def sheet(table: Expansion, store: Store, **more: Any) -> Sheet:
    filled = fill(table, Shelf(store), requests_of(store))
    versus = {one.id: filled.against(one.id) for one in table.rows}
    part = selection(suites=[table.suite], profile=table.profile)
    fields = {"paper": table.paper, "protocol": table.protocol, "fills": {"last": filled}, "versus": {"last": versus}}
    return Sheet({"last": finished(filled)}, part, **(fields | more))


class Elements(HTMLParser):
    """Which elements a page has, and what its attributes and texts are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def of(text: str, id: str) -> str:
    found = re.search(rf'id="{id}">(.*?)</script>', text, re.DOTALL)
    assert found
    return found[1]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(title=NASTY, other=NASTY.filter(lambda one: one != "none"), where=NASTY)  # "none" is a suite without a paper
def test_a_users_text_stays_text_everywhere(build: Build, store: Store, title: str, other: str, where: str) -> None:
    if not store.list():
        build.fill(store)
    usual_table = build.table(references={("fedavg", "digits-a"): Reference(31.0, 1.0, suspect=other)})
    rows = (row("fedavg", title), row("fedavg-ft", other))
    cells = tuple(replace(cell, row=next(one for one in rows if one.id == cell.row.id)) for cell in usual_table.cells)
    table = replace(usual_table, title=where, suite=title, paper=other, protocol=where, rows=rows, cells=cells)
    usual, made = (sheet(one, store) for one in (usual_table, table))
    text = render_page([made])
    before, after = Elements(render_page([usual])), Elements(text)
    linked = [tag for tag in after.tags if tag == "a"]  # a paper is one in its table and one in its card, or none
    assert [tag for tag in after.tags if tag != "a"] == [tag for tag in before.tags if tag != "a"]
    assert len(linked) - before.tags.count("a") in (-2, 0)
    assert {key for key, _ in after.attributes} <= {key for key, _ in before.attributes}
    links = [value or "" for key, value in after.attributes if key in ("href", "src")]
    assert all(re.match(r"#|https?://", one) for one in links)
    assert "<" not in of(text, "data") and json.loads(of(text, "data"))["tables"][0]["rows"][0][1] == plain(title)
    in_csv, in_markdown, in_latex = long_form([made.table]), render(made.table, "markdown"), render(made.table, "latex")
    read = list(csv.reader(io.StringIO(in_csv, newline="")))
    assert all(len(line) == len(read[0]) for line in read)
    words = [line[read[0].index(name)] for line in read[1:] for name in ("suite", "row")]
    assert not any(word.startswith(("=", "+", "-", "@")) for word in words)
    grid = [line for line in in_markdown.splitlines() if line.startswith("|")][:4]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in grid}) == 1
    typeset = "".join(line for line in in_latex.splitlines(keepends=True) if not line.startswith("%"))
    assert (
        plain(in_latex) == in_latex
        and r"\input" not in typeset
        and typeset.count(r"\begin{") == typeset.count(r"\end{")
    )


def test_the_page_tells_the_rule_of_verdicts_and_colors_each(build: Build, store: Store) -> None:
    build.fill(store)
    text = render_page([sheet(build.table(), store)])
    assert json.loads(of(text, "data"))["rule"] == RULE
    assert all(f"td.{label}" in text for label in COMPARED)


@given(NASTY, NASTY)
def test_embedded_json_has_nothing_that_a_parser_of_html_could_see(key: str, value: str) -> None:
    text = embedded({key: [value]})
    assert json.loads(text) == {plain(key): [plain(value)]}
    assert not set("<>&\u2028\u2029") & set(text)


@given(st.one_of(NASTY, st.text()))
def test_links_lead_to_the_web_or_nowhere(text: str) -> None:
    found = web_link(text)
    assert found is None or re.match(r"https?://[^\s]", found)


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("arXiv:2312.15191", "https://arxiv.org/abs/2312.15191"),
        ("https://example.org/a?b=c", "https://example.org/a?b=c"),
        ("javascript:alert(1)", None),
        ("java\nscript:alert(1)", None),
        ("https:alert(1)", None),
        ("http://[", None),
        ("data:text/html,x", None),
        ("arXiv:2312.15191 onclick", None),
        ("none", None),
    ],
)
def test_a_link(text: str, to: str | None) -> None:
    assert web_link(text) == to


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("OSError: /home/me/data/x.bin is gone", "OSError: … is gone"),
        ("in '/tmp/a b'", "in '… b'"),
        (r"C:\Users\me\x", "…"),
        ("~/lab/foo.py:Foo", "…"),
        ("correct / count, 3/5, 1000/s and http://a.b/c", "correct / count, 3/5, 1000/s and http://a.b/c"),
        ("file.py:Class", "file.py:Class"),
        ("-0.5 to 1 × 2", "-0.5 to 1 × 2"),
    ],
)
def test_paths_are_not_told(text: str, left: str) -> None:
    assert discreet(text) == left


def test_what_a_page_tells_of_the_runs_names_nobody(build: Build, store: Store) -> None:
    where = {"host": "lab-17", "user": "me", "method_source": "class Secret: pass", "folder": "/home/me/results"}
    build.fill(store)
    for seed in range(3):
        store.write(build.result(build.spec(seed), 0.3, **where))
    store.write(build.failed(build.spec(0, alpha=5.0, rounds=4), "OSError: /home/me/data is gone"))
    made = sheet(build.table(), store)
    text = render_page([made])
    assert "c0ffee" in text and "2.11" in text
    assert [word for word in ("lab-17", "Secret", "/home", "method_source") if word in text] == []


def test_the_policy_admits_the_pages_own_script_alone(build: Build, store: Store) -> None:
    build.fill(store)
    text = render_page([sheet(build.table(), store)])
    (allowed,) = re.findall(r"script-src 'sha256-([^']+)'", text)
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() == allowed
    assert script.isascii(), "also where a terminal has no other characters"


def test_clients_are_told_by_seed(build: Build, store: Store) -> None:
    """Two clients a tenth below and above: the worst tenth is the lower one, the median the middle."""
    build.fill(store)
    made = sheet(build.table(), store)
    (table,) = json.loads(of(render_page([made]), "data"))["tables"]
    cell = table["readings"]["last"]["cells"]["0,0"]
    mean = float(np.mean([one[1] for one in cell["seeds"]]))
    assert (float(cell["worst"]), float(cell["median"])) == (pytest.approx(mean - 10), pytest.approx(mean))
    assert cell["clients"]["counts"].count(0) >= 14 and sum(cell["clients"]["counts"]) == 6
    assert cell["clients"]["quantiles"][0] == cell["worst"]


def test_a_cell_has_its_curve_and_the_cost_of_a_round(build: Build, store: Store) -> None:
    costs = {"client_gradients": 14.0, "bytes_up": 605_000, "bytes_down": 400_000, "client_seconds": 6.0}
    for seed, known in ((0, costs), (1, costs), (2, {})):
        spec = build.spec(seed, rounds=3)
        rounds = range(3 if seed == 2 else 1, 4)
        scores = tuple(Score("global", n, 0, c, 0, 10, 0.0, n / 10 + seed / 100) for n in rounds for c in (2, 3))
        store.write(RunResult(spec, scores, {"device": "cpu", "data_hash": "d1", "commit": "c", **known}))
    table = build.table()
    table = replace(table, rows=table.rows[:1], cells=tuple(one for one in table.cells if one.stage == "global"))
    (found,) = json.loads(of(render_page([sheet(table, store)]), "data"))["tables"]
    cell = found["readings"]["last"]["cells"]["0,0"]
    assert cell["curve"] == [[seed, [1, 2, 3], [10.0 + seed, 20.0 + seed, 30.0 + seed]] for seed in (0, 1)]
    assert cell["paces"] == {"gradients": [14.0, 14.0], "seconds": [2.0, 2.0], "bytes": [1.005, 1.005]}


def test_a_difference_from_a_rival_says_its_seeds_and_p() -> None:
    pool = Embedded()
    assert held(Against(paired([1.0, 2.0, 3.0]), 0.0412), 1, pool) == ["+2.0 (-0.5 to +4.5)", 0, 1]
    assert pool.things == ["over 3 seeds; p 0.041 after Holm", "n = 3 seeds, p = 0.041"]
    assert held(Against(paired([1.0])), 1, pool) == ["+1.0", 2, 3]
    assert pool.things[2:] == ["over 1 seed", "n = 1 seed"]


def test_tables_that_would_be_called_alike_have_numbers(build: Build, store: Store) -> None:
    build.fill(store)
    made = sheet(build.table(), store)
    assert [one.key for one in with_numbers([made, made, made])] == ["demo.paper", "demo.paper-1", "demo.paper-2"]
    odd = with_numbers([sheet(build.table(suite="a <b>/c"), store)])
    assert [one.key for one in odd] == ["a-b-c.paper"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("line", [".picture .other", ".picture .axis"])
def test_gray_lines_reach_three_to_one(line: str, scheme: str) -> None:
    css = (Path(html.__file__).parent / "page.css").read_text()
    colors = [re.findall(rf"--{name}: (#\w+)", css)[scheme == "dark"] for name in ("soft", "back")]
    found = re.search(rf"{re.escape(line)} {{[^}}]*stroke: var\(--soft\); stroke-opacity: ([\d.]+)", css)
    assert found
    back, share = rgb(colors[1]), float(found[1])
    drawn = tuple(share * one + (1 - share) * under for one, under in zip(rgb(colors[0]), back, strict=True))
    light, dark = sorted((contrast(one) for one in (drawn, back)), reverse=True)  # against white
    assert light / dark >= 3


def test_the_rail_has_each_table_once_with_its_profiles(build: Build, store: Store) -> None:
    build.fill(store)
    store.write(build.result(build.spec(0, lr=0.7), 0.5))
    made = with_numbers([sheet(build.table(), store), sheet(build.table(profile="quick"), store)])
    assert made[0].table.extra, "a run that no row of the suite has is in no row's count"
    links = re.findall(r'data-open="([^"]*)"[^>]*>(\w+) <span class="filled">(\d+/\d+)<', render_page(made))
    assert links == [("demo.paper", "paper", "4/4"), ("demo.quick", "quick", "4/4")]


def test_smoke_is_hidden_unless_alone(build: Build) -> None:
    paper, smoke = build.table(), build.table(profile="smoke")
    assert without_smoke([smoke, paper]) == [paper] and without_smoke([smoke]) == [smoke]
