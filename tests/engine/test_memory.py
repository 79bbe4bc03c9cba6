"""Stacks are halved where memory runs out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pflbench.engine import client_map
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import ClientMap, Data, Item, out_of_memory
from pflbench.engine.objective import Task
from pflbench.engine.run import Initial
from pflbench.methods.base import Round
from pflbench.methods.ditto import Ditto
from pflbench.testing import Case, tiny_federation, tiny_spec
from pflbench.testing.rounding import compare

CLIENTS = 21
FEDERATION = tiny_federation(0, sizes=(20,) * CLIENTS)
CASE = Case(Ditto(steps=1))
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    MemoryError(),
]


def mapped_by(execution: Any) -> ClientMap:
    task = Task(CASE.method.network(CASE.plain), FEDERATION.x)
    return ClientMap(Data(task, FEDERATION.labels, (0,)), execution, most_padding=math.inf)


def trained(clients: ClientMap, key: Any = "training", count: int = CLIENTS) -> list[Any]:
    """One participation of each client."""
    new = Initial(clients.data.task.network, 0, torch.device("cpu"), torch.float64)
    server = CASE.method.init(new, CLIENTS)
    own = CASE.method.init_client(server, new)
    streams = support_streams(FEDERATION, tiny_spec(clients=CLIENTS))
    items = [Item(0, own, tuple(streams[c].draw(CASE.method.draws(Round(0)), 0)[0])) for c in range(count)]
    return clients(lambda *args: CASE.method.client(*args, round=Round(0)), [server], items, key)


@pytest.fixture(scope="module")
def looped() -> list[Any]:
    return trained(mapped_by("loop"))


StackSizes = list[int]


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StackSizes]:
    """Watches the sizes of stacks; those of more than `most` clients raise `error`."""

    def watch(most: int = sys.maxsize, error: Exception = ERRORS[0]) -> StackSizes:
        sizes: StackSizes = []
        one_stack = client_map.ClientMap._one_stack

        def limited(self: ClientMap, fn: Any, shared: Any, items: list[Item], key: Any) -> Any:
            sizes.append(len(items))
            if len(items) > most:
                raise error
            return one_stack(self, fn, shared, items, key)

        monkeypatch.setattr(ClientMap, "_one_stack", limited)
        return sizes

    return watch


@pytest.mark.parametrize("error", ERRORS, ids=["device", "host", "python"])
def test_chunks_are_halved_until_they_fit(error: Exception, looped: list[Any], stacks: Callable[..., Any]) -> None:
    sizes, mapped = stacks(3, error), mapped_by("vectorized")
    compare(looped, trained(mapped), "clients one by one and in halved stacks")
    assert sizes[:4] == [21, 10, 5, 2] and set(sizes[4:]) <= {2, 1}
    assert sum(n for n in sizes if n <= 3) == CLIENTS, "what was done is not done again"
    sizes.clear()
    compare(looped, trained(mapped), "a second map")
    assert max(sizes) == 2, "what did not fit is not tried again"


def test_what_was_done_before_memory_ran_out_is_kept(looped: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else takes memory after the second stack."""
    sizes: StackSizes = []
    one_stack = ClientMap._one_stack

    def limited(self: ClientMap, fn: Any, shared: Any, items: list[Item], key: Any) -> Any:
        sizes.append(len(items))
        if len(sizes) == 3:
            raise ERRORS[0]
        return one_stack(self, fn, shared, items, key)

    monkeypatch.setattr(ClientMap, "_one_stack", limited)
    mapped = mapped_by("vectorized")
    mapped.chunk = 6
    compare(looped, trained(mapped), "clients one by one and in stacks of which one did not fit")
    assert sizes == [6, 6, 6, 3, 3, 3]


@pytest.mark.parametrize("error", ERRORS, ids=["device", "host", "python"])
def test_one_client_that_does_not_fit_is_the_end(error: Exception, stacks: Callable[..., Any]) -> None:
    sizes = stacks(0, error)
    with pytest.raises(type(error)):
        trained(mapped_by("vectorized"))
    assert sizes == [21, 10, 5, 2, 1]


def test_other_errors_are_not_taken_for_want_of_memory(stacks: Callable[..., Any]) -> None:
    sizes = stacks(3, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        trained(mapped_by("vectorized"))
    assert sizes == [21]


def test_libraries_say_in_their_own_words_that_memory_ran_out() -> None:
    """As PyTorch and oneDNN raise it under a limit on a processor's memory, and CUDA's libraries on a full GPU."""
    said = (
        "could not create a primitive",
        "std::bad_alloc",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    )
    for error in (*ERRORS, *map(RuntimeError, said)):
        assert out_of_memory(error), error
    for other in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("can't allocate memory")):
        assert not out_of_memory(other)
