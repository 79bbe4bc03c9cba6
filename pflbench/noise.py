"""Random numbers as a function of (key, name): counted, not drawn, so that a stack and a loop see the same ones."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from pflbench import rng
from pflbench.typing import Float, Int

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def key(seed: int, *names: str | int) -> int:
    """The key called `names` of the run with this seed, in [0, 2^63)."""
    return rng.entropy(seed, ("noise", *names)) % 2**63


def branch(key: Int[Tensor, ""], *name: str | int) -> Int[Tensor, ""]:
    """Another key, called `name`, that is as good as independent of this one."""
    return key + _salt(("branch", *name))


def bits(key: Int[Tensor, "*lead"], name: tuple[str | int, ...], count: int) -> Int[Tensor, "*lead count"]:
    """`count` words of 64 random bits for each key; those of a smaller count are the first ones of a larger.

    A word is the hash of a counter by splitmix64's finalizer (Steele et al. 2014).

    Args:
        key: int64.
        name: What the words are for.
        count: How many.
    """
    counters = torch.arange(count, dtype=torch.int64, device=key.device)
    z = (counters + (_salt(name) + 1)) * _GOLDEN + key[..., None]
    z = (z ^ _shifted(z, 30)) * _MIX[0]
    z = (z ^ _shifted(z, 27)) * _MIX[1]
    return z ^ _shifted(z, 31)


def below(words: Int[Tensor, "*shape"], n: int, field: int = 0) -> Int[Tensor, "*shape"]:
    """Uniform integers in [0, n), n < 2^15, from bits 21·field to 21·field + 20 of each word (field 0, 1 or 2).

    A number's chance is 1/n to within 2^-21.
    """
    return ((_shifted(words, 21 * field) & 0x1FFFFF) * n) >> 21


def uniform(key: Int[Tensor, "*lead"], name: tuple[str | int, ...], count: int, dtype: torch.dtype) -> Tensor:
    """`count` uniform numbers in (0, 1] of 24 bits for each key: [*lead, "count"]; float64 never has 1."""
    return _uniform(_shifted(bits(key, name, count), 40), dtype)


def normal(
    key: Int[Tensor, ""], name: tuple[str | int, ...], shape: tuple[int, ...], dtype: torch.dtype
) -> Float[Tensor, "*shape"]:
    """Independent standard normal numbers, on the key's device.

    Two come of each word of `bits` by the Box-Muller transform of two 24-bit uniform numbers; |value| < 5.9.

    Args:
        key: int64 scalar.
        name: What the numbers are for.
        shape: Of the result.
        dtype: Of the result, and of the arithmetic.
    """
    count = math.prod(shape)
    z = bits(key, name, (count + 1) // 2)
    radius = (_uniform(_shifted(z, 40), dtype).log_() * -2).sqrt_()
    angle = _uniform((z >> 8) & 0xFFFFFF, dtype) * (2 * math.pi)
    both = torch.cat([radius * angle.cos(), radius * angle.sin()])
    return both[:count].view(shape)


def _uniform(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """24 bits as a number in (0, 1]."""
    return (bits.to(dtype) + 0.5).mul_(2.0**-24)


def _shifted(z: Tensor, by: int) -> Tensor:
    """The logical right shift of signed 64-bit integers."""
    return (z >> by) & ((1 << (64 - by)) - 1)


@lru_cache(maxsize=4096)
def _salt(name: tuple[str | int, ...]) -> int:
    # Far apart: no two names' counters overlap.
    return rng.entropy(0, name) % 2**62
