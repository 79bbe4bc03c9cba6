"""Consoles and small printing functions that the verbs share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pflbench.errors import UsageError, unknown
from pflbench.output import plain, requested
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.console import Console
    from pflbench.report.stored import Listed
    from pflbench.store.packing import Packed

F = TypeVar("F", bound=str)
show_tracebacks = False  # --debug
VARIABLES = "Environment variables: PFLBENCH_RESULTS, PFLBENCH_DATA_DIR, PFLBENCH_JOBS, PFLBENCH_DEVICE."
"""Last line of each verb's help."""


def console() -> Console:
    """Standard output."""
    from pflbench.console import Console  # which a verb that prints nothing but lines does not wait for

    return Console()


def errors() -> Console:
    """Standard error."""
    from pflbench.console import Console

    return Console(stderr=True)


def show_runs(runs: Sequence[Listed]) -> None:
    """Print stored runs, a line for each; what only few runs have is a column where one of them has it."""
    from tabulate import tabulate

    head = ["run", "status", "method", "dataset", "partition", "clients", "rounds", "seed", "validation"]
    rare = ("dataset_version", "dataset_content", "partition_version", "partition_content", "model_version")
    head += [key for key in ("why", *rare, "unchecked") if any(getattr(run, key) for run in runs)]
    head += ["file", *(["differs"] if any(run.differs for run in runs) else [])]
    lines = [head, *([str(getattr(run, key)) for key in head] for run in runs)]
    console().print(tabulate(lines, tablefmt="plain", disable_numparse=True))


def say_packed(packed: Iterable[Packed]) -> None:
    """A line for each pack that was written."""
    for path, runs, added in packed:
        new = f", {added} of them new" if added < runs else ""
        console().print(f"Packed: {str(path)!r} holds {count(runs, 'run')}{new}.")


def put(text: str, output: Path | None = None, *, styled: bool = False) -> None:
    """Print a text, or write it to a file that was asked for.

    `styled`: it was made for a terminal by `console.Console`, and the control characters in it are styles.

    Raises:
        StoreError: The file cannot be written.
    """
    text = text if styled else plain(text)
    if output is None:
        _show(text)
    else:
        write(output, text.encode())


def _show(text: str) -> None:
    """Print a text that is as wide as it wants to be, without what the terminal cannot show."""
    from pflbench.report.text import fitting

    out = console()
    out.out(fitting(text, out.encoding), end="", highlight=False)


def stdout_is_terminal() -> bool:
    """True where standard output is shown to a person, and goes to no file or pipe."""
    return sys.stdout.isatty()


def check_output(output: Path | None, name: str) -> None:
    """Raise `UsageError` where what is for a file would fill a terminal; `name`: an example of a file's."""
    if output is None and stdout_is_terminal():
        raise UsageError(f"This is long and for a program: write `-o {name}`, or pipe it (`| head`).")


SUFFIXES = {
    **{"terminal": ".txt", "markdown": ".md", "latex": ".tex"},
    **{"csv": ".csv", "html": ".html", "parquet": ".parquet"},
}
"""Suffixes of files, by format."""


def format_of(format: str | None, output: Path | None, formats: Sequence[F]) -> F:
    """Return the format: that of `--format`, else that of the file's suffix, else the first one.

    A file without a suffix, such as `/dev/stdout`, takes any format.

    Raises:
        UsageError: The format or the suffix is unknown, or the two disagree.
    """
    chosen = next((one for one in formats if one == format), None)
    if format is not None and chosen is None:
        raise unknown("format", format, formats)
    if output is None or not output.suffix:
        return chosen or formats[0]
    by_suffix = {SUFFIXES[one]: one for one in formats}
    found, by_option = by_suffix.get(output.suffix.lower()), f", with `--format {format}`" if format else ""
    if found is None:
        known = ", ".join(f"{suffix} ({one})" for suffix, one in by_suffix.items())
        raise UsageError(f"`-o {output}`: unknown suffix {output.suffix!r}{by_option}. Use one of: {known}.")
    if chosen not in (None, found):
        raise UsageError(f"`-o {output}` is {found}{by_option}. Leave one of the two out, or change it.")
    return found


def write(output: Path, content: bytes) -> None:
    """Write a file that was asked for, whole or not at all. Raises `StoreError`."""
    with requested(output) as file:
        file.write(content)
