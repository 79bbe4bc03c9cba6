"""Several clients at a time: when that is chosen, and that nothing but time depends on it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor

from pflbench.engine.client_map import AGAIN, ClientMap, Data, Item, LanePace
from pflbench.engine.objective import Task
from pflbench.engine.simulate import Setup, Simulation
from pflbench.methods.base import steps
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.ditto import Ditto
from pflbench.testing import Case, tiny_federation, tiny_network, tiny_spec

CASE = Case(Ditto())
FEDERATION = tiny_federation(0)


def paced(pace: LanePace, most: int, seconds: dict[int, float], maps: int, rows: int = 10) -> list[int]:
    """The lanes of so many maps, each of which takes `seconds` by its number of lanes."""
    chosen = []
    for _ in range(maps):
        chosen.append(pace.choose(most))
        pace.note(chosen[-1], rows, seconds[chosen[-1]])
    return chosen


@pytest.mark.parametrize(("seconds", "faster"), [({1: 2.0, 4: 1.0}, 4), ({1: 1.0, 4: 2.0}, 1)])
def test_both_ways_are_tried_then_the_faster_is_kept(seconds: dict[int, float], faster: int) -> None:
    chosen = paced(LanePace(), 4, seconds, 3 * AGAIN)
    assert chosen[:2] == [1, 4]
    assert chosen[2:].count(5 - faster) == 3, "the slower one is tried again now and then"
    assert chosen[2:].count(faster) == len(chosen) - 5
    assert chosen.index(5 - faster, 2) == AGAIN - 1, "first with the map of this number"


def test_what_has_become_faster_is_found() -> None:
    pace = LanePace()
    assert paced(pace, 4, {1: 1.0, 4: 2.0}, 10)[-1] == 1
    assert paced(pace, 4, {1: 1.0, 4: 0.5}, 2 * AGAIN)[-1] == 4
    assert paced(pace, 4, {1: 1.0, 4: 3.0}, 2)[-1] == 1, "what has become slower, at once"


def test_time_is_counted_by_rows() -> None:
    pace = LanePace()
    pace.note(1, 10, 1.0)
    pace.note(4, 100, 5.0)
    assert pace.choose(4) == 4


def test_a_map_without_rows_says_nothing() -> None:
    pace = LanePace()
    pace.note(1, 0, 5.0)
    assert pace.latest == {}


def test_with_one_core_or_one_client_there_is_one_lane() -> None:
    pace = LanePace()
    assert [pace.choose(most) for most in (1, 0, 1)] == [1, 1, 1]
    pace.note(1, 10, 1.0)
    assert pace.choose(2) == 2, "a core became free: two have not been tried"


class Always(LanePace):
    """As many lanes as there may be."""

    def choose(self, most: int) -> int:
        return max(1, most)


class Paces(dict[Any, LanePace]):
    """As many lanes as there may be, for every kind of map."""

    def setdefault(self, key: Any, default: Any = None) -> LanePace:
        return super().setdefault(key, Always())


def in_lanes(clients: ClientMap, lanes: int = 3) -> ClientMap:
    clients.lanes, clients._paces = lambda: lanes, Paces()
    return clients


@pytest.mark.parametrize("method", [Ditto(), CAFeMe(steps=2, outer_batches=2, order="exact")], ids=["ditto", "cafeme"])
def test_lanes_change_no_bit(method: Any) -> None:
    found = []
    for lanes in (1, 3):
        setup = Setup(lanes=lambda lanes=lanes: lanes)
        simulation = Simulation([tiny_spec(rounds=3)], [FEDERATION], method, tiny_network(), setup)
        simulation.clients._paces = Paces()
        (outcome,) = simulation.run()
        found.append((outcome.server, outcome.scores, simulation.clients.gradient_calls))
    (server, scores, calls), (same_server, same_scores, same_calls) = found
    assert torch.equal(server, same_server) and scores == same_scores and len(scores) > 0
    assert calls == same_calls > 0


def client_map() -> ClientMap:
    return ClientMap(Data(Task(CASE.network, FEDERATION.x), FEDERATION.labels, (0,)), "loop")


def items(count: int = 6) -> list[Item]:
    return [Item(0, torch.tensor(float(i)), ([FEDERATION.support[i][:3]],)) for i in range(count)]


def test_clients_really_run_at_the_same_time_and_keep_their_order() -> None:
    """Each waits for two others."""
    together = threading.Barrier(3)

    def wait(f: Any, shared: Tensor, own: Tensor, taken: Any) -> Tensor:
        together.wait(timeout=30)
        return own

    found = in_lanes(client_map())(wait, [()], items())
    assert [int(x) for x in found] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("bad", [0, 5])
def test_an_error_in_a_lane_is_the_maps(bad: int) -> None:
    def fail(f: Any, shared: Tensor, own: Tensor, taken: Any) -> Tensor:
        if own == bad:
            raise KeyError(f"client {bad}")
        return own

    with pytest.raises(KeyError, match=f"client {bad}"):
        in_lanes(client_map())(fail, [()], items())


def test_no_more_clients_are_trained_after_an_error() -> None:
    """So that an interrupted or failed map ends soon, however many clients wait."""
    started: list[int] = []

    def fail(f: Any, shared: Tensor, own: Tensor) -> Tensor:
        started.append(int(own))
        if own == 0:
            raise KeyError("client 0")
        time.sleep(0.02)
        return own

    clients = in_lanes(client_map(), lanes=2)
    with pytest.raises(KeyError, match="client 0"):
        clients(fail, [()], [Item(0, torch.tensor(float(i)), ()) for i in range(50)])
    assert len(started) < 10


def test_gradients_are_not_recorded_in_a_lane() -> None:
    """Each thread has its own grad mode; what a client returns must not hold a graph."""
    server = CASE.network.init(0).double()

    def train(f: Any, server: Tensor, own: Any, taken: Any) -> Tensor:
        assert not torch.is_grad_enabled()
        return steps(lambda w, b: w - 0.1 * f.grad(w, b), server, taken)

    for w in in_lanes(client_map())(train, [server], items()):
        assert not w.requires_grad


def test_scoring_does_not_disturb_the_pace_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scored row costs many times a trained one; a score now and then must not stop training in several lanes."""
    clock, lock = [0.0], threading.Lock()
    monkeypatch.setattr("pflbench.engine.client_map.time.perf_counter", lambda: clock[0])
    used: list[int] = []

    def costs(seconds: float) -> Any:
        def fn(f: Any, shared: Any, own: Tensor, taken: Any) -> Tensor:
            lanes = 1 if threading.current_thread() is threading.main_thread() else 3
            with lock:
                clock[0] += seconds / lanes
            used.append(lanes)
            return own

        return fn

    clients = client_map()
    clients.lanes = lambda: 3
    for _ in range(5):
        clients(costs(1.0), [()], items(), key="training")
    assert used[-1] == 3
    clients(costs(20.0), [()], items(), key="scoring")
    used.clear()
    for _ in range(5):
        clients(costs(1.0), [()], items(), key="training")
    assert set(used) == {3}
