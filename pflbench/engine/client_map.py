"""Run one function for many clients: one by one (`loop`) or as a stack (`vectorized`). The same numbers, to rounding.

The function is written for one client of one run: `fn(f, shared, private, *taken) -> tree of tensors`, where `shared`
is what all clients of a run get (the server state), `private` the client's state, `taken` its minibatches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import noise
from pflbench.engine import host, stack
from pflbench.engine.batches import Drawn
from pflbench.engine.capture import Graphs
from pflbench.engine.objective import LoopObjective, StackedObjective, Task
from pflbench.methods.base import Batch, Batches, Round

if TYPE_CHECKING:
    from pflbench.engine.run import Run

Execution = Literal["loop", "vectorized"]
Tree = Any
ClientFunction = Callable[..., Tree]
Made = TypeVar("Made")
Shared = Sequence[Tree] | Mapping[int, Tree]
"""Values that all clients of a run get, by the run's index in the group."""
Owner = tuple[int, int]
"""The index of a run in the group, and one of its clients."""
PORTION = 8
"""Clients per core whose states are in memory at a time, in a loop."""
AGAIN = 50
"""After so many maps the slower number of lanes is tried again, as other programs on the machine come and go."""
_OUT_OF_MEMORY = (
    *("can't allocate memory", "could not create a primitive", "bad_alloc", "can't start new thread"),
    *("CUDA error: out of memory", "_STATUS_ALLOC_FAILED"),
)
"""Messages of PyTorch, oneDNN, C++ and Python when a CPU's memory runs out; of CUDA, cuBLAS and cuDNN about memory
that they take past PyTorch's allocator (pytorch#128601)."""


def out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


@dataclass
class LanePace:
    """Seconds per image, with one client at a time and with several.

    Threads share one interpreter: a convolutional network's step leaves it free, a small step is mostly Python, and
    then several threads are slower than one.
    """

    maps: int = 0
    latest: dict[int, float] = field(default_factory=dict)

    def choose(self, most: int) -> int:
        """1 or `most` clients at a time: an untried one first, then the faster one."""
        self.maps += 1
        if most <= 1:
            return 1
        for lanes in (1, most):
            if lanes not in self.latest:
                return lanes
        best, other = sorted((1, most), key=self.latest.__getitem__)
        return best if self.maps % AGAIN else other

    def note(self, lanes: int, rows: int, seconds: float) -> None:
        """Note that so many images took so many seconds. Only the last measurement counts."""
        if rows:
            self.latest[lanes] = seconds / rows


@dataclass(frozen=True)
class Data:
    """The examples of all runs of a group: one pool on the device, labels on the host, each run's first row."""

    task: Task
    labels: np.ndarray
    offsets: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Where the pool lies, and so where everything is computed."""
        return self.task.pool.device

    def upload(self, values: np.ndarray) -> Tensor:
        """An array as a tensor on the device."""
        return host.upload(values, self.device)

    def batch(self, rows: np.ndarray, index: int) -> Batch:
        """A minibatch of one client of the run with this index in the group; `rows` as in `Drawn`."""
        places = self.upload(rows[1]) if rows.ndim == 2 else None
        rows = (rows if places is None else rows[0]) + self.offsets[index]
        return Batch(self.upload(rows), self.upload(self.labels[rows]), places=places)


@dataclass(frozen=True)
class Item:
    """One client's part of a map: the index of its run in the group, its state, its minibatches."""

    index: int
    private: Tree
    taken: tuple[Drawn, ...]

    @property
    def shapes(self) -> tuple[stack.DrawShape, ...]:
        """Shape that it needs of a stack, per `Draw`."""
        return tuple(stack.shape(drawn) for drawn in self.taken)


def keyed(taken: Sequence[Batches], key: Tensor, task: Task) -> tuple[Batches, ...]:
    """Minibatches to train on, each with a key of its own where the task draws anything of it.

    Pure, so that it works inside vmap; `key`: that of the local update, int64 scalar.
    """
    if not task.noisy:
        return tuple(taken)
    return tuple(
        tuple(b._replace(key=noise.branch(key, i, step)) for step, b in enumerate(batches))
        for i, batches in enumerate(taken)
    )


class Watched(Round):
    """A round that notes in `requested` if a method reads its index: no CUDA graph of such a round is replayed."""

    def __init__(self, index: int, key: Tensor, requested: set[int]):
        for name, value in (("_index", index), ("key", key), ("coin", None), ("_requested", requested)):
            object.__setattr__(self, name, value)

    @property
    def index(self) -> int:
        """See `Round`."""
        index: int = self.__dict__["_index"]
        self.__dict__["_requested"].add(index)
        return index


def one_lane() -> int:
    """Clients one after the other."""
    return 1


@dataclass
class ClientMap:
    """Maps a function over the clients of all runs of a group in one flat axis.

    `chunk`: at most so many clients in a stack (None: all), and at most `most_padding` times the rows that they have;
    both change memory and speed, and numbers by rounding only. Stacks that memory does not suffice for are halved.
    `lanes`: how many clients a loop may train at a time, each on one thread; asked for every map. `graphs`: records of
    repeated stacks.
    """

    data: Data
    execution: Execution = "loop"
    chunk: int | None = None
    most_padding: float = stack.MOST_PADDING
    lanes: Callable[[], int] = one_lane
    graphs: Graphs = field(default_factory=lambda: Graphs(enabled=False))
    timely: set[Hashable] = field(default_factory=set, init=False)
    """Functions, by name, that were seen to depend on which round it is: none of their stacks can be replayed."""
    gradient_calls: int = field(default=0, init=False)
    """Autograd calls that Python made; a replayed graph makes none."""
    real_rows: int = field(default=0, init=False)
    padded_rows: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)
    """Spent in here so far: training and scoring clients (on a GPU, handing it their work)."""
    _paces: dict[Hashable, LanePace] = field(default_factory=dict, init=False)
    _most: dict[Hashable, int] = field(default_factory=dict, init=False)
    """Clients in a stack of a kind of work of which a larger one did not fit."""

    @property
    def padding(self) -> float:
        """Rows computed over rows asked for, so far."""
        return self.padded_rows / self.real_rows if self.real_rows else 1.0

    def keys(self, runs: Mapping[int, Run], owners: Sequence[Owner], *moment: str | int) -> Tensor:
        """A random key of each client for its local update or scoring of this name, int64 ["clients"]."""
        keys = [noise.key(runs[index].spec.seed, client, *moment) for index, client in owners]
        return self.data.upload(np.array(keys, np.int64))

    def portions(self, owners: Sequence[Owner]) -> Iterator[Sequence[Owner]]:
        """Clients in portions: looped ones `PORTION` per core, stacked ones all at a time."""
        size = PORTION * self.lanes()
        if self.execution == "vectorized":
            size = max(1, len(owners))
        return (owners[i : i + size] for i in range(0, len(owners), size))

    def check_rows(self, *drawn: Drawn) -> None:
        """Raise `ValueError` if a minibatch has fewer rows than the network takes: as torch, where no mask hides it."""
        if any(rows.shape[-1] < self.data.task.network.least for several in drawn for rows in several):
            raise ValueError(
                "Expected more than 1 value per channel when training, and a minibatch has 1 row: write tail = 'drop', "
                "or another batch size."
            )

    def outside_graphs(self, fn: Callable[[], Made]) -> Made:
        """Apply a function to the clients' results; if graphs hold the memory that it needs, free them and try again.

        Raises:
            torch.OutOfMemoryError: It does not fit without them.
        """
        try:
            return fn()
        except Exception as error:
            if not (out_of_memory(error) and self.graphs.holding):
                raise
        self.graphs.clear()  # out here, where no error holds on to what it had allocated
        return fn()

    def __call__(self, fn: ClientFunction, shared: Shared, items: Sequence[Item], key: Hashable = None) -> list[Tree]:
        """The function's results, one tree of tensors per item, in the items' order.

        `key` names everything that `fn` depends on besides its arguments, so that a stack of the same shapes may be
        replayed from a record; None: never.

        Raises:
            torch.OutOfMemoryError: Not even one client fits (on a CPU: PyTorch's RuntimeError).
        """
        started = time.perf_counter()
        try:
            with torch.no_grad():
                if self.execution == "loop":
                    return self._loop(fn, shared, items, key)
                return self._stacks(fn, shared, items, key)
        finally:
            self.seconds += time.perf_counter() - started

    def _loop(self, fn: ClientFunction, shared: Shared, items: Sequence[Item], key: Hashable) -> list[Tree]:
        def one(item: Item) -> tuple[Tree, int]:
            f = LoopObjective(self.data.task)
            taken = [tuple(self.data.batch(rows, item.index) for rows in drawn) for drawn in item.taken]
            with torch.no_grad():  # which is a thread's own
                return fn(f, shared[item.index], item.private, *taken), f.gradient_calls

        pace = self._paces.setdefault(key, LanePace())
        lanes = pace.choose(min(self.lanes(), len(items)))
        started = time.perf_counter()
        if lanes == 1:
            done = [one(item) for item in items]
        else:
            # The longest first, so that no lane is left waiting for one that began late.
            order = sorted(range(len(items)), key=lambda i: -stack.real(items[i].shapes))
            # A thread that has not asked for its number of threads may begin with as many as the machine has.
            threads = ThreadPoolExecutor(lanes, initializer=torch.get_num_threads)
            try:
                futures = {i: threads.submit(one, items[i]) for i in order}
                done = [futures[i].result() for i in range(len(items))]
            finally:
                threads.shutdown(cancel_futures=True)
        pace.note(lanes, sum(stack.real(item.shapes) for item in items), time.perf_counter() - started)
        self.gradient_calls += sum(calls for _, calls in done)
        return [result for result, _ in done]

    def _stacks(self, fn: ClientFunction, shared: Shared, items: Sequence[Item], key: Hashable) -> list[Tree]:
        results: list[Tree] = [None] * len(items)
        shapes = [item.shapes for item in items]
        waiting = list(range(len(items)))
        while waiting:
            most = self._most.get(key, self.chunk)
            for chunk in stack.chunked([shapes[i] for i in waiting], most, self.most_padding):
                chosen = [waiting[i] for i in chunk.members]
                made = self._if_it_fits(fn, shared, [items[i] for i in chosen], key)
                if made is None:  # out here, where no error holds on to what the stack had allocated
                    self._most[key] = max(1, len(chosen) // 2)
                    self.graphs.clear()
                    if self.data.device.type == "cuda":
                        torch.cuda.empty_cache()
                    if len(chosen) > 1:
                        break
                    made = self._one_stack(fn, shared, [items[chosen[0]]], None)  # beside no graph
                for i, result in zip(chosen, made, strict=True):
                    results[i] = result
                self.real_rows += chunk.real_rows
                self.padded_rows += chunk.padded_rows
            waiting = [i for i in waiting if results[i] is None]
        return results

    def _if_it_fits(self, fn: ClientFunction, shared: Shared, items: list[Item], key: Hashable) -> list[Tree] | None:
        """Results of one stack; None if memory does not suffice for its clients beside the graphs held."""
        try:
            return self._one_stack(fn, shared, items, key)
        except Exception as error:
            if not out_of_memory(error) or (len(items) == 1 and not self.graphs.holding):
                raise
        return None

    def _one_stack(self, fn: ClientFunction, shared: Shared, items: list[Item], key: Hashable) -> list[Tree]:
        f = StackedObjective(self.data.task)

        def call(*args: Tree) -> Tree:
            f.passes.clear()  # a record calls it twice, once to warm up
            return fn(f, *args)

        privates, private = stack.stack_trees([item.private for item in items])
        runs = [item.index for item in items]
        alone = len(set(runs)) == 1  # one run's state is broadcast, not copied
        commons, common = (
            pytree.tree_flatten(shared[runs[0]]) if alone else stack.stack_trees([shared[index] for index in runs])
        )
        plans, packed = [], []
        for drawn in zip(*[item.taken for item in items], strict=True):
            plan, tensors = stack.pad(
                drawn, [self.data.offsets[index] for index in runs], self.data.labels, self.data.upload
            )
            plans.append(plan)
            packed += tensors
        mapped = stack.Mapped(call, tuple(plans), private, common, broadcast=alone)
        leaves, ran = self.graphs(
            None if key is None else (key, *mapped.identity), mapped, [*privates, *commons, *packed]
        )
        self.gradient_calls += f.gradient_calls
        return [pytree.tree_unflatten([leaf[i] for leaf in leaves], ran.result) for i in range(len(items))]
