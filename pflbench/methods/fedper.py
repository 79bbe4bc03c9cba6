"""FedPer (Arivazhagan et al. 2019, arXiv 1912.00818, Algorithms 1 and 2): a shared base, a personal head.

Departures:
1. The personalization layers are the network's head (in most networks the last layer); all clients start from the
   seed's common one, as in the rest of a suite's methods.
2. The whole cohort trains and keeps its head, whether its upload arrives or not (pFedVEM's tables; the paper's
   clients all take part in every round).
3. The server's mean is weighted as the suite says, over uploads that arrive (the paper: by examples, over all).
4. `momentum` and `weight_decay` are none of the paper's; each local update begins with a fresh momentum (pFedVEM's
   and FedEC's tables).
5. `private_init` is none of the paper's: see `partly_shared`.
The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: with one client and without momentum, plain SGD; with a base of no entries, Local.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pflbench.methods.base import Initializer, Objective, base_then_head
from pflbench.methods.base import with_base as with_base
from pflbench.methods.local_sgd import LocalEpochs
from pflbench.methods.partly_shared import PartlyShared
from pflbench.models.network import Network
from pflbench.typing import Float, Tensor

Base = Float[Tensor, "base"]
Head = Float[Tensor, "head"]


@dataclass(frozen=True)
class PersonalHead(PartlyShared):
    """The base is averaged, the head stays at the client (FedPer, FedRep)."""

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a head."""
        return base_then_head(base)

    def shared(self, of: Objective | Initializer) -> slice:
        return of.part("base")


@dataclass(frozen=True)
class FedPer(LocalEpochs, PersonalHead):
    """Base and head trained together; the base is averaged, the head stays at the client."""

    version: ClassVar[int] = 1
