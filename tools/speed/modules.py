"""What a `torch.nn.Module` costs as a network, beside the same network written in pflbench's own operations.

    python tools/speed/modules.py [--passes 15] [--batch 30] [--clients 5]

One gradient step of each of `--clients` clients on minibatches of `--batch` images, one after the other and as a stack,
on one core. The forms take turns, and a ratio is formed inside a pass, as the machine's pace drifts; printed are the
median ratio, the quartiles, and the native form's milliseconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor, nn

from pflbench.engine.client_map import ClientMap, Data, Item
from pflbench.engine.objective import Task
from pflbench.methods.base import Batches, Objective
from pflbench.models.convnet import cnn2
from pflbench.models.mlp import mlp
from pflbench.models.module import wrap
from pflbench.models.network import Network
from pflbench.models.plain_cnn import lenet
from pflbench.running.allocator import tune_allocator

Shape = tuple[int, int, int]


def cnn2_module(shape: Shape, classes: int) -> nn.Module:
    """The network `cnn2`, pooled before it is clipped as there."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.BatchNorm2d(32), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Conv2d(32, 64, 5), nn.BatchNorm2d(64), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, classes)),
    )


def lenet_module(shape: Shape, classes: int) -> nn.Module:
    """The network `lenet`."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(800, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)),
    )


def mlp_module(shape: Shape, classes: int) -> nn.Module:
    """The network `mlp`, whose gradient pflbench derives by hand."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, classes))


PAIRS: dict[str, tuple[Callable[[Shape, int], Network], Callable[[Shape, int], nn.Module], Shape]] = {
    "cnn2": (cnn2, cnn2_module, (1, 28, 28)),
    "lenet": (lenet, lenet_module, (3, 32, 32)),
    "mlp": (mlp, mlp_module, (1, 28, 28)),
}


def step(f: Objective, w: Tensor, own: tuple[()], batches: Batches) -> Tensor:
    """One gradient step of one client."""
    return w - 0.01 * f.grad(w, batches[0])


def stepping(net: Network, execution: str, clients: int, batch: int) -> Callable[[], object]:
    """What makes one step of each client."""
    rows = torch.arange(clients * batch).view(clients, batch).numpy()
    pool = torch.randint(256, (clients * batch, *net.shape), dtype=torch.uint8)
    mapped = ClientMap(Data(Task(net, pool), rows.flatten() % net.classes, (0,)), execution)  # type: ignore[arg-type]
    items, w = [Item(0, (), ([mine],)) for mine in rows], net.init(0)
    return lambda: mapped(step, [w], items)


def seconds(work: Callable[[], object], least: float = 0.2) -> float:
    """Processor seconds of one call: of so many that `least` seconds pass."""
    start, calls = time.process_time(), 0
    while (took := time.process_time() - start) < least:
        work()
        calls += 1
    return took / calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--batch", type=int, default=30)
    parser.add_argument("--clients", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tune_allocator()
    print(f"PyTorch {torch.__version__}, {os.cpu_count()} cores, {options.clients} clients × batch {options.batch}")
    work = {
        (name, execution): [
            stepping(net, execution, options.clients, options.batch)
            for net in (native(shape, 10), wrap(module, shape, 10, name))
        ]
        for name, (native, module, shape) in PAIRS.items()
        for execution in ("loop", "vectorized")
    }
    took = {of: ([], []) for of in work}  # type: dict[tuple[str, str], tuple[list[float], list[float]]]
    for i in range(options.passes + 1):
        for of, forms in work.items():
            for form in (0, 1) if i % 2 else (1, 0):
                spent = seconds(forms[form])
                if i:  # the first pass warms up
                    took[of][form].append(spent)
    for (name, execution), (native, module) in took.items():
        ratios = [b / a for a, b in zip(native, module, strict=True)]
        low, _, high = quantiles(ratios)
        print(
            f"{name:6} {execution:10} {median(ratios):.2f} ({low:.2f} to {high:.2f}) of {1000 * median(native):.1f} ms"
        )


if __name__ == "__main__":
    main()
