"""A `torch.nn.Module` as a `Network`: its parameters come from a vector, for one client or a stack of them.

Batch normalization and dropout are replaced by layers that see a batch's real rows and its key. What else depends on
more than parameters and one row is refused, as is found by running the module on a few random images.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from pflbench.errors import UsageError
from pflbench.models.functional import BatchNorm, Dropout, Now, Pass, trunk, with_features
from pflbench.models.network import Network
from pflbench.rng import entropy
from pflbench.typing import Params
from pflbench.vector import Kind, Parameter

Function = Callable[[tuple[int, int, int], int], Any]
"""A user's: from the images' shape and the number of classes to a module, or a module and the name of its head."""

NORMALIZATIONS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CLOSE = 1e-4
"""Two passes in float64 are the same to this: batch normalization over three rows amplifies rounding."""


def is_module(found: object) -> bool:
    """True if a user's function returned a module, with or without the name of its head."""
    return isinstance(found, nn.Module) or (isinstance(found, tuple) and isinstance((*found, None)[0], nn.Module))


def seeded(function: Function, shape: tuple[int, int, int], classes: int, seed: int, k: int) -> Any:
    """Call a user's function for the k-th model of a seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(entropy(seed, ("model", "module", k)) % 2**63)
        return function(shape, classes)


@lru_cache(maxsize=4)
def wrap(function: Function, shape: tuple[int, int, int], classes: int, name: str) -> Network:
    """The network of the modules that a function returns; `name`: what the function is called. The last ones are kept.

    Raises:
        UsageError: The module is none that clients can train, looped and stacked.
        Exception: What the module's own code raises on images of this shape.
    """
    return _Wrapping(function, shape, classes, name).network()


@dataclass
class _Wrapping:
    """One function of a user's on its way to a network."""

    function: Function
    shape: tuple[int, int, int]
    classes: int
    name: str

    def network(self) -> Network:
        module, head = self.parts(seeded(self.function, self.shape, self.classes, 0, 0))
        names, own = self.names(module, head), dict(module.named_parameters())
        described = tuple(
            Parameter(named, tuple(own[n].shape), role=_kind(module, n, own[n])) for n, named in names.items()
        )
        start = _flat(described, module, names)

        def initial(seed: int, k: int) -> Params:
            made, _ = self.parts(seeded(self.function, self.shape, self.classes, seed, k))
            if {n: p.shape for n, p in made.named_parameters()} != {n: p.shape for n, p in own.items()}:
                raise self.refused("has other parameters each time that the function is called")
            return _flat(described, made, names)

        if not torch.equal(initial(0, 0), start):
            raise self.refused("has other initial values when made again from the same seed of torch's generator")
        now = Now()
        bare = copy.deepcopy(module).train()
        batchwise, drops = self.replaced(bare, now)
        self.run_alone(bare)
        network = Network(
            described,
            lambda *_: torch.empty(0),
            self.shape,
            self.classes,
            mixes=batchwise,
            drops=drops,
            initial=initial,
        )
        return self.checked(network, start, bare, now, names, head)

    def parts(self, found: Any) -> tuple[nn.Module, str]:
        """The module and its head's name."""
        module, head = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not isinstance(module, nn.Module) or not isinstance(head, str | None):
            raise UsageError(f"{self.name} must return a module, or a module and the name of its head.")
        modules = dict(module.named_modules(remove_duplicate=False))
        if head is None:
            fitting = [n for n, m in modules.items() if isinstance(m, nn.Linear) and m.out_features == self.classes]
            if not fitting:
                raise self.refused(
                    f'has no linear layer of {self.classes} outputs: return (module, "name of the head")'
                )
            head = fitting[-1]
        if head not in modules or not list(modules[head].parameters()):
            having = ", ".join(n for n, _ in module.named_children())
            raise self.refused(f"has no head {head!r} with parameters; it has {having}")
        return module, head

    def names(self, module: nn.Module, head: str) -> dict[str, str]:
        """Each parameter's name in the module → its name in the network, the base's first. Refuses what cannot be."""
        prefix = f"{head}." if head else ""
        parts: dict[str, set[str]] = {}
        for n, p in module.named_parameters(remove_duplicate=False):
            if isinstance(p, nn.UninitializedParameter):
                raise self.refused(f"has a lazy layer ({n}), whose size is not known before its first images")
            if not p.requires_grad or not p.is_floating_point():
                raise self.refused(f"has a parameter that is not trained ({n}): make it a buffer")
            if p.dtype != torch.float32:
                raise self.refused(
                    f"has a parameter of {str(p.dtype).removeprefix('torch.')} ({n}): make all float32, and choose "
                    "another type by --precision"
                )
            parts.setdefault(str(id(p)), set()).add("head" if n.startswith(prefix) else "base")
        if any(len(both) > 1 for both in parts.values()):
            raise self.refused("shares a parameter between its base and its head, so that no method can part them")
        found = {n: "head" if n.startswith(prefix) else "base" for n, _ in module.named_parameters()}
        return {n: f"{part}.{n}" for part in ("base", "head") for n, mine in found.items() if mine == part}

    def replaced(self, module: nn.Module, now: Now) -> tuple[bool, bool]:
        """Put this package's layers in place of those that see a batch; whether there is a norm, and a dropout."""
        instead: dict[int, nn.Module] = {}
        batchwise = drops = False
        for path, m in list(module.named_modules()):
            if isinstance(m, _BatchNorm) and type(m).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
                instead[id(m)], batchwise = BatchNorm(m, now), True
            elif type(m) is nn.Dropout:
                instead[id(m)], drops = Dropout(m.p, now), drops or m.p > 0
            elif isinstance(m, _DropoutNd) and m.p > 0:
                raise self.refused(f"has a {type(m).__name__} ({path}); of the dropouts nn.Dropout alone is known")
            elif isinstance(m, nn.MultiheadAttention) and m.dropout > 0:
                raise self.refused(f"has attention with dropout ({path}), which is not known: write dropout=0")
        for m in list(module.modules()):
            for n, child in m._modules.items():
                if id(child) in instead:
                    m._modules[n] = instead[id(child)]
        return batchwise, drops

    def run_alone(self, module: nn.Module) -> None:
        """Run a module as it is: what it raises is its own; refuses what a pass leaves behind."""
        probe = copy.deepcopy(module).double()
        before = {n: b.clone() for n, b in probe.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            state = torch.get_rng_state()
            for rows in (4, 1):
                logits = probe(_images(self.shape, rows))
                if not isinstance(logits, Tensor) or logits.shape != (rows, self.classes):
                    made = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
                    raise self.refused(
                        f"must return logits [rows, classes], for {rows} image{'s' * (rows > 1)} "
                        f"({rows}, {self.classes}), not {made}"
                    )
            if not torch.equal(state, torch.get_rng_state()):
                raise self.refused("draws random numbers in forward(), which no run could repeat; nn.Dropout does not")
        for n, b in probe.named_buffers():
            if n not in before or not torch.equal(b, before[n]):
                raise self.refused(f"changes its buffer {n} in forward(); a network has no state but its parameters")

    def checked(
        self, network: Network, start: Params, module: nn.Module, now: Now, names: dict[str, str], head: str
    ) -> Network:
        """The network with the module's forward pass, held against itself on a stack of clients."""
        contiguous = False
        try:
            self.held(found := replace(network, forward=Pass(module, now, names, contiguous)), start)
        except Exception:  # of what is told only if it is not because of how images lie in memory
            contiguous = True
            self.held(found := replace(network, forward=Pass(module, now, names, contiguous)), start)
        last = module.get_submodule(head)
        if not head or type(last) is not nn.Linear or last.bias is None:
            return found
        base = {n: named for n, named in names.items() if named.startswith("base.")}
        features = Pass(*trunk(module, now, head), base, contiguous)
        split = with_features(found, features, [named for n, named in names.items() if n not in base])
        w, x = _moved(start)[0], _images(self.shape, 3)
        try:
            same = _close(split.logits([w], x), found.logits([w], x))
        except Exception:  # whatever a pass without the head raises: then it is not applied last
            same = False
        return split if same else found

    def held(self, network: Network, start: Params) -> None:
        """Refuse a network that is another one in a stack, or for other rows of a batch, or without derivatives."""
        w, x = _moved(start), torch.stack([_images(self.shape, 4), _images(self.shape, 4, seed=1)])
        key = torch.tensor([3, 4]) if network.drops else None
        alone = [network.logits([w[i]], x[i, :rows], None if key is None else key[i]) for i, rows in enumerate((3, 4))]
        mask = torch.tensor([[True, True, True, False], [True] * 4])
        try:
            for real, first in ((mask, 3), (None, 4)):
                stacked = network.logits([w], x, key, mask=real, stack="grouped")
                same = _close(stacked[1], alone[1]) and (first == 4 or _close(stacked[0, :3], alone[0]))
                if not same:
                    drops = ", or drops out what has not the rows first" if network.drops else ""
                    raise self.refused(f"mixes the rows of a batch, other than by batch normalization{drops}")
        except UsageError:
            raise
        except Exception as error:
            said = (str(error).strip().splitlines() or ["no message"])[0]
            raise self.refused(f"cannot be run for a stack of clients (torch.vmap): {said}") from error
        leaves = [w[0, where].clone().requires_grad_() for where in network.layout.parts.values()]
        logits = network.logits(leaves, x[0])
        found = torch.autograd.grad(logits.sum(), leaves, allow_unused=True) if logits.requires_grad else [None]
        for part, g in zip(network.layout.parts, found, strict=False):
            if g is None:
                raise self.refused(f"has a {part} that its output does not depend on")

    def refused(self, why: str) -> UsageError:
        return UsageError(f"The module of {self.name} {why}.")


def _kind(module: nn.Module, name: str, p: Tensor) -> Kind:
    """Role of a module's parameter."""
    path, _, last = name.rpartition(".")
    if isinstance(module.get_submodule(path), NORMALIZATIONS):
        return "normalization"
    return "bias" if p.dim() < 2 or last.endswith("bias") else "weight"


def _flat(parameters: Sequence[Parameter], module: nn.Module, names: Mapping[str, str]) -> Params:
    """A module's values in the vector's order."""
    values = dict(module.named_parameters())
    with torch.no_grad():
        return torch.cat([p.flat(values[n]).float() for p, n in zip(parameters, names, strict=True)])


def _moved(start: Params) -> Tensor:
    """Two models ["clients", "params"] near an initial one, in float64, where a layer that begins as 0 is none."""
    noise = 0.05 * torch.randn(len(start), generator=torch.Generator().manual_seed(0))
    return torch.stack([start + noise, start - noise]).double()


def _images(shape: tuple[int, int, int], rows: int, seed: int = 0) -> Tensor:
    return torch.rand(rows, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _close(a: Tensor, b: Tensor) -> bool:
    scale = b.abs().max().item()
    return a.shape == b.shape and torch.allclose(a, b, rtol=CLOSE, atol=CLOSE * scale, equal_nan=True)
