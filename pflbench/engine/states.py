"""Client states between rounds: in memory up to a bound, the rest in a temporary file.

A thousand rounds give every client a state. On CAFeMe's RMNIST these are 80 times 9 MB in each worker.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.data.root import cache_folder
from pflbench.errors import PflbenchError

Tree = Any
IN_MEMORY = 128 << 20
"""Bytes of the states of one run that stay in memory. Small networks' states all do."""
SPARE = 1 << 30
"""Bytes of the disk that are left to others: results are to be written, too."""


class _Filed(NamedTuple):
    """Place of a state in the file, and the forms of its tensors."""

    start: int
    forms: tuple[tuple[torch.Size, torch.dtype], ...]
    structure: Any

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(shape.numel() * dtype.itemsize for shape, dtype in self.forms)


class States(Mapping[int, Tree]):
    """The states of a run's clients, trees of tensors, by client; they come back bit for bit.

    Who takes part first stays in memory, `IN_MEMORY` bytes of them; a state that lies on a GPU stays there. The others
    lie in a file of the cache folder that has no name from the start, so that it is gone when this process is, however
    that ends. Each client has one place in it. Where the disk is full, or has no such folder, states stay in memory.
    """

    def __init__(self) -> None:
        self._used = 0
        self._states: dict[int, Tree | _Filed] = {}
        self._file: IO[bytes] | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, client: object) -> bool:
        return client in self._states

    def __getitem__(self, client: int) -> Tree:
        """Raises `PflbenchError` if a file cannot be read back."""
        found = self._states[client]
        if not isinstance(found, _Filed):
            return found
        leaves = [torch.empty(shape, dtype=dtype) for shape, dtype in found.forms]
        assert self._file is not None
        try:
            self._file.seek(found.start)
            _move(self._file.readinto, leaves)  # type: ignore[attr-defined]
        except OSError as error:
            raise PflbenchError(f"Cannot read clients' states back from {cache_folder()}: {error}.") from error
        return pytree.tree_unflatten(leaves, found.structure)

    def __setitem__(self, client: int, state: Tree) -> None:
        leaves, structure = pytree.tree_flatten(state)
        size, before = sum(leaf.nbytes for leaf in leaves), self._states.get(client)
        filed = before if isinstance(before, _Filed) else None
        if filed is None:
            self._used -= sum(leaf.nbytes for leaf in pytree.tree_leaves(() if before is None else before))
        if self._used + size > IN_MEMORY and all(leaf.device.type == "cpu" for leaf in leaves):
            try:
                self._states[client] = self._write(leaves, structure, filed)
                return
            except OSError:
                pass
        self._states[client] = pytree.tree_map(owned_copy, state)
        self._used += size

    def _write(self, leaves: Sequence[Tensor], structure: Any, before: _Filed | None) -> _Filed:
        """Write a state, in its old place if it fits there. Raises `OSError`."""
        if self._file is None:
            cache_folder().mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=cache_folder(), buffering=0)
            weakref.finalize(self, self._file.close)
        filed = _Filed(0, tuple((leaf.shape, leaf.dtype) for leaf in leaves), structure)
        if before is not None and filed.size <= before.size:
            start = self._file.seek(before.start)
        elif shutil.disk_usage(cache_folder()).free < filed.size + SPARE:
            raise OSError("the disk is nearly full")
        else:
            start = self._file.seek(0, 2)
        _move(self._file.write, leaves)
        return filed._replace(start=start)


def owned_copy(x: Tensor) -> Tensor:
    """A copy of a slice, which would otherwise keep the whole tensor in memory."""
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x


def _move(some: Callable[[memoryview], int | None], leaves: Sequence[Tensor]) -> None:
    """Pass all bytes of tensors to a function that reads or writes some of them. Raises `OSError`."""
    for leaf in leaves:
        rest = leaf.detach().contiguous().view(-1).view(torch.uint8).numpy().data
        while len(rest):
            done = some(rest)
            if not done:
                raise OSError("the file ends too early")
            rest = rest[done:]
