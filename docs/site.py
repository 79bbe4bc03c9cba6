"""What the site's builder is told of this documentation (a hook of mkdocs): where links lead that leave `docs/`."""

from __future__ import annotations

import posixpath
import re
from typing import Any

REPOSITORY = "https://github.com/pflbench/pflbench/blob/main/"
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)]*)?\)")


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
