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
from typing import ClassVar

from pflbench.methods.base import Initializer, Objective, hyper
from pflbench.methods.local_sgd import LocalEpochs
from pflbench.methods.partly_shared import PartlyShared
from pflbench.models.network import Network


@dataclass(frozen=True)
class LGFedAvg(LocalEpochs, PartlyShared):
    """All layers trained together; the last ones are averaged, the others stay at the client."""

    version: ClassVar[int] = 1
    shared_first = False
    shared_layers: int = hyper(2, "How many of the last layers are shared.")

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` if it has fewer layers than are to be shared."""
        base.layout.last(self.shared_layers)
        return base

    def shared(self, of: Objective | Initializer) -> slice:
        return of.last(self.shared_layers)
