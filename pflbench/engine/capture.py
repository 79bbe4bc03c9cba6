"""Repeated work as a CUDA graph: hundreds of small kernels start with one call instead of one by one.

A function of tensors is run as it is the first times, and captured when the same shapes keep coming: then its inputs
are copied to fixed places, the graph is replayed, and its outputs are copied out. Without CUDA the function is run on
the fixed places, which is how the tests reach all of this but the capture itself.
"""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[[list[Tensor]], list[Tensor]])
GRAPHS = 8
"""Graphs kept at a time; each holds the memory of its activations."""
MEETINGS = 3
"""A stack of the same shapes is recorded when it comes for this time: a record costs a few rounds."""


class Uncapturable(UserWarning):
    """A method's client function cannot be captured in a CUDA graph; it runs, launching its kernels one by one."""


@dataclass
class _Recorded:
    inputs: list[Tensor]
    function: Any
    graph: torch.cuda.CUDAGraph | None = None
    outputs: list[Tensor] = field(default_factory=list)

    def __call__(self, tensors: list[Tensor]) -> list[Tensor]:
        for static, new in zip(self.inputs, tensors, strict=True):
            static.copy_(new)
        if self.graph is None:
            self.outputs = self.function(self.inputs)
        else:
            self.graph.replay()
        return [output.clone() for output in self.outputs]


@dataclass
class Graphs:
    """Functions seen so far, by key and by their inputs' shapes. `replays` counts calls that met a recorded one."""

    enabled: bool = True
    replays: int = 0
    captures: int = 0
    _met: Counter[Hashable] = field(default_factory=Counter)
    _recorded: OrderedDict[Hashable, _Recorded] = field(default_factory=OrderedDict)
    _too_large: set[Hashable] = field(default_factory=set)
    """Functions that were not recorded for want of memory; they run plainly, which needs less than a graph."""

    def __call__(self, key: Hashable, function: F, tensors: list[Tensor]) -> tuple[list[Tensor], F]:
        """The function's outputs, and the function that made them: this one, or one of the same key recorded before.

        `key` names everything but the tensors that the function depends on; None: just run it. Outputs are the
        caller's own: the next call does not change them.
        """
        if not self.enabled or key is None or not tensors:
            return function(tensors), function
        full = (key, tuple((tuple(t.shape), t.dtype, t.device) for t in tensors))
        if full not in self._recorded:
            self._met[full] += 1
            if self._met[full] < MEETINGS or full in self._too_large or self._wasted():
                return function(tensors), function
            new = self._record(function, tensors)
            if new is None:
                self._too_large.add(full)
                return function(tensors), function
            self.captures += 1
            self._recorded[full] = new
            while len(self._recorded) > GRAPHS:
                gone, _ = self._recorded.popitem(last=False)
                del self._met[gone]
        self._recorded.move_to_end(full)
        self.replays += 1
        recorded = self._recorded[full]
        return recorded(tensors), recorded.function

    @property
    def holding(self) -> bool:
        """True if there are graphs whose memory `clear` would free."""
        return bool(self._recorded)

    def _wasted(self) -> bool:
        """True if too many shapes take turns for records to pay: unequal clients, trained for epochs."""
        return self.captures >= 2 * GRAPHS and self.replays < 4 * self.captures

    def clear(self) -> None:
        """Let go of every graph and of its memory."""
        self._recorded.clear()
        self._met.clear()
        self._too_large.clear()

    def _record(self, function: F, tensors: list[Tensor]) -> _Recorded | None:
        """A record, or None where there can be none; whether the function itself fits is for its caller to see."""
        recorded = _Recorded([t.clone() for t in tensors], function)
        if tensors[0].device.type != "cuda":
            return recorded
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        try:
            try:
                with torch.cuda.stream(stream):
                    function(recorded.inputs)  # libraries set themselves up outside the graph
            finally:  # whatever came of it, the stream may still read what is about to be freed
                torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded.outputs = function(recorded.inputs)
        except torch.OutOfMemoryError:
            return None
        except RuntimeError as error:
            if isinstance(error.__context__, torch.OutOfMemoryError):  # which ending the capture has covered up
                return None
            self.enabled = False
            torch.cuda.synchronize()
            first = str(error).strip().splitlines()[0]
            warnings.warn(f"The round cannot be captured in a CUDA graph, so it runs slower: {first}", Uncapturable, 4)
            return None
        recorded.graph = graph
        return recorded
