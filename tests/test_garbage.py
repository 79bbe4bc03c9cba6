"""When Python looks for garbage: seldom while a verb starts, and as usual from the moment that it trains."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from pflbench import garbage


@pytest.fixture(autouse=True)
def unfrozen() -> None:
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == garbage.USUAL


def test_a_verb_looks_seldom_and_one_that_trains_as_usual() -> None:
    with garbage.seldom():
        assert gc.get_threshold()[0] == garbage.AT_START > garbage.USUAL[0]
        garbage.as_usual()
        assert gc.get_threshold() == garbage.USUAL and gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == garbage.USUAL


def test_who_uses_pflbench_as_a_library_is_left_alone() -> None:
    garbage.as_usual()
    assert gc.get_freeze_count() == 0


def test_what_only_reads_never_looks_and_an_error_ends_that() -> None:
    with pytest.raises(KeyError), garbage.seldom(never=True):
        assert gc.get_threshold()[0] == 0
        raise KeyError
    assert gc.get_threshold() == garbage.USUAL


def test_importing_torch_is_not_interrupted() -> None:
    """`AT_START` is more than all that is there when training starts."""
    code = (
        "import gc\nfrom pflbench import garbage\nbefore = sum(one['collections'] for one in gc.get_stats())\n"
        "with garbage.seldom():\n    import pflbench.running.training, pflbench.running.estimate, torchvision\n"
        "    print(sum(one['collections'] for one in gc.get_stats()) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
