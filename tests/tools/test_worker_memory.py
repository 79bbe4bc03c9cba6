"""`tools/speed/memory.py` finds a worker's peak."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "speed" / "memory.py"
PARENT = """
import subprocess, sys
small = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)"])
subprocess.run([sys.executable, "-c", "import time; block = bytearray(b'x') * 200_000_000; time.sleep(2)"], check=True)
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="asks /proc")]


def test_it_measures_the_largest_process_that_a_command_starts() -> None:
    peak = runpy.run_path(str(SCRIPT))["peak"]
    found, seconds = peak([sys.executable, "-c", PARENT])
    assert 200 <= found.own <= found.pss <= found.rss < 300 and 2 < seconds
    with pytest.raises(SystemExit, match="failed"):
        peak([sys.executable, "-c", "raise SystemExit(1)"])
