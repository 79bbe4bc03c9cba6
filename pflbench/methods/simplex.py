"""Quadratic programs on the simplex, of few unknowns: alike for one client and for a stack of them."""

from __future__ import annotations

import torch

from pflbench.typing import Float, Tensor

ITERATIONS = 50
CENTERING = 0.1
"""Complementarity that an iteration aims at, of what there is."""
LEAST = 1e-28
"""Complementarity at which it stays, of a matrix whose diagonal's mean is 1."""
SHORT = 0.99
"""How far an iteration goes toward the first bound."""


def minimum(q: Float[Tensor, "n n"], there: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Minimize a^T Q a over a >= 0 that sum to 1, in float64, by a primal-dual interior-point method.

    It makes a fixed number of Newton steps, whatever the numbers (Nocedal & Wright, Numerical Optimization, 2nd ed.,
    section 16.6). z are the multipliers of a >= 0.

    Args:
        q: Symmetric and positive semidefinite.
        there: 1 for the unknowns, at least one; 0 for entries that stay 0 and whose rows in `q` are ignored.
    """
    real, count = there.double() > 0, there.double().sum()
    both = real[:, None] & real
    q = torch.where(both, q.double(), 0)
    q = q / (q.diagonal().sum() / count).clamp(min=torch.finfo(q.dtype).tiny)
    one = real.to(q.dtype)
    a, z = one / count, one
    for _ in range(ITERATIONS):
        inside = torch.where(real, a, 1)  # divides
        target = (CENTERING * (a * z).sum() / count).clamp(min=LEAST)
        h = q + torch.diag_embed(torch.where(real, z / inside, 1))
        # Newton's step of  Q a - y - z = 0,  a z = target,  sum a = 1;  y, which is linear, comes out with it.
        right = torch.stack([torch.where(real, target / inside, 0) - q @ a, one], -1)
        root = torch.linalg.cholesky_ex(h).L  # and two triangular systems, which a CUDA graph can record
        half = torch.linalg.solve_triangular(root, right, upper=False)
        by_target, by_sum = torch.linalg.solve_triangular(root.mT, half, upper=True).unbind(-1)
        da = by_target - by_target.sum() / by_sum.sum() * by_sum
        dz = torch.where(real, (target - z * da) / inside, 0) - z
        length = torch.minimum(reach(a, da), reach(z, dz))
        a, z = a + length * da, z + length * dz
    return a / a.sum()


def reach(x: Float[Tensor, "n"], dx: Float[Tensor, "n"]) -> Float[Tensor, ""]:
    """Length of a step from x along dx, at most 1, that keeps positive entries positive."""
    down = dx < 0
    return torch.where(down, -x / torch.where(down, dx, -1), torch.inf).amin().mul(SHORT).clamp(max=1)
