"""Plain matrix products: as fast as one core, or the GPU, multiplies. One round is one product of square matrices."""

from __future__ import annotations

import torch
from protocol import arguments, prepare, serve

SIDES = {"cpu": 1024, "cuda": 4096}
"""Rows and columns of the matrices, large enough that larger ones are multiplied no faster."""


def main() -> None:
    """Build, then serve."""
    options = arguments(__doc__)
    prepare(options)
    n = 32 if options.scale == "tiny" else SIDES[torch.device(options.device).type]
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    a, b = (torch.rand(n, n, device=options.device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)

    def rounds(count: int) -> None:
        for _ in range(count):
            torch.mm(a, b, out=product)

    serve(rounds, options, None, operations=2 * n**3)


if __name__ == "__main__":
    main()
