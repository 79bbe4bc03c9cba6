"""FedBN (Li et al., ICLR 2021, arXiv 2102.07623, Algorithm 1): normalization stays at the client.

Departures:
1. All clients start from the seed's common scale and shift, which the server keeps as they are: its model is only a
   start for fine-tuning.
2. The server's mean is weighted as the suite says (the paper: uniformly).
3. The whole cohort keeps what it trained, whether its upload arrives or not (the paper's clients all take part in
   every round).
4. The upload is a whole vector, with the server's own scale and shift in it: the counted costs include them.
5. `momentum` and `weight_decay` are none of the paper's.
6. Batch normalization always uses the batch's own statistics; there are no running ones, so of FedBN only scale and
   shift stay at a client.
Special cases: none. A network without normalization is refused: nothing would stay at the client, which is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.errors import UsageError
from pflbench.methods.base import Batches, Initializer, Method, Objective, Round
from pflbench.methods.local_sgd import LocalSGD
from pflbench.models.network import Network
from pflbench.typing import Params


@dataclass(frozen=True)
class FedBN(LocalSGD, Method[Params, Params, Params], epochs=1):
    """Normalization layers' scale and shift stay at the client; all other parameters are averaged."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "start"

    def network(self, base: Network) -> Network:
        """The suite's. Raises `UsageError` if it has no normalization."""
        if not base.layout.entries("normalization").any():
            raise UsageError(
                "FedBN: the network has no normalization, so nothing would stay at the client; its layers are "
                f"{', '.join(base.layout.layers)}. Take a network with normalization, or use FedAvg."
            )
        return base

    def init_client(self, server: Params, new: Initializer) -> Params:
        """A whole vector, of which only the normalization's entries are ever read."""
        return server

    def own(self, f: Objective, server: Params, state: Params) -> Params:
        """The server's model with a client's normalization."""
        return torch.where(f.entries("normalization"), state, server)

    def client(
        self, f: Objective, server: Params, state: Params, *batches: Batches, round: Round
    ) -> tuple[Params, Params]:
        w = self.sgd(f, self.own(f, server, state), *batches, lr=self.lr)
        return self.own(f, w, server), w

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return state
        return self.own(f, server, state)
