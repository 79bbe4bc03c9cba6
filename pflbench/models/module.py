"""A user's `torch.nn.Module` as a `Network`: `torch.func.functional_call` on parameters out of a vector.

Batch normalization and dropout are replaced by layers that see a batch's real rows and its key. Modules with another
state, or that mix the rows of a batch otherwise, are refused: two clients in a stack must be the two clients alone.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from pflbench import noise
from pflbench.errors import UsageError, one_line
from pflbench.models.network import Gate, Network
from pflbench.models.ops import Ops, Stacked
from pflbench.rng import entropy
from pflbench.typing import Params
from pflbench.vector import Kind, Parameter

Function = Callable[[tuple[int, int, int], int], Any]
"""A user's: from the images' shape and the number of classes to a module, or a module and the name of its head."""

NORMALIZATIONS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CLOSE = 1e-4
"""Two passes in float64 are the same to this: batch normalization over three rows amplifies rounding."""


@dataclass
class Now:
    """The running forward pass of one client, for the layers of one module.

    `mask` ["batch"]: real rows, None for all; `key`: what dropout draws from, None in tests; `training`: whether batch
    normalization takes the batch's statistics; `statistics`: running ones that the pass leaves, by name, if wanted;
    `dropouts`: number of dropouts so far.
    """

    mask: Tensor | None = None
    key: Tensor | None = None
    training: bool = False
    statistics: dict[str, Tensor] | None = None
    dropouts: int = 0


class BatchNorm(nn.Module):
    """A module's batch normalization over a batch's real rows, whose running statistics are entries of the model.

    `name`: of the module's layer, in front of its statistics'.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, like: _BatchNorm, now: Now, name: str):
        super().__init__()
        self.weight, self.bias, self.eps, self.now, self.name = like.weight, like.bias, like.eps, now, name
        self.momentum = like.momentum
        for one in STATISTICS:
            self.register_buffer(one, _statistic(like, one))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x ["batch", "channels", …].

        Raises:
            ValueError: Its rows are not the batch's, or a channel has one value alone.
        """
        mask, mean, variance = self.now.mask, self.running_mean, self.running_var
        if mean is not None and not self.now.training:
            return F.batch_norm(x, mean, variance, self.weight, self.bias, training=False, eps=self.eps)
        if mask is None and self.now.statistics is None:
            return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)
        if mask is None:
            mask = torch.ones(len(x), dtype=torch.bool, device=x.device)
        if len(mask) != len(x):
            raise ValueError(f"batch normalization of {len(x)} rows, where the batch has {len(mask)}")
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        tail = [1] * (x.dim() - 2)
        over, dims, real = (1, -1, *tail), (0, *range(2, x.dim())), mask.to(y.dtype).view(-1, 1, *tail)
        n = (real.sum() * x.shape[2:].numel()).clamp(min=1)
        average = (y * real).sum(dims, keepdim=True) / n
        center = y - average
        variance = (center.square() * real).sum(dims, keepdim=True) / n
        if self.now.statistics is not None and mean is not None:
            self._note(self.now.statistics, average.flatten(), (variance * n / (n - 1)).flatten())
        y = center * (variance + self.eps).rsqrt()
        y = y if self.weight is None else y * self.weight.view(over)
        return (y if self.bias is None else y + self.bias.view(over)).to(x.dtype)

    def _note(self, statistics: dict[str, Tensor], mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics toward a batch's; no momentum: they are means over batches."""
        # A layer that is called twice goes on from its first call.
        now = {one: statistics.get(f"{self.name}.{one}", getattr(self, one)) for one in STATISTICS}
        count = now["num_batches_tracked"]
        weight = self.momentum or 0.0 if count is None else 1 / (count + 1)
        for one, new in (("running_mean", mean), ("running_var", variance)):
            statistics[f"{self.name}.{one}"] = now[one] + weight * (new - now[one])
        if count is not None:
            statistics[f"{self.name}.num_batches_tracked"] = count + 1


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _statistic(layer: _BatchNorm, name: str) -> Tensor | None:
    """A running statistic of a layer; None: it has none, or a count that nothing depends on."""
    if name == "num_batches_tracked" and layer.momentum is not None:
        return None
    value: Tensor | None = getattr(layer, name)
    return None if value is None else value.float()


class Dropout(nn.Module):
    """Each entry 0 with this probability, the others divided by the rest of it; as they are in tests.

    What is dropped depends on the batch's key, the layer's number in the pass, the row's number in the batch (which
    must be the first axis), and the entry alone.
    """

    def __init__(self, rate: float, now: Now):
        super().__init__()
        self.rate, self.now = rate, now

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of x ["batch", …]."""
        number, self.now.dropouts = self.now.dropouts, self.now.dropouts + 1
        if self.now.key is None or self.rate == 0:
            return x
        wide = torch.promote_types(x.dtype, torch.float32)
        drawn = noise.uniform(self.now.key, ("dropout", number), x.numel(), wide).view(x.shape)
        return x * (drawn > self.rate) / max(1 - self.rate, 1e-9)


class _Copies(threading.local):
    """A copy of a module for each thread: `functional_call` puts a client's parameters into it."""

    def __init__(self, module: nn.Module, now: Now):
        self.module, self.now = copy.deepcopy((module, now))


class Pass:
    """A forward pass of a network: a module on the parameters of one client, or of a stack by `torch.vmap`.

    `parameters`: of each of the module's parameters and statistics the name in the network, and the shape.
    """

    def __init__(self, module: nn.Module, now: Now, parameters: Mapping[str, tuple[str, torch.Size]]):
        self.copies, self.parameters = _Copies(module, now), parameters
        # Other forms of attention know neither stacks nor second derivatives. All threads share these switches.
        for switch in ("enable_flash_sdp", "enable_mem_efficient_sdp", "enable_cudnn_sdp"):
            getattr(torch.backends.cuda, switch)(False)

    def __call__(self, ops: Ops, p: dict[str, Tensor], x: Tensor, _: Gate) -> Tensor:
        """See `Forward`."""
        return self._mapped(ops, p, x, None)[0]

    def statistics(self, ops: Ops, p: dict[str, Tensor], x: Tensor, _: Gate) -> dict[str, Tensor]:
        """Running statistics that the pass leaves, by their names in the network."""
        return {self.parameters[n][0]: v for n, v in self._mapped(ops, p, x, {})[1].items()}

    def _mapped(
        self, ops: Ops, p: dict[str, Tensor], x: Tensor, wanted: dict[str, Tensor] | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Output, and statistics if they are wanted (an empty dict), of one client or of a stack."""

        def one(
            values: dict[str, Tensor], x: Tensor, mask: Tensor | None, key: Tensor | None
        ) -> tuple[Tensor, dict[str, Tensor]]:
            now, statistics = self.copies.now, None if wanted is None else dict(wanted)
            now.mask, now.key, now.training, now.statistics, now.dropouts = mask, key, ops.training, statistics, 0
            shaped = {n: v.view(self.parameters[n][1]) for n, v in values.items()}
            try:
                return functional_call(self.copies.module, shaped, (x,)), statistics or {}
            finally:
                now.mask = now.key = now.statistics = None

        values = {n: p[named] for n, (named, _) in self.parameters.items()}
        if not isinstance(ops, Stacked):
            return one(values, x, None, ops.key)
        dims = (0, 0, None if ops.mask is None else 0, None if ops.key is None else 0)
        stacked: tuple[Tensor, dict[str, Tensor]] = torch.vmap(one, in_dims=dims)(values, x, ops.mask, ops.key)
        return stacked


def is_module(made: object) -> bool:
    """True if a user's function returned a module, with or without the name of its head."""
    return isinstance(made, nn.Module) or (isinstance(made, tuple) and isinstance((*made, None)[0], nn.Module))


def seeded(function: Function, shape: tuple[int, int, int], classes: int, seed: int, k: int) -> Any:
    """Call a user's function for the k-th model of a seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(entropy(seed, ("model", "module", k)) % 2**63)
        return function(shape, classes)


@lru_cache(maxsize=4)
def wrap(function: Function, shape: tuple[int, int, int], classes: int, name: str) -> Network:
    """The network of the modules that a function returns; `name`: what the function is called.

    Raises:
        UsageError: The module is none that clients can train, looped and stacked.
        Exception: What the module's code raises on images of this shape.
    """

    def initial(seed: int, k: int) -> Params:
        module, _ = _parts(seeded(function, shape, classes, seed, k), classes, name)
        values = _entries(module)
        return torch.cat([values[n].detach().flatten() for n in names])

    module, head = _parts(seeded(function, shape, classes, 0, 0), classes, name)
    names, own = _names(module, head, name), _entries(module)
    if not torch.equal(initial(0, 0), start := torch.cat([own[n].detach().flatten() for n in names])):
        raise _refused(name, "has other initial values when made again from the same seed of torch's generator")
    now = Now()
    bare, norms, drops = _replaced(module, now, name)
    tracks = any(norm.running_mean is not None for norm in norms)
    shapes = {n: (named, own[n].shape) for n, named in names.items()}
    forward = Pass(bare, now, shapes)
    network = Network(
        tuple(
            # A convolution's weight lies in the vector as in the module.
            Parameter(named, p.shape if (p := own[n]).dim() <= 2 else (p.numel(),), role=_kind(module, n, p))
            for n, named in names.items()
        ),
        forward,
        shape,
        classes,
        mixes=bool(norms),
        mixes_scored=any(norm.running_mean is None for norm in norms),
        statistics=forward.statistics if tracks else None,
        drops=drops,
        initial=initial,
    )
    w, x = _checked(network, start, name)
    network = replace(network, least=_least(network, w, x))
    last = module.get_submodule(head)
    if not head or type(last) is not nn.Linear or last.bias is None:
        return network
    split = _split(network, forward, shapes, head, last.in_features)
    try:
        same = _close(split.logits([w], x), network.logits([w], x))
    except Exception:  # whatever a pass without the head raises: then it is not applied last
        same = False
    return split if same else network


def _least(network: Network, w: Params, x: Tensor) -> int:
    """The fewest rows of a minibatch: two where torch refuses to normalize one."""
    try:
        network.logits([w], x[:1], training=True)
    except ValueError:
        return 2
    return 1


def _split(
    network: Network, whole: Pass, shapes: Mapping[str, tuple[str, torch.Size]], head: str, width: int
) -> Network:
    """The network as its features and a linear head, which is the module `head`; `shapes`: as `Pass` has them."""
    trunk, now = copy.deepcopy((whole.copies.module, whole.copies.now))
    parent, _, attribute = head.rpartition(".")
    trunk.get_submodule(parent)._modules[attribute] = nn.Identity()
    features = Pass(trunk, now, {n: one for n, one in shapes.items() if one[0].startswith("base.")})
    weight, bias = (named for named, _ in shapes.values() if named.startswith("head."))

    def forward(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        return ops.linear(features(ops, p, x, gate), p[weight], p[bias])

    return replace(network, forward=forward, features=features, width=width)


def _entries(module: nn.Module) -> dict[str, Tensor]:
    """Values of a model's vector by their names in the module: parameters, and running statistics."""
    values: dict[str, Tensor] = {}
    for path, layer in module.named_modules():
        several = dict(layer.named_parameters(recurse=False))
        if _is_batch_norm(layer):
            several |= {one: v for one in STATISTICS if (v := _statistic(layer, one)) is not None}
        values |= {f"{path}.{n}".lstrip("."): value for n, value in several.items()}
    return values


def _is_batch_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and type(layer).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward)


def _refused(name: str, why: str) -> UsageError:
    return UsageError(f"The module of {name} {why}.")


def _parts(made: Any, classes: int, name: str) -> tuple[nn.Module, str]:
    """The module that a user's function returned, and its head's name."""
    module, head = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module) or not isinstance(head, str | None):
        raise UsageError(f"{name} must return a module, or a module and the name of its head.")
    modules = dict(module.named_modules(remove_duplicate=False))
    if head is None:
        fitting = [n for n, m in modules.items() if isinstance(m, nn.Linear) and m.out_features == classes]
        if not fitting:
            raise _refused(name, f'has no linear layer of {classes} outputs: return (module, "name of the head")')
        head = fitting[-1]
    if head not in modules or not list(modules[head].parameters()):
        children = ", ".join(n for n, _ in module.named_children())
        raise _refused(name, f"has no head {head!r} with parameters; it has {children}")
    return module, head


def _names(module: nn.Module, head: str, name: str) -> dict[str, str]:
    """Each parameter's name in the module → its name in the network, the base's first. Refuses what cannot be."""

    def part(n: str) -> str:
        return "head" if not head or n.startswith(f"{head}.") else "base"

    parts: dict[Tensor, set[str]] = {}
    for n, p in module.named_parameters(remove_duplicate=False):
        if p.dtype != torch.float32 or not p.requires_grad:
            raise _refused(name, f"has a parameter that is not trained or not float32 ({n}); --precision sets the type")
        parts.setdefault(p, set()).add(part(n))
    if any(len(both) > 1 for both in parts.values()):
        raise _refused(name, "shares a parameter between its base and its head, so that no method can part them")
    unique = dict(module.named_parameters())
    entries = [n for n, p in _entries(module).items() if n in unique or not isinstance(p, nn.Parameter)]
    return {n: f"{one}.{n}" for one in ("base", "head") for n in entries if part(n) == one}


def _replaced(module: nn.Module, now: Now, name: str) -> tuple[nn.Module, list[BatchNorm], bool]:
    """A copy for training with this package's layers; its batch normalizations, and whether it drops out.

    Raises:
        UsageError: It has a buffer that is not a batch normalization's.
    """
    module = copy.deepcopy(module).train()
    instead: dict[nn.Module, nn.Module] = {}
    for path, m in module.named_modules():
        if _is_batch_norm(m):
            if not m.training:
                raise _refused(name, f"keeps a batch normalization ({path}) out of training")
            instead[m] = BatchNorm(m, now, path)
        elif type(m) is nn.Dropout:
            instead[m] = Dropout(m.p, now)
    for m in list(module.modules()):
        m._modules.update({n: instead[child] for n, child in m._modules.items() if child in instead})
    norms = [layer for layer in instead.values() if isinstance(layer, BatchNorm)]
    known = {f"{norm.name}.{one}" for norm in norms for one in STATISTICS}
    for n, _ in module.named_buffers():
        if n not in known:
            raise _refused(name, f"has a buffer ({n}): only those of torch's own batch normalization can be")
    return module, norms, any(isinstance(layer, Dropout) and layer.rate > 0 for layer in instead.values())


def _checked(network: Network, start: Params, name: str) -> tuple[Params, Tensor]:
    """A model ["params"] near the initial one and images, both float64, of a network that clients can train.

    Raises:
        UsageError: It is another one in a stack, or for other rows of a batch, or has no derivatives.
    """
    # Near the initial model, as a layer that begins as 0 is none.
    step = 0.05 * torch.randn(len(start), generator=torch.Generator().manual_seed(0))
    w = torch.stack([start + step, start - step]).double()
    x = torch.rand(2, 4, *network.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    key = torch.tensor([3, 4]) if network.drops else None
    alone = [
        network.logits([w[i]], x[i, :rows], None if key is None else key[i], training=True)
        for i, rows in enumerate((3, 4))
    ]
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    try:
        stacked = network.logits([w], x, key, mask=mask, stack="grouped", training=True)
    except Exception as error:
        raise _refused(name, f"cannot be run for a stack of clients (torch.vmap): {one_line(error)}") from error
    if not (_close(stacked[1], alone[1]) and _close(stacked[0, :3], alone[0])):
        raise _refused(name, "mixes the rows of a batch, other than by batch normalization")
    leaves = [w[0, where].clone().requires_grad_() for where in network.layout.parts.values()]
    logits = network.logits(leaves, x[0], training=True)
    found = torch.autograd.grad(logits.sum(), leaves, allow_unused=True) if logits.requires_grad else [None]
    for part, g in zip(network.layout.parts, found, strict=False):
        if g is None:
            raise _refused(name, f"has a {part} that its output does not depend on")
    return w[0], x[0]


def _kind(module: nn.Module, name: str, p: Tensor) -> Kind:
    """Role of a module's parameter or running statistic."""
    path, _, last = name.rpartition(".")
    if not isinstance(p, nn.Parameter):
        return "statistic"
    if isinstance(module.get_submodule(path), NORMALIZATIONS):
        return "normalization"
    return "bias" if p.dim() < 2 or last.endswith("bias") else "weight"


def _close(a: Tensor, b: Tensor) -> bool:
    scale = b.abs().max().item()
    return a.shape == b.shape and torch.allclose(a, b, rtol=CLOSE, atol=CLOSE * scale, equal_nan=True)
