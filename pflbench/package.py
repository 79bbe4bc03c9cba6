"""The installed package: its version, and where it lies."""

from __future__ import annotations

from pathlib import Path

__version__ = "1.0.0.dev0"
FOLDER = Path(__file__).parent
