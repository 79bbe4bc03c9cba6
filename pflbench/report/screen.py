"""Text for a terminal of a given width, independent of the terminal that the program runs in."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Collection, Sequence

from rich.table import Table
from rich.text import Text

from pflbench.console import Console

WIDTH = 100
"""Characters of a line where the output is no terminal and COLUMNS is not set."""


def terminal_width() -> int:
    """Characters per line of the terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


class Screen:
    """Lines for a terminal.

    Args:
        width: Characters per line; default: the terminal's.
        color: Whether to write ANSI styles. `NO_COLOR` leaves only bold, dim and italic.
    """

    def __init__(self, width: int | None = None, *, color: bool = False) -> None:
        self.width, self.color, self._file = width or terminal_width(), color, io.StringIO()
        self._console = Console(
            file=self._file,
            width=self.width,
            soft_wrap=False,
            force_terminal=color,
            # An empty NO_COLOR does not count as set (no-color.org); rich would take it as such.
            no_color=bool(os.environ.get("NO_COLOR")),
            color_system=("standard" if color else None),
            force_jupyter=False,
            legacy_windows=False,
            _environ={},  # the result must depend on the arguments alone
        )

    def say(self, line: str | Text, style: str = "") -> None:
        """Add a line, broken between words where it is too long."""
        self._console.print(Text(line, style) if isinstance(line, str) else line, soft_wrap=False)

    def show(self, table: Table) -> None:
        """Add a table."""
        self._console.print(table)

    @property
    def text(self) -> str:
        """All lines, without blanks at their ends."""
        return "".join(f"{line.rstrip()}\n" for line in self._file.getvalue().splitlines())


def listed(
    header: Sequence[str], lines: Sequence[Sequence[str]], left: Collection[str], whole: Collection[str] = ()
) -> Table:
    """A list in columns: those whose names are in `left` hold words, which may wrap unless they are in `whole`."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in header:
        words = name in left
        grid.add_column(
            Text(name), justify="left" if words else "right", no_wrap=not words or name in whole, overflow="fold"
        )
    for line in lines:
        grid.add_row(*map(Text, line))
    return grid
