"""LG-FedAvg (Liang et al. 2020, arXiv 2001.01523): local representations, a global classifier.

The reverse of FedPer: the last layers are averaged, the early ones stay at the client.

Departures:
1. All start from the seed's common initial model, as the released FedRep code (the original code: from a trained FedAvg
   model; and it keeps each client's model that is best on test images).
2. The whole cohort trains and keeps its early layers, whether its upload arrives or not.
3. The server's mean is weighted as the suite says.
4. `private_init` is none of the paper's: see `partly_shared`.
5. `private_layers`: the first layers are shared and so many of the last ones stay at the client, the reverse of the
   paper's idea. The original code's CIFAR-10 script does that: convolutions are sent, dense layers are not.
The global model, which the paper does not have, is the initial early layers under the shared ones: a start for
fine-tuning.
Special cases: a client's local update is one in FedAvg from its early layers under the shared ones. With one private
layer, FedPer, if the last layer is the head. At least one layer is shared and one private: with all shared it would be
FedAvg, with none Local.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.errors import UsageError
from pflbench.methods.base import Initializer, Objective, hyper
from pflbench.methods.local_sgd import LocalEpochs
from pflbench.methods.partly_shared import PartlyShared
from pflbench.models.network import Network


@dataclass(frozen=True)
class LGFedAvg(LocalEpochs, PartlyShared):
    """All layers trained together; the last ones are averaged, the others stay at the client."""

    version: ClassVar[int] = 1
    shared_layers: int = hyper(2, "How many of the last layers are shared.", least=1)
    private_layers: int | None = hyper(
        None, "How many of the last layers are private, with the others shared; none: shared_layers counts.", least=1
    )

    @property
    def shared_first(self) -> bool:
        return self.private_layers is not None

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` unless a layer is shared and a layer is private."""
        names = base.layout.layers
        option, other = ("private_layers", "shared") if self.shared_first else ("shared_layers", "private")
        if (number := getattr(self, option)) >= len(names):
            has = f"{option} = {number} leaves no layer {other}: the network's layers are {', '.join(names)}"
            write = f"write at most {len(names) - 1}" if len(names) > 1 else "take a network of more layers"
            raise UsageError(f"LGFedAvg: {has}; {write}, or use FedAvg or Local.")
        return base

    def shared(self, of: Objective | Initializer) -> slice:
        if self.private_layers is None:
            return of.last(self.shared_layers)
        return slice(0, of.last(self.private_layers).start)
