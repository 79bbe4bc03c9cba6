"""Command lines that messages tell to type, on the results folder that was asked for."""

from __future__ import annotations

import shlex
from dataclasses import field
from pathlib import Path
from typing import Any

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


def option(default: Any, help: str, *names: str, **more: Any) -> Any:
    """Field of a dataclass that verbs offer as an option of the command line, with its help.

    Args:
        default: The field's default; a tuple or mapping takes several values.
        help: Meaning and default, for a person.
        names: Names of the option; default: the field's.
        more: `read`: function of the typed text; others are those of Typer.
    """
    metadata = {"help": help, "names": names, **more}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)
