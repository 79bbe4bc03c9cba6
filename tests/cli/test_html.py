"""`pflbench report --format html`: one page with every table, and nothing that it would have to fetch."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import pflbench as pb
from pflbench.store import Store

ROOT = Path(__file__).parents[2]
RUN = ("run", "-s", "tiny.toml", "--seeds", "0")


class Outline(HTMLParser):
    """The cells of all tables as text, by the key of their table, and every address that the page names."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[str, list[str]] = {}
        self.addresses: list[str] = []
        self._sheet, self._open = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [value for key in ("href", "src") if (value := given.get(key))]
        if tag == "section":
            self._sheet = given.get("data-table") or ""
        if tag in ("td", "th"):
            self._open = True
            self.cells.setdefault(self._sheet, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.cells[self._sheet][-1] += data


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    return found


def data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.mark.slow
def test_the_committed_tables_stand_on_one_page(cli: Any, folder: Path) -> None:
    store = ("--results", str(ROOT / "results"))
    assert cli("report", *store, "--format", "html", "-o", "page.html").code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    runs = len(Store(ROOT / "results").list())
    assert len(page.encode()) <= 1_000_000 + 1_500 * runs
    found = outline(page)
    assert all(address.startswith(("#", "https://arxiv.org/")) for address in found.addresses)
    cells = cli("report", *store, "--format", "csv").out.splitlines()[1:]
    assert set(found.cells) >= {".".join(line.split(",")[:2]) for line in cells}
    markdown = cli("report", *store, "--format", "markdown").out
    for text in {text.strip() for key, cells in found.cells.items() for text in cells if key and "±" in text}:
        assert text in markdown, "numbers as they are in the other formats"


@pytest.mark.usefixtures("folder")
def test_the_page_is_the_same_every_time_and_says_nothing_of_the_machine(cli: Any, tmp_path: Path) -> None:
    assert cli(*RUN, "--column", "shards").code == 0
    report = ("report", "-s", "tiny.toml", "--profile", "paper", "--seeds", "0", "--format", "html")
    page = cli(*report).out
    assert page == cli(*report).out
    assert str(tmp_path) not in page and "/tmp" not in page
    (table,) = data(page)["tables"]
    assert table["suite"] == "tiny" and set(table["readings"]) == {"last"}


def test_rows_reading_and_rival_are_chosen_as_in_other_formats(cli: Any, folder: Path) -> None:
    assert cli(*RUN, "--column", "shards", "--evaluate-every", "1").code == 0
    table = ("report", "-s", "tiny.toml", "--profile", "paper", "--format", "html")
    page = cli(*table, "-m", "fedavg", "-m", "ditto", "--read", "best", "--versus", "ditto").out
    found = data(page)
    (shown,) = found["tables"]
    assert [title for _, title, *_ in shown["rows"]] == ["FedAvg", "FedAvg-FT", "Ditto"]
    assert set(shown["readings"]) == {"last", "last-10", "best"}
    assert (found["read"], found["versus"]) == ("best", {shown["key"]: "ditto"})
    assert [title for _, title, *_ in data(cli(*table, "-m", "ditto").out)["tables"][0]["rows"]] == ["Ditto"]
    for wrong in (("-m", "dito"), ("--versus", "dito"), ("--read", "first")):
        assert cli(*table, *wrong).code == 2, wrong


@pytest.mark.parametrize("absolute", [False, True])
def test_commands_name_the_folder_unless_that_is_somebodys(cli: Any, folder: Path, absolute: bool) -> None:
    where = str(folder / "mine") if absolute else "mine"
    assert cli(*RUN, "--column", "shards", "-m", "ditto", "--results", where).code == 0
    page = cli("report", "-s", "tiny.toml", "--profile", "paper", "--format", "html", "--results", where).out
    told = "" if absolute else " --results mine"
    assert f"<code>pflbench report --suite tiny.toml --profile paper{told}</code>" in page
    assert f"<code>pflbench run --suite tiny.toml{told}</code>" in page
    (table,) = data(page)["tables"]
    assert (table["folder"], table["run"]) == (told, "pflbench run --suite tiny.toml")
    assert ("Commands name no results folder" in page) == absolute
    assert str(folder) not in page
    default = cli(*RUN, "--column", "shards", "-m", "ditto")
    assert default.code == 0
    page = cli("report", "-s", "tiny.toml", "--format", "html").out
    assert "Commands name no results folder" not in page and "--results mine" not in page


def test_a_suite_of_ones_own_is_named_without_its_folder(cli: Any, folder: Path) -> None:
    (folder / "mine").mkdir()
    suite = folder / "mine" / "own.toml"
    suite.write_text((folder / "tiny.toml").read_text())
    assert cli("run", "-s", str(suite), "--column", "shards", "--seeds", "0", "-m", "ditto").code == 0
    page = cli("report", "-s", str(suite), "--profile", "paper", "--format", "html").out
    assert "pflbench report --suite own.toml --profile paper" in page and str(folder) not in page


def test_statistics_of_datasets_stand_on_the_page(cli: Any) -> None:
    page = cli("report", "-s", "fedec-table1", "--format", "html")
    assert page.code == 0 and outline(page.out).cells.keys() == {"fedec-table1.paper"}


@pytest.mark.usefixtures("folder")
def test_from_python_too(cli: Any) -> None:
    assert cli(*RUN, "--column", "shards", "-m", "ditto").code == 0
    part = pb.select("tiny.toml", seeds=[0])
    printed = cli("report", "-s", "tiny.toml", "--profile", "paper", "--seeds", "0", "--format", "html").out
    assert pb.table(part).to_html() == printed
