"""Quadratic programs on the simplex: against all subsets of the unknowns, scipy's solver, and optimality itself."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.methods.fedpac import minimum


def problem(n: int, width: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """FedPAC's: variances on the diagonal, and products of differences from one client's statistics."""
    random = np.random.default_rng(seed)
    h = scale * random.normal(size=(n, width))
    off = h[0] - h
    return np.diag(10 ** random.uniform(-4, 1, n)) + off @ off.T


def solved(q: np.ndarray, there: np.ndarray | None = None) -> np.ndarray:
    return minimum(torch.from_numpy(q), torch.from_numpy(np.ones(len(q)) if there is None else there)).numpy()


def by_subsets(q: np.ndarray) -> np.ndarray:
    """The best of the minima on all subsets of the unknowns, each a linear system."""
    best = (np.inf, np.zeros(len(q)))
    for size in range(1, len(q) + 1):
        for chosen in map(list, combinations(range(len(q)), size)):
            a = np.zeros(len(q))
            a[chosen] = np.linalg.solve(q[np.ix_(chosen, chosen)], np.ones(size))
            a /= a.sum()
            if a.min() >= 0:
                best = min(best, (a @ q @ a, a), key=lambda one: one[0])
    return best[1]


@pytest.mark.parametrize("seed", range(8))
def test_of_few_unknowns_it_is_the_best_subsets(seed: int) -> None:
    for n in (1, 2, 3, 6):
        q = problem(n, 4, seed, scale=10.0 ** (seed - 4))
        np.testing.assert_allclose(solved(q), by_subsets(q), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_scipy_finds(seed: int) -> None:
    q = problem(20, 30, seed)
    found = scipy.optimize.minimize(
        lambda a: a @ q @ a / q.trace(),
        np.full(20, 0.05),
        jac=lambda a: 2 * q @ a / q.trace(),
        bounds=[(0, 1)] * 20,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    a = solved(q)
    np.testing.assert_allclose(a, found.x, atol=1e-5)
    assert a @ q @ a <= found.x @ q @ found.x * (1 + 1e-12)


@given(n=st.integers(1, 100), width=st.integers(1, 60), seed=st.integers(0, 10**6), power=st.floats(-5, 5))
@settings(max_examples=40, deadline=None)
def test_it_is_optimal_at_any_scale(n: int, width: int, seed: int, power: float) -> None:
    """On the simplex, and no entry has a smaller derivative than those in use (Karush, Kuhn and Tucker)."""
    q = problem(n, width, seed, scale=10.0**power)
    a = solved(q)
    assert a.min() >= 0 and a.sum() == pytest.approx(1, abs=1e-14)
    derivative = q @ a / np.diag(q).mean()
    assert derivative.min() >= a @ derivative - 1e-11


def test_entries_that_are_not_there_stay_zero_and_change_nothing() -> None:
    q, there = problem(5, 3, 0), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    q[1], q[:, 1], q[4, 4] = 1e9, 1e9, 0.0
    kept = np.flatnonzero(there)
    found = solved(q, there)
    np.testing.assert_allclose(found[kept], solved(q[np.ix_(kept, kept)]), atol=1e-13)
    assert found[1] == found[4] == 0


def test_a_stack_of_problems_is_solved_as_each_alone() -> None:
    qs = torch.from_numpy(np.stack([problem(20, 9, seed) for seed in range(5)]))
    there = torch.ones(5, 20, dtype=torch.float64)
    there[2, 7:] = 0
    alone = torch.stack([minimum(q, t) for q, t in zip(qs, there, strict=True)])
    torch.testing.assert_close(torch.vmap(minimum)(qs, there), alone, rtol=0, atol=1e-12)


def test_of_a_zero_matrix_all_weights_are_equal() -> None:
    np.testing.assert_allclose(solved(np.zeros((4, 4))), 0.25)
    np.testing.assert_allclose(solved(np.eye(3)), 1 / 3, atol=1e-14)
