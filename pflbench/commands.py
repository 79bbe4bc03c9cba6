"""Command lines that messages tell to type, on the results folder that was asked for."""

from __future__ import annotations

import shlex
from pathlib import Path

DEFAULT_RESULTS = Path("results")


def command(verb: str, options: str = "", results: Path = DEFAULT_RESULTS) -> str:
    """The command line of a verb on a results folder; `options`: each with a blank before it."""
    return f"pflbench {verb}{options}{folder_option(results)}"


def folder_option(results: Path) -> str:
    """The option that names a results folder, with a blank before it; nothing for the default one."""
    return "" if results == DEFAULT_RESULTS else f" --results {shlex.quote(str(results))}"


def public_folder(results: Path) -> Path:
    """The folder as texts name it that others read: one of somebody's machine, an absolute one, not at all."""
    return DEFAULT_RESULTS if results.is_absolute() or str(results).startswith("~") else results
