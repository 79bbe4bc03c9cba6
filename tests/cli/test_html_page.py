"""The page in a real browser: it opens without an error, sorts, filters, tells of a cell, and its address is a view."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from browser_kit import browser  # noqa: F401  # a fixture

from pflbench.cli import main as program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STORE = ("--results", str(ROOT / "results"))
TABLE = "pfedvem-table1.paper"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the committed results."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    written(path, "-s", "cafeme-table1", "-s", "cafeme-table1-fair", "-s", "pfedvem-table1")
    return path


def written(path: Path, *options: str) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(
            ["report", *STORE, *options, "-o", str(path), *(() if "--format" in options else ("--format", "html"))]
        )
    assert not ended.value.code


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[Any]:  # noqa: F811
    """`opened("table=…")` → the page at that address; at the end it must not have complained, nor asked for anything."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    complaints: list[str] = []
    asked: list[str] = []

    def open(fragment: str = "") -> Page:
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{file.as_uri()}#{fragment}")
        return page

    yield open
    context.close()
    assert complaints == []
    assert {url.partition("#")[0] for url in asked} == {file.as_uri()}


@pytest.fixture(scope="module")
def differing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A line of the report's CSV: a personalized cell of Fashion-MNIST's that differs from the paper's."""
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    written(path, "-s", "pfedvem-table1", "--profile", "paper", "--format", "csv")
    with path.open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["verdict"] == "differs"]
    return next(line for line in lines if (line["column"], line["stage"]) == ("fashion-mnist-100", "personalized"))


def sheet(page: Page, key: str = TABLE) -> Locator:
    return page.locator(f'section[data-table="{key}"]')


def column(page: Page, number: int) -> list[str]:
    """The visible texts of a column."""
    cells = sheet(page).locator(f'td[data-cell$=",{number}"]:visible').all()
    return [cell.inner_text().split("\n")[0] for cell in cells]


def test_one_table_is_open_and_another_can_be_chosen(opened: Any) -> None:
    page = opened(f"table={TABLE}")
    assert page.locator("main > section:visible").count() == 1
    page.locator('nav a[data-open="cafeme-table1.quick"]').click()
    assert sheet(page, "cafeme-table1.quick").is_visible() and not sheet(page).is_visible()
    assert page.url.endswith("#table=cafeme-table1.quick")


def test_it_opens_on_what_holds_of_each_paper(opened: Any) -> None:
    page = opened()
    cards = page.locator(".card:visible")
    assert cards.locator("h3").all_inner_texts() == ["CAFeMe arXiv:2312.15191", "pFedVEM arXiv:2305.12557"]
    assert all(re.match(r"\d+ claims: ", text) for text in cards.locator(".found").all_inner_texts())
    assert cards.nth(0).locator(".strip span").count() >= 1 and cards.nth(0).locator(".claims li").count() >= 1
    cards.nth(1).get_by_role("link", name="pFedVEM, Table 1").click()
    assert sheet(page).is_visible() and not cards.nth(0).is_visible()


def test_a_forest_stands_beside_the_table(opened: Any) -> None:
    others = sorted(
        {f"{data}-{n}" for data in ("fashion-mnist", "cifar10") for n in (50, 100, 200)} - {"fashion-mnist-100"}
    )
    hidden = [f"column={column}/{stage}" for column in others for stage in ("personalized", "global")]
    page = opened("&".join((f"table={TABLE}", *hidden)))
    forest = sheet(page).locator(".forest")
    facet = forest.locator("figure", has_text="100 Clients PM").first
    rows = facet.locator(".tree title").evaluate_all("all => all.map((one) => one.textContent)")
    assert any(re.match(r"pFedBayes: ours 90\.\d.*, the paper 91\.3", row) for row in rows)
    means = [float(re.search(r"ours ([\d.]+)", row)[1]) for row in rows]  # type: ignore[index]
    assert means == sorted(means, reverse=True) and facet.locator(".diamond").count() == len(rows)
    table = sheet(page).locator(".blocks").bounding_box()
    assert table and forest.bounding_box()["x"] > table["x"] + table["width"], "it fills the right half"
    forest.get_by_label("Order").select_option("paper")
    assert facet.locator(".tree text").first.text_content() == "Local"
    facet.locator(".tree").first.click()
    assert "Local" in page.locator("#drawer-title").inner_text()
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 400, "height": 900})
    table = sheet(page).locator(".blocks").bounding_box()
    assert forest.bounding_box()["y"] >= table["y"] + table["height"], "below the table on a narrow screen"
    page.goto(f"{page.url.partition('#')[0]}#table={TABLE}&versus=fedavg")
    assert not forest.is_visible(), "differences from a rival have no paper beside them"


def test_curves_of_all_rows_can_be_toggled_and_drawn_over_steps(opened: Any) -> None:
    page = opened("table=cafeme-table1.quick&axis=steps")
    curves = sheet(page, "cafeme-table1.quick").locator("details.curves")
    curves.locator("summary").click()
    panels = curves.locator("figure")
    panels.last.wait_for()  # drawn once the browser says that it is open
    assert panels.count() == 4 and panels.nth(2).locator("polyline.method").count() == 6
    told = panels.nth(2).locator("polyline.method title").evaluate_all("all => all.map((one) => one.textContent)")
    assert "CAFeMe: 97.0 %" in told, "a curve ends at the table's number"
    colors = (
        panels.nth(2).locator("polyline.method").evaluate_all("all => all.map((one) => one.getAttribute('stroke'))")
    )
    assert len(set(colors)) == 6
    curves.get_by_role("button", name="Ditto").click()
    assert panels.nth(2).locator("polyline.method").count() == 5 and "off=ditto" in page.url
    assert curves.locator("select option").last.inner_text() == "fine-tuning steps"


def test_the_tab_says_what_is_open(opened: Any) -> None:
    page = opened()
    assert page.title() == "What holds · pflbench"
    page.get_by_role("link", name="pFedVEM, Table 1").first.click()
    assert page.title() == "pFedVEM, Table 1 · pflbench"


def test_it_opens_on_the_first_papers_own_table_and_the_rail_goes_by_papers(opened: Any) -> None:
    page = opened("show=ours")
    assert page.evaluate("view.table") == "cafeme-table1.paper"
    rail = page.locator("nav .rail")
    assert rail.locator("h2").all_inner_texts() == ["CAFeMe", "pFedVEM"]
    cafeme = " ".join(rail.locator("li", has_text="Table 1").first.inner_text().split())
    assert re.fullmatch(r"Table 1 paper \d+/32 quick \d+/32 fair \d+/40 fair quick \d+/40", cafeme)
    assert rail.locator("[aria-current]").inner_text().startswith("paper")
    table = sheet(page, "cafeme-table1.paper").locator("table").first.bounding_box()
    tools = sheet(page, "cafeme-table1.paper").locator(".tools").bounding_box()
    assert tools["height"] < 45 and table["y"] - tools["y"] < 80, "one line of tools, then the table"
    page.set_viewport_size({"width": 400, "height": 900})
    page.reload()
    assert not rail.get_by_role("link", name="What holds").is_visible()
    rail.locator("summary").click()
    rail.get_by_role("link", name="What holds").click()
    assert page.locator('section[data-page="holds"]').is_visible() and not rail.locator("h2").first.is_visible()


def test_a_table_on_unequal_terms_says_so_and_leads_to_the_fair_one(opened: Any) -> None:
    page = opened("table=cafeme-table1.paper")
    said = sheet(page, "cafeme-table1.paper").locator(".fair")
    assert said.inner_text() == "Not on equal terms"
    said.locator("summary").click()
    told = said.locator("p").inner_text()
    assert told.startswith("fine-tuning rate: CAFeMe's is 5 (CIFAR-10) or 10 (RMNIST) times")
    page.keyboard.press("Escape")
    assert not said.locator("p").is_visible() and said.locator("summary").evaluate(
        "one => one === document.activeElement"
    )
    page.keyboard.press("Enter")
    said.get_by_role("link").click()
    assert sheet(page, "cafeme-table1-fair.paper").is_visible()
    assert sheet(page, "cafeme-table1-fair.paper").locator(".fair").count() == 0


def test_a_table_that_is_wider_than_the_screen_says_that_it_scrolls(opened: Any) -> None:
    page = opened("table=cafeme-table1.quick")
    table = sheet(page, "cafeme-table1.quick").locator(".scroll")
    assert "wide" not in table.get_attribute("class").split()
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_selector(".scroll.wide")
    hint = table.evaluate("one => getComputedStyle(one, '::before').content")
    assert "Scrolls sideways" in hint


def test_ours_the_papers_and_the_difference(opened: Any, differing: dict[str, str]) -> None:
    page = opened(f"table={TABLE}")
    cell = sheet(page).locator("tr", has_text=differing["row"]).locator('td[data-cell$=",2"]:visible').first
    assert cell.inner_text().startswith(f"{float(differing['mean']):.1f} ± {float(differing['sem']):.1f}")
    sheet(page).get_by_label("View").select_option("paper")
    paper = (float(differing[f"reference_{key}"]) for key in ("mean", "spread"))
    assert cell.inner_text() == " ± ".join(f"{number:.1f}" for number in paper)
    sheet(page).get_by_label("View").select_option("difference")
    low, high = (f"{float(differing[f'difference_{end}']):+.1f}" for end in ("low", "high"))
    assert (
        cell.inner_text() == f"{float(differing['difference']):+.1f} ({low} to {high})"
        and "show=difference" in page.url
    )
    assert sheet(page).locator("td.differs").count() >= 2


def test_rows_are_sorted_by_a_column_and_back(opened: Any) -> None:
    page = opened(f"table={TABLE}")
    before = column(page, 2)
    head = sheet(page).locator('th[data-column="2"]')
    for way, sign in (("descending", -1), ("ascending", 1)):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == way
        first = sheet(page).locator("tbody").first.locator('td[data-cell$=",2"]:visible').all_inner_texts()
        numbers = [float(text.split()[0].rstrip("ᵍᵗ")) for text in first if re.match(r"\d+\.", text)]
        assert numbers == sorted(numbers, key=lambda number: sign * number) and len(numbers) > 5
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None and column(page, 2) == before


def test_rows_are_filtered_and_hidden(opened: Any) -> None:
    page = opened(f"table={TABLE}")
    sheet(page).locator("summary", has_text="More").click()
    page.get_by_label("Rows with").fill("pfed")
    shown = [text.lower() for text in sheet(page).locator("tbody th[scope=row]:visible").all_inner_texts()]
    assert shown and all("pfed" in text for text in shown) and "filter=pfed" in page.url
    page.get_by_label("Rows with").fill("")
    sheet(page).locator('[data-hides="rows:local"] input').uncheck()
    assert "Local" not in sheet(page).locator("tbody th[scope=row]:visible").all_inner_texts()
    assert "row=local" in page.url
    box = sheet(page).locator("details.hide > div").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 1400
    page.keyboard.press("Escape")
    assert not sheet(page).locator("details.hide > div").is_visible()


def test_what_stands_beside_a_column_is_shown_with_it(opened: Any) -> None:
    fair = sheet(opened("table=cafeme-table1-fair.quick"), "cafeme-table1-fair.quick")
    assert fair.locator("th[data-column]:visible").all_inner_texts() == ["here", "paper's protocol", "rank"]
    assert "Without results, not shown: 9 columns." in fair.locator(".status").inner_text()
    fair.get_by_label("Versus").select_option("FedAvg-FT")
    assert fair.locator("th[data-column]:visible").all_inner_texts() == ["here"], "of the others there is no difference"


def test_a_number_opens_what_it_rests_on(opened: Any, differing: dict[str, str]) -> None:
    page = opened(f"table={TABLE}")
    cell = sheet(page).locator("tr", has_text=differing["row"]).locator('td[data-cell$=",2"]:visible').first
    place = cell.get_attribute("data-cell")
    cell.get_by_role("button").click()
    drawer = page.locator("#drawer")
    said = drawer.inner_text()
    assert drawer.is_visible() and f"{differing['row']} · FMNIST 100 Clients PM" in said
    seeds = [f"seed {seed}: " for seed in differing["seeds"].split()]
    for words in ("differs: the interval is Welch's", "worst 10 %", "pflbench rerun ", "commit", *seeds):
        assert words in said
    numbers = [float(re.search(rf"{seed}([0-9]+\.[0-9]+)", said)[1]) for seed in seeds]
    assert sum(numbers) / len(numbers) == pytest.approx(float(differing["mean"]), abs=1e-3)
    assert drawer.locator("circle.dot").count() == len(seeds)
    page.keyboard.press("Escape")
    page.wait_for_function("!location.hash.includes('cell=')")
    assert not drawer.is_visible()
    assert page.evaluate("document.activeElement.closest('td').dataset.cell") == place


def test_an_address_is_a_view(opened: Any) -> None:
    page = opened(f"table={TABLE}&show=difference&sort={quote('fmnist-100/personalized')}:down&filter=fed&cell=0,2")
    address = page.evaluate("written(parsed(location.hash))")
    again = opened(address.removeprefix("#"))
    for one in (page, again):
        assert one.locator("#drawer").is_visible()
        assert one.get_by_label("Rows with").input_value() == "fed"
        assert one.evaluate("view.show") == "difference"
    again.evaluate("drawer.close()")
    again.wait_for_function("!location.hash.includes('cell=')")
    again.go_back()
    assert again.locator("#drawer").is_visible(), "back is the view before"


@pytest.mark.parametrize(
    "fragment",
    [
        "table=<img src=x onerror=alert(1)>",
        "table=pfedvem-table1.paper&show=constructor&read=__proto__&versus=toString&cell=constructor",
        f"table={TABLE}&equal=gradients&versus=fedavg&cell=99,99",
        f"table={TABLE}&sort=nothing:up&row=nobody&column=none&filter=%3Cscript%3Ealert(1)%3C/script%3E",
        "%E0%A4%A&=&&page=javascript:alert(1)",
    ],
)
def test_an_address_with_nonsense_is_a_plain_view(opened: Any, fragment: str) -> None:
    page = opened(fragment)
    assert page.locator("main > section:visible").count() == 1 and not page.locator("#drawer").is_visible()
    assert page.locator("img").count() == 0
    if "filter" in fragment:
        assert page.get_by_label("Rows with").input_value() == "<script>alert(1)</script>"


def test_one_row_against_the_others(opened: Any) -> None:
    page = opened(f"table={TABLE}&versus=fedavg")
    assert "minus FedAvg" in sheet(page).locator(".status").inner_text()
    texts = sheet(page).locator("td:visible").all_inner_texts()
    assert sum(" to " in text for text in texts) > 10
    assert sheet(page).locator("td[data-below]:visible").count() > 10
    sheet(page).get_by_label("Versus").select_option("nobody")
    assert sheet(page).locator("td[data-below], td[title]").count() == 0


def test_a_difference_has_its_n_and_p_in_the_table_and_the_drawer(opened: Any) -> None:
    page = opened(f"table={TABLE}&versus=fedavg")
    cell = sheet(page).locator("td[data-below*='p =']").first
    n, p = re.fullmatch(r"n = (\d) seeds, p = ([01]\.\d{3})", cell.get_attribute("data-below")).groups()
    told = cell.get_attribute("title")
    assert told == f"over {n} seeds; p {p} after Holm"
    shown = cell.inner_text().split("\n")[0]
    cell.get_by_role("button").click()
    assert f"{shown}, {told}" in page.locator("#drawer").inner_text()


def test_the_drawer_names_the_command_of_the_view(opened: Any) -> None:
    page = opened(f"table={TABLE}&read=last-10&versus=fedavg&cell=6,2")
    said = page.locator("#drawer").inner_text()
    assert "pflbench report --suite pfedvem-table1 --profile paper --read last-10 --versus fedavg" in said


def test_curves_of_the_drawer_and_of_all_rows_over_a_cost(opened: Any) -> None:
    page = opened(f"table={TABLE}&cell=6,2")
    drawer = page.locator("#drawer")
    assert drawer.locator("polyline.curve").count() == 3 and drawer.locator("polyline.other").count() >= 3
    page.evaluate("drawer.close()")
    curves = sheet(page).locator("details.curves")
    curves.locator("summary").click()
    over_rounds = curves.locator("polyline.method").nth(1)
    over_rounds.wait_for()
    points = over_rounds.get_attribute("points")
    curves.locator("select").select_option("gradients")
    assert curves.locator("polyline.method").nth(1).get_attribute("points") != points and "axis=gradients" in page.url


@pytest.mark.parametrize("read", ["last-10", "best"])
def test_another_reading_has_what_does_not_change_from_the_first(opened: Any, read: str) -> None:
    page = opened(f"table={TABLE}&read={read}&cell=6,2")
    said = page.locator("#drawer").inner_text()
    assert page.locator("#drawer polyline.curve").count() == 3
    for words in ("pflbench rerun ", "commit", "85.6 ± 0.2", "Hyperparameters and settings"):
        assert words in said
    assert ("verdict" in said) == (read == "last-10") or "not comparable" in said


AXE = (
    "",
    f"table={TABLE}&show=difference",
    f"table={TABLE}&show=cost",
    f"table={TABLE}&versus=fedavg",
    "table=cafeme-table1.quick",
    f"table={TABLE}&cell=0,2",
    f"table={TABLE}",
    "table=cafeme-table1.quick&axis=steps",
    "page=holds",
)


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("fragment", AXE)
def test_axe_finds_nothing(opened: Any, fragment: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = opened(fragment)
    page.set_viewport_size({"width": width, "height": 900})
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "nothing is wider than the window"
