"""Few-shot tasks: some classes of a source, numbered at random, so that tasks disagree on what a label means."""

from __future__ import annotations

import numpy as np

from pflbench.data.partition import Rows
from pflbench.rng import stream


def draw_task(counts: Rows, ways: int, each: int, seed: int, *names: str | int) -> tuple[Rows, Rows]:
    """Rows and labels of a task, int64 ["rows"]: `ways` classes, at most `each` images of every one.

    Classes are drawn without replacement, in an order that is random, too; their labels are their places in it. From
    the stream `(seed, *names, "classes")`. Of a class with fewer images all are taken; from the stream
    `(seed, *names, "images", class)`, so fewer images are a part of more.

    `counts`: how many rows there are of each class, int64 ["classes"], at least `ways` of them; a class's are in a row.
    """
    chosen = stream(seed, *names, "classes").permutation(len(counts))[:ways].tolist()
    starts = np.cumsum(counts) - counts
    drawn = [stream(seed, *names, "images", name).permutation(counts[name])[:each] for name in chosen]
    rows = np.concatenate([starts[name] + mine for name, mine in zip(chosen, drawn, strict=True)])
    return rows, np.repeat(np.arange(ways, dtype=np.int64), [len(mine) for mine in drawn])
