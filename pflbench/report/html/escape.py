"""Guards against user text that would be code in the page: JSON inside of a script, links, and paths left out."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

from pflbench.output import plain

_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}
_PATH = re.compile(r"(?<![\w.:/~\\<-])(?:~?/|[A-Za-z]:\\|\\\\)(?=[\w.~])[^\s'\"`;,)\]]*")
"""An absolute path, or one from somebody's home folder."""
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5}(?:v\d+)?)")


def embedded(data: Any) -> str:
    """The data as JSON that can stand in a script element: it has no `<`, so none can end or open an element."""
    text = json.dumps(_plain(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(_IN_SCRIPT)


def _plain(data: Any) -> Any:
    """The data with its texts as they can be shown."""
    if isinstance(data, str):
        return plain(data)
    if isinstance(data, dict):
        return {_plain(key): _plain(value) for key, value in data.items()}
    return [_plain(one) for one in data] if isinstance(data, list | tuple) else data


def web_link(text: str) -> str | None:
    """Address of a link: an http(s) address as it is, `arXiv:…` on arxiv.org; None for every other text."""
    if found := _ARXIV.fullmatch(text):
        return f"https://arxiv.org/abs/{found[1]}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return None
    plain = text.isprintable() and " " not in text
    return text if plain and parts.scheme in ("http", "https") and parts.netloc else None


def discreet(text: str) -> str:
    """The text with `…` in the places of paths on somebody's machine."""
    return _PATH.sub("…", text) if "/" in text or "\\" in text else text
