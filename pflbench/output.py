"""Output: files that appear whole or not at all, and text without control characters."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import TextWrapper
from typing import IO

from pflbench.errors import StoreError

_SEQUENCES = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colors, the cursor
)
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the direction of text
    r"\u2028\u2029\ud800-\udfff]"  # further ends of lines, and halves of characters
)


def plain(text: str) -> str:
    """Return the text of a run or file as it can be shown.

    A terminal's sequences are left out. Other control characters, those that change the direction of text, and lone
    surrogates become U+FFFD. Tab and line feed stay.
    """
    return text if text.isprintable() else _HIDDEN.sub("\ufffd", _SEQUENCES.sub("", text))


def one_line(text: str) -> str:
    """Return the text as `plain` does, with spaces in the place of its line feeds."""
    return plain(text).replace("\n", " ")


def wrapped(text: str, width: int, indent: str = "", lead: str = "") -> str:
    """Break a text into lines of at most `width` characters, between words alone.

    Args:
        text: The text; its blanks in a row become one.
        width: Characters of a line. A longer word has a line of its own.
        indent: What stands before each further line.
        lead: What stands before the first line.
    """
    fill = TextWrapper(width, initial_indent=lead, subsequent_indent=indent)
    fill.break_long_words = fill.break_on_hyphens = False
    return fill.fill(text)


@contextmanager
def requested(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces the requested one at the end, unless an error ended the writing.

    Through a link, the file that it leads to is replaced. A pipe or a device (`/dev/stdout`) is written to itself.

    Raises:
        StoreError: The file cannot be written.
    """
    try:
        if _is_device(path):
            with path.open("wb") as file:
                yield file
            return
        final = Path(os.path.realpath(path))
        temporary = final.with_name(f".{final.stem[:40]}-{uuid.uuid4().hex[:8]}{final.suffix}")
        try:
            with temporary.open("xb") as file:
                yield file
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {str(path)!r}: {error.strerror or error}.") from error


def _is_device(path: Path) -> bool:
    """True for what cannot be replaced. `/dev/stdout` can be a link to a plain file, which is open already."""
    folder = path.absolute().parts[1:2]
    return folder in (("dev",), ("proc",)) or (path.exists() and not path.is_file() and not path.is_dir())
