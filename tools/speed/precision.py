"""How far a run of each method is from float64 after a few rounds, by precision: what a GPU is to be held against.

    python tools/speed/precision.py -o tools/speed/precision-expected.json     # on a processor, loops

A processor has no TF32, so there its rounding is done by hand: the operands of products and convolutions, forward and
backward, keep 10 bits of their fractions. `gpu.py` measures the same on a GPU and compares.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pflbench import names
from pflbench.engine.simulate import Setup, Simulation
from pflbench.running.provenance import versions
from pflbench.testing import Case, tiny_federation

PRECISIONS = ("fp32", "tf32", "bf16")
ROUNDS = 1  # training amplifies rounding
SEEDS = range(5)
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"}
DROPPED = 13
"""Bits of a float32's fraction that TF32 has not."""
FACTOR, FLOOR = 8.0, 1e-6
"""A GPU's median may be so many times the largest expected, and so far in any case: it sums in another order."""


class TF32(TorchDispatchMode):
    """Rounds the operands of products and convolutions of float32 to TF32's 10 bits, to nearest."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation."""
        if func.overloadpacket.__name__ in PRODUCTS:
            args = pytree.tree_map(rounded, args)
        return func(*args, **(kwargs or {}))


def rounded(x: Any) -> Any:
    """A float32 tensor's numbers with 10 bits of fraction; anything else as it is."""
    if not isinstance(x, Tensor) or x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return (bits + (1 << (DROPPED - 1)) & -(1 << DROPPED)).view(torch.float32)


def deviations(setup: Setup, methods: Sequence[str], precisions: Sequence[str] = PRECISIONS) -> dict[str, Any]:
    """By method and precision, for each seed the server state's distance from that of float64, over its length."""
    found: dict[str, Any] = {}
    for name in methods:
        method = names.resolve("methods", name)()
        exact = [_server(method, setup, "fp64", seed) for seed in SEEDS]
        found[name] = {}
        for precision in precisions:
            with _rounding(precision, setup.device):
                got = [_server(method, setup, precision, seed) for seed in SEEDS]
            found[name][precision] = [
                float(f"{(a - b).norm() / b.norm():.2e}") for a, b in zip(got, exact, strict=True)
            ]
    return found


Deviations = Mapping[str, Mapping[str, Sequence[float]]]


def wrong(found: Deviations, expected: Deviations) -> list[str]:
    """What is further from float64 than it is to be, in words."""
    return [
        f"{name} in {precision}: {median(values):.1e}, expected {max(expected[name][precision]):.1e}"
        for name, several in found.items()
        for precision, values in several.items()
        if not median(values) <= FACTOR * max(expected[name][precision]) + FLOOR
    ]


def _server(method: Any, setup: Setup, precision: str, seed: int) -> Tensor:
    """The server's state after a few rounds, as one vector of float64 on the host."""
    # What `RunSpec` calls a precision is a type of parameters, or how float32 ones are multiplied.
    case = Case(method)
    spec = case.spec(seed, rounds=ROUNDS, precision=precision)
    (outcome,) = Simulation([spec], [tiny_federation(seed)], method, case.plain, setup).run()
    assert outcome.failure is None, outcome.failure
    leaves = [one for one in pytree.tree_leaves(outcome.server) if isinstance(one, Tensor) and one.is_floating_point()]
    return torch.cat([one.detach().cpu().double().flatten() for one in leaves])


@contextlib.contextmanager
def _rounding(precision: str, device: torch.device) -> Iterator[None]:
    """TF32 where it is asked for: by the GPU, or by hand."""
    if device.type == "cuda":
        backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
        before = [one.allow_tf32 for one in backends]
        for one in backends:
            one.allow_tf32 = precision == "tf32"
        try:
            yield
        finally:
            for one, value in zip(backends, before, strict=True):
                one.allow_tf32 = value
    elif precision == "tf32":
        with TF32():
            yield
    else:
        yield


def main() -> None:
    """Measure on this processor, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = deviations(Setup(), list(names.BUILT_IN["methods"]))
    told = {"versions": versions(), "rounds": ROUNDS, "deviations": found}
    options.output.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
