"""FedPer (Arivazhagan et al. 2019, arXiv 1912.00818, Algorithms 1 and 2): a shared base, a personal head.

Departures:
1. The personalization layers are the network's head (in most networks the last layer); all clients start from the
   seed's common one, as in the rest of a suite's methods.
2. Everyone who is asked trains and keeps its head, whether its upload arrives or not (pFedVEM's tables; the paper's
   clients all take part in every round).
3. The server's mean is weighted as the suite says, over uploads that arrive (the paper: by examples, over all).
4. `momentum` is none of the paper's; each participation begins with a fresh one (pFedVEM's tables).
The global model, which the paper does not have, is the shared base with the initial head.
Special cases: with one client and without momentum, plain SGD; with a base of no entries, Local.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Initializer, Method, Objective, Round, Take, Weights, descend, mean
from pflbench.models.network import Network
from pflbench.typing import Float, Params, Tensor

Base = Float[Tensor, "base"]
Head = Float[Tensor, "head"]


@dataclass(frozen=True)
class FedPer(Method[Params, Head, Base]):
    """Base and head trained together; the base is averaged, the head stays at the client."""

    version: ClassVar[int] = 1
    trains = "everyone"
    personal_from = "training"
    epochs: int = 5
    """Local epochs per participation."""
    lr: float = 1e-3
    """Local learning rate (SGD)."""
    momentum: float | None = None
    """Momentum of the local SGD, fresh in each round; none: without."""
    batch: int | None = None
    """Rows per minibatch; none: the suite's."""

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a head."""
        return base_then_head(base)

    def takes(self) -> tuple[Take, ...]:
        """`epochs` passes."""
        return (Take(epochs=self.epochs, batch=self.batch),)

    def init_client(self, server: Params, new: Initializer) -> Head:
        """The common initial head."""
        return server[new.part("head")]

    def client(self, f: Objective, server: Params, state: Head, *taken: Batches, round: Round) -> tuple[Base, Head]:
        """SGD on the shared base with the client's own head; the base is sent, the head is kept."""
        (batches,) = taken
        w = descend(f.grad, together(f, server, state), batches, lr=self.lr, beta=self.momentum)
        return w[f.part("base")], w[f.part("head")]

    def server(self, server: Params, uploads: Float[Tensor, "cohort base"], n: Weights, round: Round) -> Params:
        """The mean of the bases; the initial head stays beside it."""
        return with_base(server, mean(uploads, n))

    def adapts(self) -> tuple[Take, ...]:
        """Nothing: what training leaves behind is used."""
        return ()

    def personalize(
        self, f: Objective, server: Params, state: Head, sent: Base | None, *taken: Batches, round: Round
    ) -> dict[str, Params]:
        """The client's head on the base it just trained or, after aggregation, on the server's."""
        return {"personalized": together(f, server, state, sent)}


def base_then_head(network: Network) -> Network:
    """The network itself. Raises `UsageError` unless its vector is a base and then a head.

    So that a server, which does not see the network, can put a mean of bases where it belongs.
    """
    if list(network.layout.parts) != ["base", "head"]:
        raise UsageError(f"This method needs a network of a base and then a head, not {list(network.layout.parts)}.")
    return network


def together(f: Objective, server: Params, head: Head, base: Base | None = None) -> Params:
    """A client's model: its head on this base (None: the server's)."""
    return torch.cat([server[f.part("base")] if base is None else base, head])


def with_base(server: Params, base: Base) -> Params:
    """The server's vector with another base."""
    return torch.cat([base, server[base.shape[-1] :]])
