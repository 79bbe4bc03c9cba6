"""`pflbench report --format html`: one page with every table, and nothing that it would have to fetch."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

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
    for text in {text.strip() for cells in found.cells.values() for text in cells if "±" in text}:
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
