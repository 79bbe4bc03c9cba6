"""Reference runs that come with pflbench, and how they are told from the user's runs.

They lie in packs of the installed package or, in a checkout, in its `results/packs`. `shipped.txt` beside the packs
lists them, a line for each run: its id, and when it was finished. A run that the user trains has the same id and
another time, so it is never taken for a shipped one: by itself, packed or merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pflbench import package
from pflbench.store.header import Stored
from pflbench.units import count

NAME = "shipped.txt"
ShippedRuns = frozenset[str]
"""Lines of the list."""


def shipped_folder() -> Path:
    """Packs that came with pflbench: those in the wheel, else those beside the package in a checkout."""
    installed, checkout = (folder / "results" / "packs" for folder in (package.FOLDER, package.FOLDER.parent))
    return installed if installed.is_dir() or not (package.FOLDER.parent / "pyproject.toml").is_file() else checkout


def line(run: Stored) -> str:
    """A run's line in the list: its id, and when it was finished, if that was recorded."""
    return f"{run.spec.id} {run.finished}".rstrip()


def shipped_runs() -> ShippedRuns:
    """Return the list of shipped runs; empty where none came with pflbench."""
    path = shipped_folder() / NAME
    return frozenset(path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())


def came_with_pflbench(shipped: int, of: int) -> str:
    """Sentence on finished runs that are not trained here, as they came with pflbench."""
    them = "it" if shipped == 1 else "them"
    return f"{shipped} of {count(of, 'run')} came with pflbench; `--fresh` trains {them} here."


def write_list(packs: Path, runs: Iterable[Stored]) -> None:
    """Write the list of a folder of packs."""
    (packs / NAME).write_text("".join(f"{one}\n" for one in sorted(map(line, runs))), encoding="utf-8")
