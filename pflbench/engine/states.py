"""Client states between rounds: one memory map for all clients of a run.

A thousand rounds give every client a state. On CAFeMe's RMNIST these are 80 times 9 MB in each worker.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.data.root import cache_folder

Tree = Any
IN_MEMORY = 128 << 20
"""Bytes of the states of one run that need no file. Small networks' states all fit."""
SPARE = 1 << 30
"""Bytes of the disk that stay free for results."""
ALIGNED = 8
"""Each tensor begins at a multiple of so many bytes."""


class States(Mapping[int, Tree]):
    """The states of a run's clients, trees of tensors of one form, by client; they come back bit for bit.

    Above `IN_MEMORY` bytes they lie in a file of the cache folder. It has no name, so it is gone when this process is,
    and all its bytes are reserved, so a full disk is no crash. Where the disk is nearly full, or has no such folder,
    states stay in memory. States on a GPU stay there.

    Args:
        like: A tree of the form of all states.
        clients: Number of clients, at most.
    """

    def __init__(self, like: Tree, clients: int):
        leaves, self._structure = pytree.tree_flatten(like)
        self._forms = [(leaf.shape, leaf.dtype) for leaf in leaves]
        self._starts = list(accumulate((-(-leaf.nbytes // ALIGNED) * ALIGNED for leaf in leaves), initial=0))
        self._on_host = all(leaf.device.type == "cpu" for leaf in leaves)
        self._states: dict[int, Any] = {}
        """The row of each client in the map; on a GPU its state."""
        self._map, self.filed = _mapped(clients * self._starts[-1] if self._on_host else 0)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, client: int) -> Tree:
        if not self._on_host:
            return self._states[client]
        leaves = [view.clone() for view in self._views(self._states[client])]
        self._forget()
        return pytree.tree_unflatten(leaves, self._structure)

    def __setitem__(self, client: int, state: Tree) -> None:
        if not self._on_host:
            self._states[client] = pytree.tree_map(owned_copy, state)
            return
        row = self._states.setdefault(client, len(self._states))
        for view, leaf in zip(self._views(row), pytree.tree_leaves(state), strict=True):
            view.copy_(leaf)
        self._forget()

    def _views(self, row: int) -> Iterator[Tensor]:
        for (shape, dtype), start in zip(self._forms, self._starts, strict=False):
            first = row * self._starts[-1] + start
            yield self._bytes[first : first + shape.numel() * dtype.itemsize].view(dtype).view(shape)

    def _forget(self) -> None:
        """Let the system write the file's pages and use their memory; they are read again where needed."""
        if self.filed and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _mapped(size: int) -> tuple[mmap.mmap, bool]:
    """A memory map of so many bytes, and whether a file without a name has them."""
    folder = cache_folder()
    if size > IN_MEMORY:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(folder).free >= size + SPARE:
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.truncate(size)
                    if hasattr(os, "posix_fallocate"):  # else a write to a full disk ends the process
                        os.posix_fallocate(file.fileno(), 0, size)
                    return mmap.mmap(file.fileno(), size), True
    return mmap.mmap(-1, max(size, ALIGNED)), False


def owned_copy(x: Tensor) -> Tensor:
    """A copy of a slice, which would otherwise keep the whole tensor in memory."""
    return x.clone() if x.untyped_storage().nbytes() > x.nbytes else x
