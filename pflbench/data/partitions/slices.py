"""How pFedVEM's partitions cut rows at random places, so that clients have very unequal sizes, and the law of these.

A *type* is what a client holds or does not: a label, or a fine class where labels are superclasses. The rows of every
type are cut at random places into as many blocks as there are clients that hold it, and each of them gets one block.

`RandomSlicing` and `PairSlicing` draw from the streams `(seed, "types")`, which types a client holds, and
`(seed, "slices")`, which rows of them; they depend on nothing else but labels, kind, clients and the options. A
client's rows stand by type, ascending.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pflbench.data.partition import Rows
from pflbench.errors import UsageError


def rows_by_type(types: Rows) -> dict[int, Rows]:
    """The rows of every type, types ascending."""
    names, counts = np.unique(types, return_counts=True)
    rows = np.split(np.argsort(types, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(names.tolist(), rows, strict=True))


def random_cuts(rows: int, parts: int, random: np.random.Generator) -> Rows:
    """Different places strictly inside, ascending, so that no part is empty."""
    return np.sort(random.choice(rows - 1, parts - 1, replace=False)) + 1


def size_law(n_type: int, clients_per_type: int) -> npt.NDArray[np.float64]:
    """The exact probabilities of a block's length when `n_type` rows are cut at random for so many clients.

    With N rows and M clients, P(k) = C(N-k-1, M-2) / C(N-1, M-1); with one client all N rows are its block. Under
    `RandomSlicing` a client has its number of types times so many rows, which gives the paper's Figures 3-6.

    Args:
        n_type: Rows of one type, N.
        clients_per_type: Clients that hold it, M.

    Returns:
        float64 ["lengths"], the probability of length k at index k - 1, for k = 1..N-M+1.

    Raises:
        UsageError: M is not in 1..N.
    """
    if not 1 <= clients_per_type <= n_type:
        raise UsageError(f"{n_type} rows cannot be cut into {clients_per_type} parts.")
    if clients_per_type == 1:
        certain = np.zeros(n_type)
        certain[-1] = 1
        return certain
    # Products of P(1) and ratios of neighbors, as sums of logs: binomials of this size have no float.
    k = np.arange(1, n_type - clients_per_type + 1)
    ratios = np.log((n_type - k - clients_per_type + 1) / (n_type - k - 1))
    first = np.log((clients_per_type - 1) / (n_type - 1))
    law: npt.NDArray[np.float64] = np.exp(first + np.cumsum(np.concatenate([[0.0], ratios])))
    return law
