"""Picture of the page's first screen for the README, from the committed results.

    python tools/docs/picture.py

writes docs/pictures/page.png with a headless Chromium, and page.txt with the words on it, by which a test finds a
stale picture. Run it after runs were packed or the page changed. Needs the extra `dev` and Chromium.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import tempfile
from pathlib import Path

from pflbench.report.page import tables_page
from pflbench.report.reading import readable
from pflbench.selection import Selection
from pflbench.store import Store

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "page.png"
WORDS = PICTURE.with_suffix(".txt")
WIDE, HIGH = 1280, 900
"""Pixels of the picture."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def page() -> str:
    """The page of all committed tables; relative to the project's root, as the README's command writes it."""
    os.chdir(ROOT)
    store = Store(Path("results"))
    return tables_page(Selection(), store, readable(store))


def words(page: str) -> str:
    """Words of the first screen, an element a line."""
    found = re.search(r'<section[^>]*data-page="holds".*?</section>', page, re.DOTALL)
    assert found, "no paper has a table or a claim"
    lines = re.sub(r"<[^>]*>", "\n", found[0]).split("\n")
    return "\n".join(filter(None, (" ".join(html.unescape(line).split()) for line in lines))) + "\n"


def shoot(page: str, picture: Path) -> None:
    """Write a picture of a page's first screen."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=program, args=["--headless", "--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
        opened.goto(path.as_uri())
        opened.screenshot(path=str(picture))
        browser.close()


if __name__ == "__main__":
    made = page()
    shoot(made, PICTURE)
    WORDS.write_text(words(made), encoding="utf-8")
