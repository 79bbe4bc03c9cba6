"""What a captured graph must not hold: reads by the host, and what is not there any more when it is replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from gpu.recorder import MADE
from pflbench.engine import host
from pflbench.engine.simulate import Simulation

if TYPE_CHECKING:
    from gpu.pretend import MadeUp
    from gpu.recorder import Operation

aten = torch.ops.aten
_READS = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
_BY_CONTENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def offences(record: Any, simulation: Simulation, gpu: MadeUp) -> list[str]:
    """What is wrong with one record of `Graphs`."""
    graph = record.graph
    if graph is None:
        return ["a stack on the GPU was recorded without a graph"]
    found = [text for one in graph.operations if (text := _offence(one))]
    lasting = {x.untyped_storage().data_ptr() for x in [*record.inputs, simulation.clients.data.task.pool]}
    lasting |= gpu.constants
    for address, reference in graph.outside.items():
        if address in graph.scalars and reference.expired():
            continue
        if reference.expired():
            found.append("the graph reads memory that was freed")
        elif address not in lasting:
            found.append("the graph reads a tensor that is neither its input nor the engine's own")
    return found


def _offence(one: Operation) -> str:
    """Why an operation cannot be captured, or what it would bake in; empty if it is sound."""
    func = one.func
    if func in _READS or not _BY_CONTENT.isdisjoint(func.tags) or _by_mask(one):
        return f"the host reads a number in a capture: {func}"
    if func in MADE:
        return f"a tensor is made on the host in a capture: {func}"
    if torch.Tag.nondeterministic_seeded in func.tags and func.name().startswith("aten::rand"):
        return f"a global generator is asked in a capture: {func}"
    return ""


def _by_mask(one: Operation) -> bool:
    """Whether it indexes by truth values, whose number the host must know."""
    if one.func not in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        return False
    masks = [getattr(index, "dtype", None) for index in one.args[1]]
    return torch.bool in masks or torch.uint8 in masks


@contextlib.contextmanager
def unnamed_reads(gpu: MadeUp, simulation: Simulation) -> Iterator[None]:
    """Reads by the host that do not go through `engine.host` are noted in `gpu.wrong`."""
    mode, read = gpu.function_mode, host.read

    def named(x: Tensor, reason: host.Reason) -> Any:
        gpu.reads.append((simulation.rounds, reason))
        before, mode.watched = mode.watched, False
        try:
            return read(x, reason)
        finally:
            mode.watched = before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "read", named)
        mode.watched = True
        try:
            yield
        finally:
            mode.watched = False
            gpu.wrong += mode.read
