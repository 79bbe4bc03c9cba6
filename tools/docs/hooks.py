"""Hooks of mkdocs: pages that are generated with the site, their places in its navigation, and links out of `docs/`.

Reference, suite and method pages are not in git. Kept pages link to the file that such a page is made from, which works
where the repository is browsed; on the site the same link leads to the page.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from mkdocs.structure.nav import Link

sys.path.append(str(Path(__file__).parent))

from method_pages import method_pages
from reference_pages import reference_pages
from results_table import PICTURES, pictures, pictures_page
from suite_pages import REPOSITORY, suite_pages

from pflbench.names import BUILT_IN, split_reference
from pflbench.package import benchmarks
from pflbench.suite.load import available

PAPERS = {"cafeme": "CAFeMe", "fedec": "FedEC", "pfedvem": "pFedVEM", "pfllib": "PFLlib", "meta": "Meta-learning"}
"""Headings of the suites in the navigation, by the first word of their names."""
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)]*)?\)")


@cache
def generated() -> Mapping[str, str]:
    """Text of every generated page, by path below `docs/`; made once, also under `mkdocs serve`."""
    return {**suite_pages(), **method_pages(), **reference_pages(), "drawn.md": pictures_page()}


def made_from() -> dict[str, str]:
    """Generated pages by the file of the repository that they are made from; both paths from the repository's top."""
    suites = {
        f"benchmarks/{path.relative_to(benchmarks()).as_posix()}": f"suites/{name}"
        for name, path in available().items()
    }
    methods = {
        f"{split_reference(reference)[0].replace('.', '/')}.py": f"methods/{name}"
        for name, reference in reversed(BUILT_IN["methods"].items())
    }
    folders = {"benchmarks": "suites/all", "pflbench/methods": "methods/all"}
    models = {"pflbench/suite/document.py": "reference/keys", "pflbench/cli": "reference/options"}
    return {file: f"docs/{page}.md" for file, page in {**suites, **methods, **folders, **models}.items()}


def on_config(config: Any) -> Any:
    """Add every suite's page to the navigation, below its paper."""
    (suites,) = (entry["Suites"] for entry in config["nav"] if "Suites" in entry)
    for title, names in grouped(available()).items():
        suites.append({title: [{name: f"suites/{name}.md"} for name in names]})
    return config


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Suites by the heading of their paper."""
    every = sorted(names)
    return {title: [name for name in every if name.partition("-")[0] == first] for first, title in PAPERS.items()}


def on_files(files: Any, *, config: Any) -> Any:
    """Add the generated pages and the committed pictures to the site."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    for name in pictures():
        files.append(File.generated(config, f"pictures/{name}", abs_src_path=str(PICTURES / name)))
    return files


def on_nav(nav: Any, **_: Any) -> Any:
    """Add the page of all tables to *Results*; `pflbench report --all --format html` writes it into the built site."""
    (results,) = (one for one in nav.items if one.title == "Results")
    link = Link("All tables", "tables.html")
    link.parent = results
    results.children.insert(1, link)
    return nav


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Text of a page whose links work on the site."""
    return outward(markdown, page.file.src_uri)


def outward(markdown: str, page: str) -> str:
    """Text of a page with its links out of `docs/` led to a generated page or to the repository.

    `page` is the page's path below `docs/`.
    """
    here, pages = posixpath.join("docs", posixpath.dirname(page)), made_from()

    def led(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, link[1]))
        if target in pages:
            return f"]({posixpath.relpath(pages[target], here)})"
        inside = target.startswith("docs/")
        return link[0] if inside else f"]({REPOSITORY}{target}{link[2] or ''})"

    return _LINK.sub(led, markdown)
