"""Clients' states come back bit for bit, also from a file that has no name, whatever happens to the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.engine.simulate import Setup, Simulation
from pflbench.engine.states import States, owned_copy
from pflbench.testing import Case, tiny_federation


class Pair(NamedTuple):
    one: Tensor
    more: Any


def bits(tree: Any) -> list[tuple[torch.Size, torch.dtype, bytes]]:
    leaves = pytree.tree_leaves(tree)
    return [(leaf.shape, leaf.dtype, leaf.contiguous().view(-1).view(torch.uint8).numpy().tobytes()) for leaf in leaves]


def state(seed: int, size: int = 1000) -> Pair:
    random = torch.Generator().manual_seed(seed)
    every = torch.randint(-(2**31), 2**31, (size,), generator=random, dtype=torch.int64)
    odd = every.to(torch.int32).view(torch.float32)  # every kind of NaN among them
    return Pair(odd[::2], {"half": odd.bfloat16(), "none": odd[:0], "one": odd[3].double(), "is": odd > 0, "empty": ()})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder; all states lie in a file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 0)
    return tmp_path / "pflbench"


@pytest.mark.parametrize("filed", [True, False])
def test_states_come_back_bit_for_bit(folder: Path, monkeypatch: pytest.MonkeyPatch, filed: bool) -> None:
    if not filed:
        monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 1 << 30)
    states, expected = States(state(0), 3), {}
    for client in (5, 2, 9, 2, 5, 2):
        states[client] = expected[client] = state(len(expected) + client)
    assert states.filed is filed
    assert list(states) == [5, 2, 9] and len(states) == 3 and 9 in states and 1 not in states
    assert states.get(1, "fresh") == "fresh"
    for client, mine in expected.items():
        found = states[client]
        assert bits(found) == bits(mine) and type(found) is Pair and found.more["empty"] == ()


def test_what_was_read_does_not_change_with_the_state(folder: Path) -> None:
    states = States(state(0), 1)
    states[4] = state(1)
    before = states[4]
    states[4] = state(2)
    assert bits(before) == bits(state(1)) and bits(states[4]) == bits(state(2))


def test_methods_without_states_have_a_map_too(folder: Path) -> None:
    states = States((), 4)
    states[3] = ()
    assert states[3] == () and list(states) == [3] and not states.filed


def test_a_slice_does_not_keep_the_whole() -> None:
    whole = torch.zeros(1000)
    assert owned_copy(whole[:3]).untyped_storage().nbytes() == 12 and owned_copy(whole) is whole


def test_without_a_place_for_the_file_states_stay_in_memory(folder: Path) -> None:
    folder.write_text("no folder")
    states = States(state(0), 5)
    states[3] = state(3)
    assert bits(states[3]) == bits(state(3)) and not states.filed


def test_a_disk_that_is_nearly_full_is_left_to_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))
    assert not States(state(0), 5).filed


def test_a_full_disk_is_noticed_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    states = States(state(0), 5)
    states[1] = state(1)
    assert bits(states[1]) == bits(state(1)) and not states.filed


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("name", ["ditto", "fedrep-averaged", "cafeme", "fedrep", "apfl"])
def test_runs_are_the_same_to_the_bit(name: str, execution: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory and from the file: server, states and scores."""

    def run() -> tuple[Any, Any, bool]:
        case = Case(names.resolve("methods", name)())
        simulation = Simulation(
            [case.spec(0)], [tiny_federation(0)], case.method, case.plain, Setup(execution=execution)
        )
        (outcome,) = simulation.run()
        (found,) = simulation.runs
        return bits([outcome.server, dict(found.states)]), (outcome.scores, outcome.metrics), found.states.filed

    *filed, in_file = run()
    monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 1 << 30)
    *held, still = run()
    assert filed == held and in_file and not still


KILLED = """
import os, signal, torch
from pflbench.engine import states
states.IN_MEMORY = 0
kept = states.States(torch.ones(1000), 1)
kept[0] = torch.ones(1000)
assert torch.equal(kept[0], torch.ones(1000)) and kept.filed
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_process_leaves_no_file(folder: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -9 and folder.is_dir() and list(folder.iterdir()) == []
