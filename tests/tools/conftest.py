"""Programs of `tools/` are imported by their file's name, as when they are run."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
sys.path += [str(TOOLS / folder) for folder in ("speed", "machines", "mutants")]
