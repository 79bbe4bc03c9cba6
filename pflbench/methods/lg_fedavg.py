"""LG-FedAvg (Liang et al. 2020, arXiv 2001.01523): local representations, a global classifier.

The reverse of FedPer: the last layers are averaged, the early ones stay at the client.

Departures:
1. All start from the seed's common initial model, as the released FedRep code (the original code: from a trained FedAvg
   model; and it keeps each client's model that is best on test images).
2. The whole cohort trains and keeps its early layers, whether its upload arrives or not.
3. The server's mean is weighted as the suite says.
4. `private_init` is none of the paper's: see `partly_shared`.
The global model, which the paper does not have, is the initial early layers under the shared ones: a start for
fine-tuning.
Special cases: with all layers shared, FedAvg; a client's local update is one in FedAvg from its early layers under the
shared ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Batches, Initializer, Objective, Take, descend
from pflbench.methods.partly_shared import Own, PartlyShared, Shared
from pflbench.models.network import Network


@dataclass(frozen=True)
class LGFedAvg(PartlyShared):
    """All layers trained together; the last ones are averaged, the others stay at the client."""

    version: ClassVar[int] = 1
    shared_first = False
    epochs: int = 5
    """Local epochs per round."""
    lr: float = 1e-3
    """Local learning rate (SGD)."""
    momentum: float | None = None
    """Momentum of the local SGD, fresh in each round; none: without."""
    weight_decay: float | None = None
    """Weight decay of the layers' weights (not of biases and normalizations); none: without."""
    batch: int | None = None
    """Examples per minibatch; none: the suite's."""
    shared_layers: int = 2
    """How many of the last layers are shared."""
    private_init: Literal["server"] | None = None
    """The early layers of a client that never took part: the initial ones, or "server": the last cohort's mean."""

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` if it has fewer layers than are to be shared."""
        base.layout.last(self.shared_layers)
        return base

    def shared(self, of: Objective | Initializer) -> slice:
        return of.last(self.shared_layers)

    def takes(self) -> tuple[Take, ...]:
        return (Take(epochs=self.epochs, batch=self.batch),)

    def fit(self, f: Objective, shared: Shared, private: Own, *taken: Batches) -> tuple[Shared, Own]:
        (batches,) = taken
        start = self.whole(shared, private)
        decay = f.decay(self.weight_decay, start)
        w = descend(f.grad, start, batches, lr=self.lr, beta=self.momentum, decay=decay)
        where = self.shared(f)
        return w[where], self.private(w, where)
