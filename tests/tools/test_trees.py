"""`tools/speed/trees.py` compares two checkouts; here one with itself."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_one_tree_is_about_as_fast_as_itself() -> None:
    root = Path(__file__).parents[2]
    compare = runpy.run_path(str(root / "tools" / "speed" / "trees.py"))["compare"]
    ratios = compare(root, root, "mlp", "loop", pairs=2, seconds=0.05)
    assert len(ratios) == 2 and all(0.01 < ratio < 100 for ratio in ratios)
    with pytest.raises(SystemExit, match="no checkout"):
        compare(root / "tests", root, "mlp", "loop", pairs=1, seconds=0.05)
