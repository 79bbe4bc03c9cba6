"""What a good researcher writes: federated averaging in plain PyTorch, nothing of pflbench.

The data lies on the device as float tensors before the clock starts, a minibatch is a view, nothing is copied that need
not be, parameters are updated by one `foreach` call. `--patched` adds the two lines that make PyTorch on a CPU faster
for everybody (channels last, and a `malloc` that keeps its memory), so that nobody mistakes two lines for an engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from protocol import arguments, prepare, serve
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from workloads import CLASSES, LR, POPULATION, Workload, workload


def norm2d(n: int) -> nn.Module:
    """Batch normalization by the batch's own statistics."""
    return nn.BatchNorm2d(n, track_running_stats=False)


def norm1d(n: int) -> nn.Module:
    """The same for features."""
    return nn.BatchNorm1d(n, track_running_stats=False)


def conv(inputs: int, outputs: int, kernel: int, padding: int) -> list[nn.Module]:
    """One block of CAFeMe's networks."""
    return [nn.Conv2d(inputs, outputs, kernel, padding=padding), norm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


def dense(inputs: int, outputs: int) -> list[nn.Module]:
    """One dense block of CAFeMe's networks."""
    return [nn.Linear(inputs, outputs), norm1d(outputs), nn.ReLU()]


def module(network: str) -> nn.Sequential:
    """The network as a module."""
    layers: dict[str, Sequence[nn.Module]] = {
        "cnn2": [*conv(1, 32, 5, 0), *conv(32, 64, 5, 0), nn.Flatten(), *dense(1024, 512), nn.Linear(512, CLASSES)],
        "cnn3": [
            *conv(3, 64, 3, 1),
            *conv(64, 64, 3, 1),
            *conv(64, 64, 3, 1),
            nn.Flatten(),
            *dense(1024, 576),
            *dense(576, 576),
            nn.Linear(576, CLASSES),
        ],
        "lenet": [
            *(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            *(nn.Linear(800, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU()),
            nn.Linear(84, CLASSES),
        ],
        "mlp": [nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, CLASSES)],
    }
    return nn.Sequential(*layers[network])


Client = list[tuple[Tensor, Tensor]]
"""A client's minibatches: images and labels."""


def made_up(work: Workload, device: str, seed: int, *, channels_last: bool = False) -> list[Client]:
    """Random images in [0, 1] and labels for every client, cut into minibatches."""
    g = torch.Generator().manual_seed(seed)
    clients = []
    for _ in range(POPULATION):
        x = torch.rand(work.examples, *work.shape, generator=g).to(device)
        y = torch.randint(CLASSES, (work.examples,), generator=g).to(device)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        clients.append(list(zip(x.split(work.batch), y.split(work.batch), strict=True)))
    return clients


class FedAvg:
    """Federated averaging of one module, in place."""

    def __init__(self, model: nn.Module, clients: list[Client], autocast: Any = None):
        self.model, self.clients = model, clients
        self.autocast = autocast or contextlib.nullcontext()
        self.local = list(model.parameters())
        self.server = [p.detach().clone() for p in self.local]
        self.total = [torch.empty_like(p) for p in self.server]

    def round(self, cohort: Sequence[int]) -> None:
        """Every client of the cohort starts from the server's parameters; their mean is the server's next."""
        with torch.no_grad():
            torch._foreach_zero_(self.total)
        for client in cohort:
            with torch.no_grad():
                torch._foreach_copy_(self.local, self.server)
            for x, y in self.clients[client]:
                with self.autocast:
                    loss = F.cross_entropy(self.model(x), y)
                grads = torch.autograd.grad(loss, self.local)
                with torch.no_grad():
                    torch._foreach_add_(self.local, grads, alpha=-LR)
            with torch.no_grad():
                torch._foreach_add_(self.total, self.local, alpha=1 / len(cohort))
        self.server, self.total = self.total, self.server


def operations(network: str, work: Workload) -> int:
    """Floating-point operations of one step's gradient: two for each multiplication with its addition.

    Counted by PyTorch from the layers' shapes, on tensors without content: a linear layer of `m` inputs and `n` outputs
    takes m·n multiplications an image, a convolution that at each place of its output, and either as many again for
    the gradient with respect to its weights and (but for the first layer) with respect to its inputs. Other layers,
    which multiply no matrices, do not count.
    """
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = module(network)
        loss = F.cross_entropy(model(torch.empty(work.batch, *work.shape)), torch.empty(work.batch, dtype=torch.int64))
        torch.autograd.grad(loss, list(model.parameters()))
    return counter.get_total_flops()


def keep_memory() -> None:
    """Glibc's `malloc` neither maps nor trims below a gigabyte: fewer page faults per step."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (2 << 30) - 1)  # M_TRIM_THRESHOLD


def main() -> None:
    """Build, then serve."""
    options = arguments(__doc__)
    prepare(options)
    torch.backends.cudnn.benchmark = True
    work = workload(options.network, options.scale)
    model = module(options.network).to(options.device)
    if options.patched:
        keep_memory()
        model = model.to(memory_format=torch.channels_last)
    autocast = None
    if options.precision == "bf16":
        autocast = torch.autocast(torch.device(options.device).type, torch.bfloat16)
    fedavg = FedAvg(model, made_up(work, options.device, options.seed, channels_last=options.patched), autocast)
    draw = random.Random(options.seed)

    def rounds(n: int) -> None:
        for _ in range(n):
            fedavg.round(draw.sample(range(POPULATION), work.clients))

    size = sum(p.numel() for p in model.parameters())
    serve(rounds, options, work, parameters=size, operations=operations(options.network, work))


if __name__ == "__main__":
    main()
