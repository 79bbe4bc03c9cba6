"""Consoles and small printing functions that the verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench.errors import unknown
from pflbench.output import plain, requested

if TYPE_CHECKING:
    from pflbench.console import Console
    from pflbench.report.stored import Listed

show_tracebacks = False  # --debug
SUFFIXES = {"txt": "terminal", "md": "markdown", "tex": "latex"}
"""Formats whose files have another suffix than the format's name."""


def console() -> Console:
    """Standard output."""
    from pflbench.console import Console  # which a verb that prints nothing but lines does not wait for

    return Console()


def errors() -> Console:
    """Standard error."""
    from pflbench.console import Console

    return Console(stderr=True)


def show_runs(runs: Sequence[Listed]) -> None:
    """Print stored runs, a line for each, with the columns in which a run has something."""
    from tabulate import tabulate

    hidden = ("version", "model", "precision", "finished", "commit", "failure", "hyper")
    head = [key for key in type(runs[0])._fields if key not in hidden and any(getattr(one, key) != "" for one in runs)]
    lines = [head, *([str(getattr(one, key)) for key in head] for one in runs)]
    console().print(tabulate(lines, tablefmt="plain", disable_numparse=True))


def put(text: str, output: Path | None = None, *, styled: bool = False) -> None:
    """Print a text without what the terminal cannot show, or write it to the requested file.

    `styled`: `console.Console` made it for a terminal, and its control characters are styles.

    Raises:
        StoreError: The file cannot be written.
    """
    from pflbench.report.text import fitting

    text = text if styled else plain(text)
    if output is None:
        out = console()
        out.out(fitting(text, out.encoding), end="", highlight=False)
    else:
        write(output, text.encode())


def format_of(output: Path | None, formats: Sequence[str], format: str | None = None) -> Any:
    """Return the format: that of `--format`, else that of the file's suffix, else the first one.

    Raises:
        UsageError: The format or the suffix is unknown.
    """
    suffix = output.suffix.lower().removeprefix(".") if output else ""
    name = format or SUFFIXES.get(suffix, suffix) or formats[0]
    if name not in formats:
        raise unknown("format", name, formats)
    return name


def write(output: Path, content: bytes) -> None:
    """Write a requested file, whole or not at all. Raises `StoreError`."""
    with requested(output) as file:
        file.write(content)
