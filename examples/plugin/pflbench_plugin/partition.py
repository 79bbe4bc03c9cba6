"""A partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pflbench.data.partition import Rows, shuffled


@dataclass(frozen=True)
class Equal:
    """Shuffled rows, in equal parts."""

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        return list(np.array_split(shuffled(len(labels), seed), clients))
