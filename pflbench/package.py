"""The installed package: its version, and where it and its suites lie."""

from __future__ import annotations

from pathlib import Path

__version__ = "1.0.0.dev0"
FOLDER = Path(__file__).resolve().parent


def benchmarks(package: Path = FOLDER) -> Path:
    """The folder of suite files: inside an installed package, or beside it in a checkout."""
    inside, beside = package / "benchmarks", package.parent / "benchmarks"
    # Beside an installed package lie other packages: only a project's own folder counts.
    return beside if not inside.is_dir() and (package.parent / "pyproject.toml").is_file() else inside
