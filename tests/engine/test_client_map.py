"""Looped and stacked clients, and the derivatives they get, against plain autograd on a torch module."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from pflbench.engine.client_map import ClientMap, Data, Item
from pflbench.engine.objective import Task
from pflbench.engine.simulate import Setup, _client_map
from pflbench.methods.base import Batch, steps
from pflbench.models.convnet import cnn2
from pflbench.models.network import Network
from pflbench.testing import SHAPE, assert_same, nudged, tiny_federation, tiny_network, tiny_spec

EXECUTIONS = ("loop", "vectorized")
ModuleOf = Callable[[Tensor], nn.Module]


def data(
    network: Network, rows: int = 40, shape: tuple[int, int, int] = SHAPE, offsets: tuple[int, ...] = (0,)
) -> Data:
    rng = np.random.default_rng(0)
    pool = torch.from_numpy(rng.integers(256, size=(rows, *shape), dtype=np.uint8))
    return Data(Task(network, pool), rng.integers(network.classes, size=rows), offsets)


def cut(*sizes: int, start: int = 0) -> list[np.ndarray]:
    ends = np.cumsum(sizes) + start
    return [np.arange(end - n, end) for end, n in zip(ends, sizes, strict=True)]


RAGGED = [cut(5, 5, 2), cut(4, start=12), cut(5, 1, start=16), cut(3, 3, 3, 3, start=22)]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("part", [None, "base", "head"])
def test_derivatives_are_autograds(execution: Any, part: str | None, tiny_module: ModuleOf) -> None:
    net = tiny_network()
    d, w = data(net), net.init(0).double()
    v = torch.linspace(-1, 1, len(w), dtype=torch.float64)

    def fn(f: Any, shared: Tensor, own: Tensor, taken: Any) -> Any:
        (b,) = taken
        return f(own, b), f.grad(own, b, wrt=part), f.hvp(own, b, v), f.logits(own, b)

    owns = [w, 1.1 * w, w - 0.01]
    batches = [np.arange(5), np.arange(5, 8), np.arange(8, 12)]
    results = ClientMap(d, execution)(fn, [w], [Item(0, o, ([b],)) for o, b in zip(owns, batches, strict=True)])
    for own, rows, (loss, grad, hvp, logits) in zip(owns, batches, results, strict=True):
        module = tiny_module(own)
        names, sizes = zip(*[(n, p.shape) for n, p in module.named_parameters()], strict=True)
        x, y = d.task.pool[rows].double() / 255, torch.from_numpy(d.labels[rows])

        def of_vector(u: Tensor, module: Any = module, names: Any = names, sizes: Any = sizes, x: Any = x) -> Tensor:
            chunks = u.split([s.numel() for s in sizes])
            return functional_call(module, {n: c.view(s) for n, c, s in zip(names, chunks, sizes, strict=True)}, x)

        leaf = own.clone().requires_grad_()
        out = F.cross_entropy(of_vector(leaf), y)
        (g,) = torch.autograd.grad(out, leaf, create_graph=True)
        close(loss, out.detach())
        close(grad, g[net.layout.part(part)].detach() if part else g.detach(), 1e-9)
        close(hvp, torch.autograd.grad(g, leaf, v)[0], 1e-8)
        close(logits[: len(rows)], of_vector(own).detach())


def train(f: Any, server: Tensor, own: Tensor, *taken: Any) -> Any:
    w = server
    for batches in taken:
        w = steps(lambda w, b: w - 0.1 * f.grad(w, b), w, batches)
    return w, own + 1


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 10])
def test_any_chunk_keeps_order_and_numbers(chunk: int | None) -> None:
    net = tiny_network()
    d, w = data(net), net.init(0).double()
    items = [Item(0, torch.tensor(float(i)), (r,)) for i, r in enumerate(RAGGED)]
    looped, stacked = (ClientMap(d, e, chunk, math.inf)(train, [w], items) for e in EXECUTIONS)
    for i, ((a, own), (b, same)) in enumerate(zip(looped, stacked, strict=True)):
        close(a, b)
        assert own == same == i + 1


def test_batches_have_masks_only_where_padded() -> None:
    seen: list[list[Batch]] = []

    def look(f: Any, shared: Any, own: Any, *taken: Any) -> Tensor:
        seen.append([b for batches in taken for b in batches])
        return taken[0][0].rows.sum()

    d = data(tiny_network())

    def kinds(*drawn: list[np.ndarray]) -> tuple[bool, bool]:
        seen.clear()
        ClientMap(d, "vectorized", most_padding=math.inf)(look, [()], [Item(0, (), (x,)) for x in drawn])
        return seen[0][0].mask is not None, seen[0][0].real is not None

    assert kinds(cut(4, 4), cut(4, 4)) == (False, False)
    assert kinds(cut(4, 4), cut(4, 3)) == (True, False)
    assert kinds(cut(4, 4), cut(4)) == (True, True)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_take_may_be_empty(execution: Any) -> None:
    net = tiny_network()
    d, w = data(net), net.init(0).double()
    items = [Item(0, torch.zeros(()), ([], r)) for r in RAGGED]
    without = [Item(0, torch.zeros(()), (r,)) for r in RAGGED]
    for (a, _), (b, _) in zip(*(ClientMap(d, execution)(train, [w], i) for i in (items, without)), strict=True):
        close(a, b)
    nothing = ClientMap(d, execution)(train, [w], [Item(0, torch.zeros(()), ([],))] * 2)
    assert all(torch.equal(out, w) for out, _ in nothing)
    assert ClientMap(d, execution)(train, [w], []) == []


def test_gradient_calls_are_counted() -> None:
    net = tiny_network()
    looped, stacked = (ClientMap(data(net), e, most_padding=math.inf) for e in EXECUTIONS)
    for mapped in (looped, stacked):
        for _ in range(2):
            mapped(train, [net.init(0).double()], [Item(0, torch.zeros(()), (r,)) for r in RAGGED])
    assert looped.gradient_calls == 2 * sum(len(r) for r in RAGGED)
    assert stacked.gradient_calls == 2 * max(len(r) for r in RAGGED)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_seeds_with_pools_of_different_sizes_meet_their_own_rows(execution: Any) -> None:
    net = tiny_network()
    federations = [tiny_federation(0), tiny_federation(1, sizes=(9, 11, 8)), tiny_federation(2, sizes=(30, 4, 3))]
    together = _client_map(net, federations, tiny_spec(), Setup()).data
    assert together.offsets == (0, len(federations[0].x), len(federations[0].x) + 28)
    servers = [net.init(seed).double() for seed in range(3)]
    last = [len(f.x) for f in federations]  # the very last rows of every pool, in unequal numbers
    taken = [
        ([np.arange(last[0] - 5, last[0]), np.arange(3)],),
        ([np.arange(last[1] - 4, last[1])],),
        ([np.arange(last[2] - 2, last[2]), np.arange(5), np.arange(1)],),
    ]
    items = [Item(seed, torch.zeros(()), t) for seed, t in enumerate(taken)]
    for seed, (w, _) in enumerate(ClientMap(together, execution)(train, servers, items)):
        alone = _client_map(net, federations[seed : seed + 1], tiny_spec(), Setup()).data
        own = Item(0, torch.zeros(()), taken[seed])
        close(w, ClientMap(alone, "loop")(train, [servers[seed]], [own])[0][0])


def test_seeds_that_share_a_pool_share_its_rows() -> None:
    one = tiny_federation(0)
    shared = _client_map(tiny_network(), [one, tiny_federation(1), one], tiny_spec(), Setup()).data
    assert shared.offsets == (0, len(one.x), 0) and len(shared.task.pool) == len(shared.labels) == 2 * len(one.x)


def test_cnn2_in_float32_is_the_same_looped_and_stacked() -> None:
    net = cnn2((1, 28, 28), 10)
    d, w = data(net, 24, (1, 28, 28)), net.init(0)
    taken = [cut(6, 6), cut(4, start=12), cut(5, 2, start=16)]

    def fn(f: Any, server: Tensor, own: Any, batches: Any) -> Tensor:
        w = steps(lambda w, b: w - 0.01 * f.grad(w, b), server, batches)
        return f.logits(w, batches[0])

    def logits(execution: Any, w: Tensor) -> list[Tensor]:
        found = ClientMap(d, execution)(fn, [w], [Item(0, (), (t,)) for t in taken])
        return [x[: len(t[0])] for x, t in zip(found, taken, strict=True)]

    looped = logits("loop", w)
    assert {x.dtype for x in looped} == {torch.float32}
    # A batch of two rows is normalized: the third client's logits move a hundred times as far as the others'.
    assert_same(logits("vectorized", w), looped, *(logits("loop", nudged(w, i)) for i in range(2)))


def test_images_are_the_pools_bytes_over_255() -> None:
    d = data(tiny_network())
    rows = torch.tensor([[3, 1], [0, 3]])
    assert torch.equal(d.task.images(Batch(rows, rows), torch.float64), d.task.pool[rows].double() / 255)
    assert d.task.images(Batch(rows, rows), torch.float32).dtype == torch.float32
