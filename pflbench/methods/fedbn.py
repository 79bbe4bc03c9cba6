"""FedBN (Li et al., ICLR 2021, arXiv 2102.07623, Algorithm 1): normalization stays at the client.

Departures:
1. All clients start from the seed's common normalization. The server keeps it, so its model is only a start for
   fine-tuning.
2. The suite sets the weights of the server's mean (paper: uniform).
3. The whole cohort keeps its trained normalization, also where an upload gets lost.
4. The upload is a whole vector, with the server's normalization in it: the counted costs include it.
5. CAFeMe's networks have no running statistics, so of theirs only scale and shift stay at a client.
Special cases: none. A network without normalization is refused, as this would be FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import UsageError, hyper
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedBN(FedAvg):
    """Normalization layers' scale, shift and running statistics stay at the client; all else is averaged."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "start"
    epochs: int = hyper(1, "Local epochs per round.", least=0)

    def network(self, base):
        if base.statistics is None and not base.layout.entries("normalization").any():
            raise UsageError(
                "FedBN: the network has no normalization, so nothing would stay at the client; its layers are "
                f"{', '.join(base.layout.layers)}. Take a network with normalization, or use FedAvg."
            )
        return base

    def init_client(self, server, new):
        return server  # of a state, only the entries of normalization are read

    def normalized(self, f, w, state):
        """The model w with a client's normalization."""
        return torch.where(f.entries("normalization") | f.entries("statistic"), state, w)

    def client(self, f, server, state, batches, *, round):
        w = self.trained(f, self.normalized(f, server, state), batches)
        return self.normalized(f, w, server), w

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        w = self.normalized(f, server, state) if upload is None else state
        return self.trained(f, w, batches, lr=self.personal_lr)
