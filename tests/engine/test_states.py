"""Clients' states come back bit for bit, also from a file that has no name, whatever happens to the process."""

from __future__ import annotations

import os
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
from pflbench.errors import PflbenchError
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
    """The cache folder; nothing stays in memory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 0)
    return tmp_path / "pflbench"


def kept(states: States) -> int:
    """Bytes in the file."""
    return 0 if states._file is None else os.fstat(states._file.fileno()).st_size


def test_states_come_back_bit_for_bit(folder: Path) -> None:
    states, expected = States(), {}
    for client in (5, 2, 9, 2, 5, 2):
        states[client] = expected[client] = state(len(expected) + client)
    assert list(states) == [5, 2, 9] and len(states) == 3 and 9 in states and 1 not in states
    assert states.get(1, "fresh") == "fresh" and kept(states)
    for client, mine in expected.items():
        found = states[client]
        assert bits(found) == bits(mine) and type(found) is Pair and found.more["empty"] == ()
        assert found.one is not states[client].one


def test_a_client_has_one_place_whose_size_is_the_states(folder: Path) -> None:
    states, size = States(), sum(leaf.nbytes for leaf in pytree.tree_leaves(state(0)))
    for round in range(5):
        for client in range(3):
            states[client] = state(10 * round + client)
    assert kept(states) == 3 * size
    states[1] = state(1, size=2000)  # which has no room there
    assert kept(states) > 3 * size
    assert [bits(states[c]) for c in range(3)] == [bits(state(40)), bits(state(1, size=2000)), bits(state(42))]


def test_who_comes_first_stays_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(leaf.nbytes for leaf in pytree.tree_leaves(state(0)))
    monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 2 * size)
    states = States()
    for _ in range(2):
        for client in (4, 7, 1, 0, 9):
            states[client] = state(client)
    assert kept(states) == 3 * size and states[4].one is states[4].one and states[1].one is not states[1].one
    assert all(bits(states[client]) == bits(state(client)) for client in states)


def test_a_slice_does_not_keep_the_whole(tmp_path: Path) -> None:
    states = States()
    states[0] = torch.zeros(1000)[:3]
    assert states[0].untyped_storage().nbytes() == 12 and kept(states) == 0
    whole = torch.zeros(3)
    assert owned_copy(whole) is whole


def test_without_a_place_for_the_file_states_stay_in_memory(folder: Path) -> None:
    folder.write_text("no folder")
    states = States()
    states[3] = state(3)
    assert bits(states[3]) == bits(state(3)) and states[3].one is states[3].one


def test_a_full_disk_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = States()
    for client in range(3):
        states[client] = state(client)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pflbench.engine.states._move", full)
        states[1] = state(11)
    assert [bits(states[c]) for c in range(3)] == [bits(state(c)) for c in (0, 11, 2)]
    states[1] = state(12)
    assert bits(states[1]) == bits(state(12))


def test_a_disk_that_is_nearly_full_is_left_to_results(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = States()
    states[0] = state(0)
    size = kept(states)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))
    states[1], states[0] = state(1), state(10)
    assert kept(states) == size and states[1].one is states[1].one
    assert bits(states[0]) == bits(state(10)) and bits(states[1]) == bits(state(1))


def test_a_file_that_cannot_be_read_back_is_one_message(folder: Path) -> None:
    states = States()
    states[0] = state(0)
    assert states._file is not None
    states._file.truncate(10)
    with pytest.raises(PflbenchError, match="Cannot read clients' states back"):
        states[0]


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("name", ["ditto", "fedrep-averaged", "cafeme", "fedrep", "apfl"])
def test_runs_are_the_same_to_the_bit(name: str, execution: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory and from the file: server, states and scores."""

    def run() -> tuple[Any, Any, int]:
        case = Case(names.resolve("methods", name)())
        simulation = Simulation(
            [case.spec(0)], [tiny_federation(0)], case.method, case.plain, Setup(execution=execution)
        )
        (outcome,) = simulation.run()
        (found,) = simulation.runs
        return bits([outcome.server, dict(found.states)]), (outcome.scores, outcome.metrics), kept(found.states)

    *filed, size = run()
    monkeypatch.setattr("pflbench.engine.states.IN_MEMORY", 1 << 30)
    *held, none = run()
    assert filed == held and size > 0 and none == 0


KILLED = """
import os, signal, torch
from pflbench.engine import states
states.IN_MEMORY = 0
kept = states.States()
kept[0] = torch.ones(1000)
assert torch.equal(kept[0], torch.ones(1000))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_process_leaves_no_file(folder: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -9 and folder.is_dir() and list(folder.iterdir()) == []
