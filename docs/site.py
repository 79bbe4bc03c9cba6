"""What the site's builder is told of this documentation (a hook of mkdocs): where links lead that leave `docs/`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAPERS = {"cafeme": "CAFeMe", "fedec": "FedEC", "pfedvem": "pFedVEM", "meta": "Meta-learning"}
"""What the suites of a paper are called by, from the first word of their names."""
REPOSITORY = "https://github.com/pflbench/pflbench/blob/main/"
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """The site's settings, in whose navigation every suite's page stands below its paper."""
    folder = Path(config["docs_dir"]) / "suites"
    for title, pages in grouped(path.stem for path in folder.glob("*.md")).items():
        (suites,) = (entry["Suites"] for entry in config["nav"] if "Suites" in entry)
        suites.append({title: [{name: f"suites/{name}.md"} for name in pages]})
    return config


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Suites by what their paper is called, in its order; the list of all of them is none."""
    every = sorted(set(names) - {"all"})
    return {title: [name for name in every if name.partition("-")[0] == first] for first, title in PAPERS.items()}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page's text, in which links to files outside `docs/` lead to the repository."""
    return outward(markdown, page.file.src_uri)


def outward(markdown: str, page: str) -> str:
    """The text of a page of `docs/` with its links out of that folder made absolute; `page`: its path below `docs/`."""

    def led(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[1]))
        inside = target.startswith("docs/") and not target.endswith(".py")
        return link[0] if inside else f"]({REPOSITORY}{target}{link[2] or ''})"

    return _LINK.sub(led, markdown)
