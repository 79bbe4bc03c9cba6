"""Half of the labels of one source per client, as in pFedVEM's Table 7."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pflbench import rng
from pflbench.data.partition import Rows, check_clients
from pflbench.data.partitions.slices import random_cuts, rows_by_type
from pflbench.errors import UsageError


@dataclass(frozen=True)
class PairSlicing:
    """Each client half of the labels of one source, in random amounts (pFedVEM's Table 7, Digit-Five).

    `kind` is source * (number of labels) + label, so it names a pair of both. A client's source is uniform, its
    labels are drawn without replacement. The rows of a pair that M clients hold are shuffled and cut at M - 1 random
    places, its own ones as M differs from pair to pair; holders get the blocks in client order. Pairs that nobody
    holds are not used. The paper leaves the amounts open; cutting like this is our choice.
    """

    def __call__(self, labels: Rows, kind: Rows | None, clients: int, seed: int) -> list[Rows]:
        """See `Partition`. Also impossible: an odd number of labels, or a pair with fewer rows than holders."""
        check_clients(len(labels), clients)
        if kind is None:
            raise UsageError("This partition needs a dataset from several sources, such as digit-five.")
        count = int(labels.max()) + 1
        if not np.array_equal(kind % count, labels):
            raise UsageError(f"This partition needs a dataset whose kinds are source * {count} + label.")
        if count % 2:
            raise UsageError(f"A client's half of the labels needs an even number of them, not {count}.")
        sources = np.unique(kind // count)
        random = rng.stream(seed, "types")
        holders: dict[int, list[int]] = {}
        for client in range(clients):
            source = int(random.choice(sources))
            for label in random.choice(count, count // 2, replace=False).tolist():
                holders.setdefault(source * count + label, []).append(client)

        piles = rows_by_type(kind)
        random = rng.stream(seed, "slices")
        held: list[list[Rows]] = [[] for _ in range(clients)]
        for name in sorted(holders):
            pile, mine = piles.get(name, kind[:0]), holders[name]
            if len(pile) < len(mine):
                raise UsageError(
                    f"{len(mine)} clients hold label {name % count} of source {name // count}, which has "
                    f"{len(pile)} rows: use fewer clients."
                )
            blocks = np.split(random.permutation(pile), random_cuts(len(pile), len(mine), random))
            for client, block in zip(mine, blocks, strict=True):
                held[client].append(block)
        return [np.concatenate(blocks) for blocks in held]
